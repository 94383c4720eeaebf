"""Last step of planning: refuse a plan that cannot run or would give wrong results.

A plan that passes goes into the control log, and applying a logged plan never raises. So all assumptions that
the engine makes about a chain are checked here, in the driver, before any process can see the plan version.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

from catalog.steps import (
    is_exchanged,
    is_intermediate,
    made_by,
    makers_again,
    plan_streams,
    taken_intermediates,
)
from catalog.values.plan import ALL_BUCKETS, FamilyPlan, Plan, PlannedQuery, Replication
from catalog.values.stream import Stream
from planner.build.check_joins import check_joins
from planner.build.placement.replication import spread_pairs
from planner.errors import InvalidPlan
from planner.families.families import (
    SIDES,
    SideName,
    family_id,
    family_streams,
    is_theta,
    side_filter,
    side_filters,
    side_stream,
)
from planner.families.filters import first_bit

_T = TypeVar("_T", int, str)


def check_plan(plan: Plan, previous: Plan | None) -> None:
    """Check that a plan is consistent in itself and with the previous version.

    Args:
        plan: The plan to check.
        previous: The previous plan version; None for the first plan.

    Raises:
        InvalidPlan: An invariant is broken; the message names the invariant and the place.
    """
    expected = 1 if previous is None else previous.version + 1
    _require(plan.version == expected, f"plan version is {plan.version}, not {expected}")
    _ascending((s.id for s in plan.streams), "streams")
    _ascending((f.id for f in plan.families), "families")
    _ascending((scope for scope, _ in plan.next_bit), "next_bit")
    _ascending((family for family, _ in plan.departed), "departed")
    whole = (q.id for f in plan.families for q in f.queries if not q.hands_on)
    _ascending(sorted(whole), "query ids of all families")
    taken = taken_intermediates(plan.families)
    made = {each for family in plan.families for each in made_by(family, taken)}
    _check_resting(plan, previous, made)
    for family in plan.families:
        for stream_id in (family.stream_a, family.stream_b):
            known = not is_intermediate(stream_id) or stream_id in made
            _require(known, f'family "{family.id}": it joins pairs that no family makes')
    _check_both_sides(plan)
    streams = plan_streams(plan)
    for family in plan.families:
        _check_family(family, streams)
        for side in SIDES:
            _check_filters(plan, family, side)
        check_joins(family)
    _check_history(plan, previous)


def _check_family(family: FamilyPlan, streams: dict[int, Stream]) -> None:
    where = f'family "{family.id}"'
    derived = family_id(
        family.stream_a,
        family.stream_b,
        family.key,
        absence=family.of_absence,
        groups=family.has_groups,
        clocks=(family.clock_a, family.clock_b),
        spread=family.spread_side,
    )
    _require(
        family.id == derived, f"{where}: id does not follow from streams, key, kind and clocks of queries"
    )
    # In a later step, all buckets of a key have the rows that pairs may meet, and the ranks of these rows.
    # Without a key, all buckets have the ranks of all rows.
    spread_ranks = is_intermediate(family.stream_a) or is_theta(family.id)
    _require(
        not (
            family.counted_sides
            and (family.judges_absence or (family.replication.replicates and not spread_ranks))
        ),
        f"{where}: a window counts rows that are in several buckets or are checked for matches",
    )
    inner = [q.kind == "inner" for q in family.queries]
    _require(not (family.of_absence and any(inner)), f"{where}: inner joins in a family without inner joins")
    for query in family.queries:
        _require(
            (query.kind == "inner") == (not query.preserved),
            f'query "{query.name}": {query.kind} join that preserves {query.preserved}',
        )
    spread = family.spread_side
    _require(
        not (family.judges_absence and family.replication.replicates) or spread is not None,
        f"{where}: partners of a row would be in several buckets",
    )
    _require(
        spread is None or all(q.preserved == (spread,) for q in family.queries),
        f"{where}: rows stored in several buckets would be checked for matches in each of them",
    )
    _require(
        spread is None or family.replication.every == ALL_BUCKETS,
        f"{where}: a new bucket of a key would lack the rows stored in the other buckets",
    )
    grouped = [q.grouping is not None for q in family.queries]
    _require(all(grouped) or not any(grouped), f"{where}: some queries return groups, others pairs")
    _require(
        not (family.has_groups and (family.judges_absence or not family.key)),
        f"{where}: groups without a key, or with outer, semi or anti joins",
    )
    _require(
        not (
            (is_exchanged(family.stream_a) or is_exchanged(family.stream_b)) and family.replication.replicates
        ),
        f"{where}: exchanged pairs would miss the rows stored in a new bucket of their key",
    )
    _require(
        not (family.has_groups and family.replication.replicates),
        f"{where}: pairs of a group would be made in several buckets",
    )
    _require(
        family.stream_a <= family.stream_b or is_intermediate(family.stream_b),
        f"{where}: side a is not the stream with the smaller id",
    )
    _require(len(family.key) == len(family.key_types), f"{where}: key columns and key types differ in number")
    _require(bool(family.queries), f"{where}: no query")
    _ascending((q.id for q in family.queries), f"{where}: queries")
    for side in SIDES:
        stream = streams.get(side_stream(family, side))
        _require(stream is not None, f"{where}: stream {side_stream(family, side)} is not in the plan")
        assert stream is not None
        stored = family.columns_a if side == "a" else family.columns_b
        _require(
            not family.ordered
            or ((stream.order is not None or is_intermediate(stream.id)) and stream.event_time in stored),
            f'{where}: stream "{stream.name}" has no order, or its rows have no event time',
        )
        needed = {c for q in family.queries for c in (q.columns_a if side == "a" else q.columns_b)}
        _require(
            stored == tuple(sorted(needed)),
            f"{where}: columns of {side} differ from those that its queries read",
        )
        unstored = sorted(set(family.carried(side)) - needed)
        _require(not unstored, f"{where}: pairs carry columns {unstored} of {side} that are not stored")
        key = {pair[0 if side == "a" else 1] for pair in family.key}
        read = {c for f in side_filters(family, side).values() for c in f.columns}
        unknown = sorted((needed | key | read) - {c.name for c in stream.columns})
        _require(not unknown, f'{where}: stream "{stream.name}" has no column {unknown}')


def _check_resting(plan: Plan, previous: Plan | None, made: Collection[int]) -> None:
    """Check that pairs can be recomputed: the rows that form them must be stored, in one bucket per key."""
    unrested = [family for family in plan.families if not family.rests]
    for family in unrested:
        kept = family.stream_a in made and not is_exchanged(family.stream_a) and bool(family.key)
        _require(
            kept and not family.ordered, f'family "{family.id}": its rows of side a cannot be recomputed'
        )
    makers = makers_again(plan.families) if unrested else {}
    for maker in makers.values():
        whole = not maker.replication.replicates and not maker.probe.has_rings
        _require(whole, f'family "{maker.id}": pairs are recomputed from rows in rings or in several buckets')
        _require(
            not maker.judges_absence,
            f'family "{maker.id}": pairs are recomputed from rows that are checked for matches',
        )
    rested = {f.id for f in previous.families if f.rests} if previous is not None else set()
    for family in unrested:
        _require(family.id not in rested, f'family "{family.id}": recomputes rows of side a that are stored')


def _check_both_sides(plan: Plan) -> None:
    """Check families that join pairs with pairs: each key must have one bucket, so that its pairs meet."""
    for family in plan.families:
        possible = is_intermediate(family.stream_a) and family.key and family.rests
        _require(
            not is_intermediate(family.stream_b) or bool(possible),
            f'family "{family.id}": its side b cannot be pairs of another step',
        )
    for family, spread in spread_pairs(plan.families):
        raise InvalidPlan(f'family "{family.id}": rows of a key of "{spread.id}" are in several buckets')


def _check_filters(plan: Plan, family: FamilyPlan, side: SideName) -> None:
    where = f'family "{family.id}", filters of {side}'
    filters = family.filters_a if side == "a" else family.filters_b
    _ascending((f.bit for f in filters), where)
    _ascending(sorted(f.sql for f in filters), f"{where}: predicates")
    used = {bit for q in family.queries if (bit := side_filter(q, side)) is not None}
    _require(used == {f.bit for f in filters}, f"{where}: bits differ from the bits that its queries use")
    free = first_bit(dict(plan.next_bit), f"{family.id}/{side}")
    _require(all(0 <= f.bit < free for f in filters), f"{where}: a bit is not below next_bit {free}")


def _check_history(plan: Plan, previous: Plan | None) -> None:
    """Check that bits, activations, streams and buckets of keys are kept, as stored rows depend on them."""
    if previous is None:
        previous = Plan(0, plan.strategy, (), ())
    lost = {s.id for s in previous.streams} - {s.id for s in plan.streams}
    _require(not lost, f"streams {sorted(lost)} were used before and are gone")
    free = dict(plan.next_bit)
    for scope, bit in previous.next_bit:
        _require(first_bit(free, scope) >= bit, f"next_bit of {scope} has decreased")
    replications, flowing = plan.replications(), {s.id for s in plan.streams}
    for name, former in previous.replications().items():
        if flowing.issuperset(family_streams(name)):
            now = replications.get(name, Replication())
            _require(now == now.grown(former), f'family "{name}": a key lost fragments')
    before = {f.id: f for f in previous.families}
    for family in plan.families:
        for side in SIDES:
            _check_bits_kept(family, before.get(family.id), side, dict(previous.next_bit))
    came: list[tuple[PlannedQuery, tuple[object, ...]]] = []
    for family in plan.families:
        old = before.get(family.id)
        was = {} if old is None else {q.id: q for q in old.queries}
        # Most queries, of which there may be ten thousand, are the same objects as in the previous plan. They
        # need no check: their properties are the same, and so are the filters of their bits.
        came += _meanings(family, [q for q in family.queries if was.get(q.id) is not q])
    ids = {query.id for query, _ in came}
    since: dict[int, int] = {}
    # A query of several steps has one tuple of properties (``_meanings``) per step, in the step's family.
    meaning: dict[int, set[tuple[object, ...]]] = {}
    for former_family in previous.families:
        for query, means in _meanings(former_family, [q for q in former_family.queries if q.id in ids]):
            since[query.id] = query.since_version
            meaning.setdefault(query.id, set()).add(means)
    for query, means in came:
        expected = since.get(query.id, plan.version)
        _require(query.since_version == expected, f'query "{query.name}": active since {expected}')
        # A query may not change under its id, because stored rows and routes refer to the query by this id.
        _require(
            means in meaning.get(query.id, {means}),
            f'query "{query.name}": key, window or filter changed under the same id {query.id}',
        )


def _check_bits_kept(
    family: FamilyPlan, before: FamilyPlan | None, side: SideName, next_bit: dict[str, int]
) -> None:
    where = f'family "{family.id}", filters of {side}'
    old = {f.sql: f.bit for f in side_filters(before, side).values()} if before is not None else {}
    first = first_bit(next_bit, f"{family.id}/{side}")
    for planned in side_filters(family, side).values():
        if planned.sql in old:
            _require(planned.bit == old[planned.sql], f"{where}: {planned.sql} changed its bit")
        else:
            _require(planned.bit >= first, f"{where}: bit {planned.bit} was assigned before")


def _meanings(
    family: FamilyPlan, queries: Iterable[PlannedQuery]
) -> Iterator[tuple[PlannedQuery, tuple[object, ...]]]:
    """Yield each query of a family with the properties that must not change under its id."""
    sql_a = {f.bit: f.sql for f in family.filters_a}
    sql_b = {f.bit: f.sql for f in family.filters_b}
    for q in queries:
        filter_a = None if q.filter_a is None else sql_a[q.filter_a]
        filter_b = None if q.filter_b is None else sql_b[q.filter_b]
        yield q, (family.id, q.w_a_us, q.w_b_us, filter_a, filter_b, q.kind, q.preserved, q.grouping)


def _ascending(values: Iterable[_T], what: str) -> None:
    """Require strictly ascending order, which makes the values unique too."""
    for left, right in itertools.pairwise(values):
        _require(left < right, f"{what}: {left!r} stands before {right!r}")


def _require(holds: bool, primary: str) -> None:
    if not holds:
        raise InvalidPlan(primary)
