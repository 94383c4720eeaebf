"""The constants that Sluice comes with, used until ``sluice calibrate`` has fitted those of the machine."""

from __future__ import annotations

from catalog.values.calibration import Calibration

#: Orders of magnitude of the engine on one core of a small cloud machine; good enough to rank strategies that
#: differ by much.
SHIPPED = Calibration(
    per_batch=2e-3,
    per_partition=2e-3,
    per_filtered_side=3e-3,
    per_filter_text=5e-4,
    per_slice=2e-4,
    per_segment=1e-4,
    per_build=4e-4,
    per_build_column=3e-5,
    per_packed_row=5e-7,
    per_filter=1e-8,
    per_inserted_row=2e-7,
    per_moved_row=1e-7,
    per_male=5e-8,
    per_male_segment=2e-8,
    per_match=2e-8,
    per_result=1e-7,
    per_result_value=2e-8,
    per_stored_segment=3e-4,
    per_stored_byte=2e-9,
)
