"""The constants that Sluice comes with, used until ``sluice calibrate`` has fitted those of the machine."""

from __future__ import annotations

from catalog.values.calibration import Calibration

#: Fitted on one core of a two-core cloud machine (docs/bench/calibration.md). Another machine is faster or
#: slower, but mostly by one factor, which ranks strategies the same.
SHIPPED = Calibration(
    per_batch=0.00252,
    per_partition=0.00185,
    per_filtered_side=0.00211,
    per_filter_text=8.59e-05,
    per_slice=2.86e-05,
    per_segment=0.0,
    per_build=0.0,
    per_build_column=1.87e-05,
    per_packed_row=2.06e-07,
    per_filter=7.06e-09,
    per_inserted_row=0.0,
    per_moved_row=5.47e-09,
    per_male=0.0,
    per_male_segment=1.04e-08,
    per_match=7.9e-08,
    per_result=2.76e-08,
    per_result_value=2.06e-08,
    per_stored_segment=0.000807,
    per_stored_byte=7.9e-10,
    median_error=0.112,
)
