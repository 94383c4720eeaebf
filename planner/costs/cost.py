"""Cost of a plan: the terms that add up to it, and the loads that a cost model prices.

    Profile ── rates ── FamilyRates ── loads ── SliceLoad, JoinInput ── CostModel ── Terms ── Cost

A load is the expected work: how often each operation is done per second of event time. It does not depend on
the model. A model gives each operation a price: comparisons in the paper's model, CPU seconds in the
calibrated one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import add, attrgetter
from typing import Literal, Protocol

from planner.costs.rates import Floats
from planner.families.families import SideName

CostModelName = Literal["paper", "calibrated"]
#: Encoded bytes of a mark, which records a row's nearest match: position, event time and two distances.
MARK_BYTES = 16.0


@dataclass(frozen=True, slots=True)
class Terms:
    """CPU cost per second of event time by purpose, in the unit of its model.

    Attributes:
        probe: Looking for partners in the slices.
        purge: Finding and moving the rows that have left a slice.
        route: Deciding to which queries a pair belongs, and emitting the pair.
        union: Merging a query's pairs from several slices or joins.
        filter: Testing rows and pairs against selections, including the test that splits a stream.
        system: Fixed cost of each operator.
    """

    probe: float = 0.0
    purge: float = 0.0
    route: float = 0.0
    union: float = 0.0
    filter: float = 0.0
    system: float = 0.0

    @property
    def total(self) -> float:
        """Sum of all terms."""
        return self.probe + self.purge + self.route + self.union + self.filter + self.system

    def __add__(self, other: Terms) -> Terms:
        return Terms(*map(add, _values(self), _values(other)))


#: Function that returns the values of all terms; ``astuple`` would copy each value.
_values = attrgetter(*(term.name for term in fields(Terms)))


@dataclass(frozen=True, slots=True)
class SliceLoad:
    """Expected work of one slice of one side; rates are per second of event time.

    All values depend on the start and end of the slice, never on neighbouring slices. So the cost of a chain
    is the length of a path over boundaries. The work of a filter between two slices belongs to the slice that
    rows leave.

    The amounts (floats and counts) may be arrays of equal shape: ``cpu_opt`` prices all slices that start at
    one boundary at once. So a model uses only arithmetic and ``np.maximum``, and branches only on ``side``,
    ``first`` and ``last``.

    Attributes:
        side: Side whose rows the slice holds.
        w_start_s: Start of its window, seconds.
        w_end_s: End of its window, seconds; capped for unbounded windows.
        first: Whether rows enter the join in this slice (inserted), rather than move in from the previous
            slice (moved).
        last: Whether rows leave the chain after this slice (purged).
        judged_per_s: Rows that a filter tests: when they leave, if the next slice has a different filter, and
            when they enter, if the first slice has a filter.
        entering_per_s: Rows that enter.
        held_rows: Rows held.
        held_bytes: Encoded bytes of the rows held.
        chain_males_per_s: Opposite rows (rows of the other side) that enter the join.
        males_per_s: Opposite rows that probe the slice.
        candidates_per_s: Males times rows held: the comparisons of nested loops.
        matches_per_s: Candidates of equal key.
        results_per_s: Matches that serve at least one query, before residuals are tested.
        boundaries: Number of distinct windows that end strictly inside the slice, so that pairs are routed.
        judged_results_per_s: Evaluations of queries' selections on matches (the cost of selection pull-up).
        unions: Number of queries whose window ends in this slice and that also use earlier slices.
        batch_s: Event time that a batch covers, seconds.
        buckets: Number of buckets of the job.
        segments: Number of segments held in one bucket (``planner.costs.loads.segments``), which the engine
            probes one by one.
        stored_segments_per_s: New segments encoded and stored: of arriving rows, of filtered rows and of
            merged segments.
        stored_bytes_per_s: Bytes of new segments.
        result_columns: Number of columns that a joined pair carries.
    """

    side: SideName
    w_start_s: float
    w_end_s: float
    first: bool
    last: bool
    judged_per_s: float
    entering_per_s: float
    held_rows: float
    held_bytes: float
    chain_males_per_s: float
    males_per_s: float
    candidates_per_s: float
    matches_per_s: float
    results_per_s: float
    boundaries: int
    judged_results_per_s: float
    unions: int
    batch_s: float
    buckets: int
    segments: float = 0.0
    stored_segments_per_s: float = 0.0
    stored_bytes_per_s: float = 0.0
    result_columns: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SearchLoads:
    """Expected work of searching the slices of one side, per second of event time (``SliceLoad``).

    Attributes:
        males_per_s: Opposite rows that probe each slice, float64.
        segments: Number of segments of each slice in one bucket.
        candidates_per_s: Males times rows held.
        matches_per_s: Candidates of equal key.
        inserted_per_s: Rows that enter the first slice.
    """

    males_per_s: Floats
    segments: Floats
    candidates_per_s: Floats
    matches_per_s: Floats
    inserted_per_s: float


@dataclass(frozen=True, slots=True)
class JoinInput:
    """Expected work of a family before and after its slices, counted once for all its joins.

    Attributes:
        rows_per_s: Rows of both sides that are read.
        filter_evaluations_per_s: Rows times distinct filters; each filter is evaluated once for all joins
            (lineage).
        split_per_s: Rows tested to split a stream among joins (stream partition), times distinct filters.
        private_filters_per_s: Rows tested against each query's own filters before the query's own join
            (unshared).
        merged_per_s: Pairs that are merged for queries whose pairs several joins make.
        batch_s: Event time that a batch covers, seconds.
        buckets: Number of buckets of the job.
        filters: Number of distinct filters of both sides; each filter is evaluated on every batch.
        filtered_sides: Number of sides that have filters.
    """

    rows_per_s: float
    filter_evaluations_per_s: float
    split_per_s: float
    private_filters_per_s: float
    merged_per_s: float
    batch_s: float
    buckets: int
    filters: int = 0
    filtered_sides: int = 0


@dataclass(frozen=True, slots=True)
class VerdictLoad:
    """Expected work of verdicts (decisions whether a row has a match), per second of event time.

    Attributes:
        marks_per_s: Marks that are stored: a row gets a mark whenever it gets a nearer match.
        marks_held: Number of marks held.
        verdicts_per_s: Rows times distinct windows; a verdict is due whenever a window has passed a row.
        given_per_s: Single rows, rather than pairs, that are stored as results.
        result_columns: Number of columns of a row that is stored as a result.
    """

    marks_per_s: float = 0.0
    marks_held: float = 0.0
    verdicts_per_s: float = 0.0
    given_per_s: float = 0.0
    result_columns: int = 0

    @property
    def marks_bytes(self) -> float:
        """Encoded bytes of the marks held."""
        return self.marks_held * MARK_BYTES


class CostModel(Protocol):
    """Model that computes the cost of loads."""

    def slice_terms(self, load: SliceLoad) -> Terms:
        """Return the cost of a slice."""
        ...

    def input_terms(self, load: JoinInput) -> Terms:
        """Return the cost of a family's work before and after its slices."""
        ...

    def verdict_terms(self, load: VerdictLoad) -> Terms:
        """Return the cost of the verdicts (decisions whether a row has a match)."""
        ...


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a family under one strategy or chain.

    Attributes:
        memory_rows: Rows held.
        memory_bytes: Encoded bytes of the rows held.
        comparisons: Terms of the paper's model, comparisons per second of event time.
        cpu_s: Terms of the calibrated model, CPU seconds per second of event time.
    """

    memory_rows: float
    memory_bytes: float
    comparisons: Terms
    cpu_s: Terms
