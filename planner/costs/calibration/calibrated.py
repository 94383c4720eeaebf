"""The calibrated cost model: CPU seconds of this engine on this machine.

    load ── Work (how often each operation is done per second) ── times Calibration ── Terms

The engine works on columns, so much of its cost is paid per batch, slice and segment, not per row. So a plan
with few rows and many slices is expensive, although it makes few comparisons. ``sluice calibrate`` fits the
constants; the same ``Work`` is counted for the fit and for the prediction.

Two operations that the paper counts cost nothing here. Unions: each pair is written once when it is made,
together with its route, and a query is a view of all pairs. Comparisons of rows with different keys: segments
are sorted by key, and the probing rows (males) are merged with them.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

import numpy as np

from catalog.values.calibration import Calibration
from planner.costs.cost import MARK_BYTES, JoinInput, SliceLoad, Terms, VerdictLoad


@dataclass(frozen=True, slots=True)
class Work:
    """Units of work per second of event time: an attribute for each constant of ``Calibration``, in order.

    Attributes:
        batches: Batches times buckets.
        partitions: Batches times sides.
        filtered_sides: Batches times sides that have filters.
        filter_texts: Batches times distinct filters.
        slices: Batches times buckets times slices of either side.
        segments: Batches times buckets times slices of either side times segments of each slice.
        builds: Segments in which a batch's males find partners.
        build_columns: ``builds`` times result columns.
        packed_rows: Rows read.
        filters: Rows times distinct filters.
        inserted_rows: Rows that enter a chain.
        moved_rows: Rows that move to the next slice.
        males: Males times slices that they probe.
        male_segments: Males times segments that they are merged with.
        matches: Candidate pairs of equal key.
        results: Pairs that serve a query.
        result_values: ``results`` times result columns.
        stored_segments: New segments.
        stored_bytes: Bytes of new segments.
    """

    batches: float = 0.0
    partitions: float = 0.0
    filtered_sides: float = 0.0
    filter_texts: float = 0.0
    slices: float = 0.0
    segments: float = 0.0
    builds: float = 0.0
    build_columns: float = 0.0
    packed_rows: float = 0.0
    filters: float = 0.0
    inserted_rows: float = 0.0
    moved_rows: float = 0.0
    males: float = 0.0
    male_segments: float = 0.0
    matches: float = 0.0
    results: float = 0.0
    result_values: float = 0.0
    stored_segments: float = 0.0
    stored_bytes: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(x + y for x, y in zip(astuple(self), astuple(other), strict=True)))

    def vector(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the units of work in the order of ``CONSTANTS``."""
        return np.array(astuple(self), dtype=np.float64)


#: Divisor that replaces 0 for a slice without segments.
_LEAST = 1e-12
#: Names of the constants, in the order of ``Work``.
CONSTANTS = tuple(f.name for f in fields(Calibration))[: len(fields(Work))]


@dataclass(frozen=True, slots=True)
class CalibratedModel:
    """The calibrated cost model, which prices loads in CPU seconds.

    Attributes:
        constants: CPU seconds per unit of ``Work``.
    """

    constants: Calibration

    def slice_terms(self, load: SliceLoad) -> Terms:
        """Return the cost of a slice."""
        c, w = self.constants, slice_work(load)
        return Terms(
            probe=c.per_male * w.males + c.per_male_segment * w.male_segments + c.per_match * w.matches,
            purge=c.per_moved_row * w.moved_rows,
            route=c.per_build * w.builds
            + c.per_build_column * w.build_columns
            + c.per_result * w.results
            + c.per_result_value * w.result_values,
            system=c.per_slice * w.slices
            + c.per_segment * w.segments
            + c.per_inserted_row * w.inserted_rows
            + c.per_stored_segment * w.stored_segments
            + c.per_stored_byte * w.stored_bytes,
        )

    def input_terms(self, load: JoinInput) -> Terms:
        """Return the cost of a family's work before its slices."""
        c, w = self.constants, input_work(load)
        return Terms(
            filter=c.per_filtered_side * w.filtered_sides
            + c.per_filter_text * w.filter_texts
            + c.per_filter * w.filters,
            system=c.per_batch * w.batches
            + c.per_partition * w.partitions
            + c.per_packed_row * w.packed_rows,
        )

    def verdict_terms(self, load: VerdictLoad) -> Terms:
        """Return the cost of verdicts (decisions whether a row has a match), priced like similar work.

        A mark is priced like a stored row. A verdict, which looks up a row among the marks, is priced like
        the lookup of a male in a segment.
        """
        c = self.constants
        return Terms(
            purge=c.per_male_segment * load.verdicts_per_s,
            route=(c.per_result + c.per_result_value * load.result_columns) * load.given_per_s,
            system=c.per_inserted_row * load.marks_per_s + c.per_stored_byte * MARK_BYTES * load.marks_per_s,
        )


def slice_work(load: SliceLoad) -> Work:
    """Count the work of a slice.

    Args:
        load: Load of one slice, or of many slices at once as arrays.
    """
    turns = load.buckets / load.batch_s
    segments = turns * load.segments
    matches = load.matches_per_s * (1.0 + batch_overlap(load))
    # Partners are spread over the segments at random (Poisson), so a fraction exp(-matches / segments) of the
    # segments has none.
    builds = -segments * np.expm1(-matches / np.maximum(segments, _LEAST))
    return Work(
        slices=turns,
        segments=segments,
        builds=builds,
        build_columns=builds * load.result_columns,
        inserted_rows=load.entering_per_s * load.first,
        moved_rows=load.entering_per_s * (not load.last),
        males=load.males_per_s,
        male_segments=load.males_per_s * load.segments,
        matches=matches,
        results=load.results_per_s,
        result_values=load.results_per_s * load.result_columns,
        stored_segments=load.stored_segments_per_s,
        stored_bytes=load.stored_bytes_per_s,
    )


def input_work(load: JoinInput) -> Work:
    """Count the work that a family has before its slices."""
    per_s = 1.0 / load.batch_s
    return Work(
        batches=per_s * load.buckets,
        partitions=2.0 * per_s,
        filtered_sides=load.filtered_sides * per_s,
        filter_texts=load.filters * per_s,
        packed_rows=load.rows_per_s,
        filters=load.filter_evaluations_per_s,
    )


def batch_overlap(load: SliceLoad) -> float:
    """Return the extra pairs that batches examine, as a fraction of the pairs examined tuple by tuple.

    All males of a batch meet all rows of the batch, whichever came first, and also the rows that are purged
    at the end of the batch. On each side this adds the rows of half a batch.
    """
    return load.first * load.batch_s / (2.0 * (load.w_end_s - load.w_start_s))
