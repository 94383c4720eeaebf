"""The constants of the calibrated cost model, fitted on the machine that runs the job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Calibration:
    """CPU seconds that the job's Python processes need per unit of work.

    ``planner.costs.calibration.calibrated.Work`` counts the units.

    Attributes:
        per_batch: Per batch and bucket, even if they have no rows.
        per_partition: Per batch and side, to open and pack its input, even if the input has no rows.
        per_filtered_side: Per batch and side with filters, to start the evaluator.
        per_filter_text: Per batch and distinct filter, to compile its text.
        per_slice: Per batch, bucket and one-way slice: the system overhead C_sys.
        per_segment: Per batch, bucket and held segment, to find it in the cache, probe it, examine it for
            purge and compaction, and name it in the manifest.
        per_build: Per segment in which males of a batch find partners, to route and gather their pairs.
        per_build_column: Per result column and segment in which males of a batch find partners.
        per_packed_row: Per row read, hashed, sorted and encoded for one family side.
        per_filter: Per row and distinct filter evaluated.
        per_inserted_row: Per row that enters a chain.
        per_moved_row: Per row that leaves a slice for the next one, even if the next slice's filter drops it.
        per_male: Per male and one-way slice that it probes.
        per_male_segment: Per male and segment with which the male is merged.
        per_match: Per candidate pair of equal key.
        per_result: Per pair that serves a query, to route, gather and write it.
        per_result_value: Per result column of a pair that serves a query.
        per_stored_segment: Per new segment, encoded and stored.
        per_stored_byte: Per byte of a new segment.
        fitted_at_us: Wall clock when the constants were fitted, µs UTC; 0 for the constants shipped with
            Sluice.
        median_error: Median relative error of the model on the workloads to which it was fitted.
        per_ring_look: Per male and segment whose rows are in rings, to find the head of the male's ring.
        per_scanned_row: Per row that a male is compared with in its ring.
        per_ring_row: Per row that is sorted into a ring or probes a ring.
        per_searched_row: Per stored row whose key is looked up among the closed keys.
    """

    per_batch: float
    per_partition: float
    per_filtered_side: float
    per_filter_text: float
    per_slice: float
    per_segment: float
    per_build: float
    per_build_column: float
    per_packed_row: float
    per_filter: float
    per_inserted_row: float
    per_moved_row: float
    per_male: float
    per_male_segment: float
    per_match: float
    per_result: float
    per_result_value: float
    per_stored_segment: float
    per_stored_byte: float
    fitted_at_us: int = 0
    median_error: float = 0.0
    per_ring_look: float = 5.5e-9
    per_scanned_row: float = 9e-10
    per_ring_row: float = 8.8e-8
    per_searched_row: float = 2e-9
