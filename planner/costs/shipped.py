"""The constants that Sluice comes with, used until ``sluice calibrate`` has fitted those of the machine."""

from __future__ import annotations

from catalog.values.calibration import Calibration

#: Fitted on one core of a quiet two-core cloud machine (docs/bench/calibration.md). Another machine is faster
#: or slower, but mostly by one factor, which ranks strategies the same; ``sluice calibrate`` fits its own.
SHIPPED = Calibration(
    per_batch=0.00255,
    per_partition=0.00149,
    per_filtered_side=0.0025,
    per_filter_text=0.0001221,
    per_slice=3.23e-06,
    per_segment=0.0,
    per_build=4.631e-05,
    per_build_column=7.7e-06,
    per_packed_row=1.212e-07,
    per_filter=4.44e-09,
    per_inserted_row=3.037e-08,
    per_moved_row=0.0,
    per_male=8.34e-09,
    per_male_segment=3.77e-09,
    per_match=2.932e-08,
    per_result=0.0,
    per_result_value=9.02e-09,
    per_stored_segment=0.00034634,
    per_stored_byte=1.1e-10,
    median_error=0.106,
)
