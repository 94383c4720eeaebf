"""A family compiled under one plan version: everything that its joins compute once, before they see rows.

    CompiledFamily   layouts, lineages, terms of older rows         shared by all joins of the family
      CompiledJoin   queries, admission per side, slices, routes    one per join of the plan

Queries are numbered by their index in the family's plan, even in a join that serves only some of them. So a
set of queries has the same meaning in every join, and rows are classified once for all joins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import or_
from typing import Literal

from catalog.steps import is_intermediate
from catalog.values.plan import FamilyPlan, JoinPlan, PlannedQuery
from catalog.values.policies.probe import Probe
from catalog.values.query import UNBOUNDED_US
from catalog.values.stream import Stream
from operators.closings.contract import SideContract, side_contract
from operators.groups.compiled_groups import CompiledGroups, compile_groups
from operators.join.absence_classes import CompiledAbsence, compile_absence
from operators.join.pairs import PairBuilder, residual_sets
from operators.kernels.fragments import Fragments
from operators.kernels.keys import Int64s
from operators.lineage.entitlement import Term
from operators.lineage.lineage import SideLineage, query_set, side_lineage
from operators.lineage.routes import query_keys, router
from operators.segments.layout import SIDES, SideLayout, side_layout
from operators.slices.candidates import BandProbe, Reach
from operators.slices.sliced_join import SliceState
from operators.steps.expiry import Expiry, expiry_of

#: A segment may straddle a slice boundary if its span is at most the join's largest window divided by this.
SLACK_DIVISOR = 40

Terms = Mapping[int, tuple[Term, ...]]


@dataclass(frozen=True, slots=True)
class Admissible:
    """Rule that decides by the queries that a row may serve whether a join admits the row.

    Attributes:
        one_of: Set of queries. A row must be able to serve at least one of them.
        none_of: Set of queries. A row that may serve one of them is not admitted, because it belongs to the
            other half of a stream partition.
    """

    one_of: int
    none_of: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class CompiledJoin:
    """One join of a family.

    Attributes:
        plan: The join's part of the plan.
        admission: Rule for the rows that the join admits, per side, or None if it admits all rows (selection
            pull-up).
        reaches: Per side and slice: the set of the queries that use the slice.
        builder: Builds the joined pairs, for this join's queries only.
        slacks: Per side: maximum span, on the side's clock, of a segment that is never split.
        lazy_ends: Per side and slice: whether the end of the slice is lazy (``slices.sliced_join``).
        probe: Method by which the slices are searched.
        band: Finds pairs by a band condition, or None if the join has a key or no band condition.
        expiries: For each side whose rows are those of an intermediate: the rule by which they expire.
        again: Builds pairs for the next step again from stored rows, or None if the join passes no pairs to a
            next step.
    """

    plan: JoinPlan
    admission: Mapping[str, Admissible] | None
    reaches: Mapping[str, tuple[int, ...]]
    builder: PairBuilder
    slacks: Mapping[str, int]
    lazy_ends: Mapping[str, tuple[bool, ...]]
    probe: Probe
    band: BandProbe | None = None
    expiries: Mapping[str, Expiry] = field(default_factory=dict)
    again: PairBuilder | None = None

    def slices(self, side: str) -> list[SliceState]:
        """Return new slices for a side, without rows."""
        chain = self.plan.chain_a if side == "a" else self.plan.chain_b
        return [
            SliceState(piece.w_start_us, piece.w_end_us, reach)
            for piece, reach in zip(chain, self.reaches[side], strict=True)
        ]

    def reach(self, side: str) -> Reach:
        """Return the maximum distance between females of a side and the males that probe them."""
        bounds = self.builder.router
        own, other = (bounds.bounds_a, bounds.bounds_b) if side == "a" else (bounds.bounds_b, bounds.bounds_a)
        return Reach(int(own[-1]), int(other[-1]))


@dataclass(frozen=True, slots=True, eq=False)
class CompiledFamily:
    """A family with all its joins.

    Attributes:
        plan: The family's part of the plan.
        version: Plan version.
        layouts: Stored columns per side.
        lineages: Per side: the rule that turns lineage bits into the queries that a row may serve.
        joins: Joins in plan order.
        terms: Conditions under which a query may use rows from before its activation
            (``operators.lineage.entitlement``), per side and query id.
        fragments: Rule for the buckets in which rows are stored.
        absence: Outer, semi and anti joins of the family, or None if all its joins are inner.
        contracts: Rules by which keys are closed, for each side whose stream has a contract.
        groups: GROUP BY queries of the family, or None if its results are pairs.
        finishing: Numbers of the queries that must learn when keys are finished: queries with result
            punctuations, or with groups that wait for finished keys.
    """

    plan: FamilyPlan
    version: int
    layouts: Mapping[str, SideLayout]
    lineages: Mapping[str, SideLineage]
    joins: tuple[CompiledJoin, ...]
    terms: Mapping[str, Terms]
    fragments: Fragments
    absence: CompiledAbsence | None
    contracts: Mapping[str, SideContract]
    groups: CompiledGroups | None
    finishing: tuple[int, ...] = ()

    @property
    def finishing_ids(self) -> frozenset[int]:
        """Ids of the queries that must learn when keys are finished (``finishing``)."""
        return frozenset(self.plan.queries[number].id for number in self.finishing)


def compile_family(
    family: FamilyPlan,
    version: int,
    streams: Mapping[int, Stream],
    terms: Mapping[str, Terms],
    slack_us: int | None = None,
) -> CompiledFamily:
    """Compile a family of a plan version.

    Args:
        family: The family.
        version: Plan version in force.
        streams: Streams by id.
        terms: Conditions under which a query may use rows from before its activation
            (``operators.lineage.entitlement``), per side and query id.
        slack_us: Slack that replaces the slack of all joins, µs, or None. With 0, segments are split exactly
            at every slice boundary.
    """
    ids = {"a": family.stream_a, "b": family.stream_b}
    layouts = {side: side_layout(family, side, streams[ids[side]]) for side in SIDES}
    numbers = {q.id: number for number, q in enumerate(family.queries)}
    keys = query_keys(list(numbers))
    absence = compile_absence(family, keys)
    silent = absence.silent if absence is not None else 0
    return CompiledFamily(
        plan=family,
        version=version,
        layouts=layouts,
        lineages={side: side_lineage(family, side, terms[side]) for side in SIDES},
        joins=tuple(
            _compile_join(family, join, layouts, numbers, keys, slack_us, silent) for join in family.joins
        ),
        terms=terms,
        fragments=Fragments.of(family.replication),
        absence=absence,
        contracts={
            side: contract
            for side in SIDES
            if (contract := side_contract(family, side, streams[ids[side]])) is not None
        },
        groups=compile_groups(family),
        finishing=tuple(
            number
            for number, q in enumerate(family.queries)
            if q.announces or (q.grouping is not None and q.grouping.tumble_us is None)
        ),
    )


def _compile_join(
    family: FamilyPlan,
    join: JoinPlan,
    layouts: Mapping[str, SideLayout],
    numbers: Mapping[int, int],
    keys: Int64s,
    slack_us: int | None,
    silent: int,
) -> CompiledJoin:
    members = [numbers[i] for i in join.queries]
    queries = [family.queries[number] for number in members]
    handing = [number for number in members if family.queries[number].hands_on]
    streams = {"a": family.stream_a, "b": family.stream_b}
    combined = tuple(side for side in SIDES if is_intermediate(streams[side]))

    def builder(members: Sequence[int]) -> PairBuilder:
        """Return a builder for the pairs of some queries."""
        residual = [family.queries[number] for number in members if family.queries[number].residual]
        ends_us = ([s.w_end_us for s in join.chain_a], [s.w_end_us for s in join.chain_b])
        return PairBuilder(
            layouts["a"],
            layouts["b"],
            family.carried("a"),
            family.carried("b"),
            router(family, members, keys, ends_us),
            residual_sets(family, members),
            tuple(sorted({c for q in residual for c in q.columns_a})),
            tuple(sorted({c for q in residual for c in q.columns_b})),
            silent,
            query_set(handing),
            combined,
            family.counted_sides,
        )

    return CompiledJoin(
        plan=join,
        admission=None if join.pulled_up else _admission(join, numbers),
        reaches={"a": _reaches(family, join, "a", numbers), "b": _reaches(family, join, "b", numbers)},
        builder=builder(members),
        slacks=_slacks(family, queries) if slack_us is None else dict.fromkeys(SIDES, slack_us),
        lazy_ends={"a": family.lazy_ends(join, "a"), "b": family.lazy_ends(join, "b")},
        band=None if family.band is None else BandProbe(family.band, layouts),
        probe=family.probe,
        expiries={} if family.ordered else {side: expiry_of(family, side) for side in combined},
        again=builder(handing) if handing else None,
    )


def _reaches(
    family: FamilyPlan, join: JoinPlan, side: Literal["a", "b"], numbers: Mapping[int, int]
) -> tuple[int, ...]:
    """Return, for each slice of a side, the set of queries that use the slice."""
    last: list[list[int]] = [[] for _ in (join.chain_a if side == "a" else join.chain_b)]
    for query, slices in family.slices_reached(join, side):
        last[slices - 1].append(numbers[query.id])
    # Sets are accumulated from the last slice to the first, since every query uses all slices before its last
    # one.
    sets = accumulate(map(query_set, reversed(last)), or_)
    return tuple(sets)[::-1]


def _admission(join: JoinPlan, numbers: Mapping[int, int]) -> dict[str, Admissible]:
    admission = {side: Admissible(query_set([numbers[i] for i in join.queries])) for side in SIDES}
    split = join.partition
    if split is not None:
        one_of, none_of = (query_set([numbers[i] for i in ids]) for ids in (split.one_of, split.none_of))
        admission[split.side] = Admissible(one_of, none_of)
    return admission


def _slacks(family: FamilyPlan, queries: list[PlannedQuery]) -> dict[str, int]:
    """Return the slack per side, a fraction of the largest window.

    If the family has windows of rows, each side has a clock of its own, so only the side's own windows count.
    """
    windows = {"a": [q.w_a_us for q in queries], "b": [q.w_b_us for q in queries]}
    if not family.counted_sides:
        windows = dict.fromkeys(SIDES, windows["a"] + windows["b"])
    finite = {side: [w for w in windows[side] if w < UNBOUNDED_US] for side in SIDES}
    return {side: max(finite[side], default=0) // SLACK_DIVISOR for side in SIDES}
