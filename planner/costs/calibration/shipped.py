"""Default constants, used until ``sluice calibrate`` has fitted the constants of the machine."""

from __future__ import annotations

from catalog.values.calibration import Calibration

#: Fitted on one core of a quiet two-core cloud machine (docs/bench/calibration.md). On another machine, all
#: constants change by nearly the same factor, so these constants rank strategies in the same order there.
SHIPPED = Calibration(
    per_batch=0.00254,
    per_partition=0.0014,
    per_filtered_side=0.0021,
    per_filter_text=0.0001947,
    per_slice=1.89e-05,
    per_segment=0.0,
    per_build=1.266e-05,
    per_build_column=8.25e-06,
    per_packed_row=7.203e-08,
    per_filter=1.459e-08,
    per_inserted_row=5.36e-08,
    per_moved_row=0.0,
    per_male=2.59e-09,
    per_male_segment=5.27e-09,
    per_match=3.55e-08,
    per_result=1.847e-08,
    per_result_value=9.96e-09,
    per_stored_segment=0.0005212,
    per_stored_byte=0.0,
    median_error=0.082,
)
