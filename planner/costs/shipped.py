"""The constants that Sluice comes with, used until ``sluice calibrate`` has fitted those of the machine."""

from __future__ import annotations

from catalog.values.calibration import Calibration

#: Fitted on one core of a two-core cloud machine (docs/bench/calibration.md). Another machine is faster or
#: slower, but mostly by one factor, which ranks strategies the same.
SHIPPED = Calibration(
    per_batch=0.00101,
    per_partition=0.00108,
    per_filtered_side=0.00148,
    per_filter_text=0.000179,
    per_slice=2.39e-05,
    per_segment=2.42e-06,
    per_build=4.38e-05,
    per_build_column=1.4e-05,
    per_packed_row=1.25e-07,
    per_filter=1.17e-08,
    per_inserted_row=6.51e-08,
    per_moved_row=1.63e-09,
    per_male=0.0,
    per_male_segment=4.8e-09,
    per_match=2.47e-08,
    per_result=5.2e-08,
    per_result_value=8.46e-09,
    per_stored_segment=0.000373,
    per_stored_byte=7.22e-10,
    median_error=0.0733,
)
