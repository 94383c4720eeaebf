"""Migration of stored rows from the joins of one plan version to the joins of the next, between batches.

If each version has only one join, every segment moves to the new slice that begins where its former slice
began. If there is no such slice, it moves to the last slice that begins earlier. This covers splits, merges,
extensions and truncations of slices. Splits and merges are from the paper (State-Slice, VLDB 2006, §5.3);
extensions and truncations are ours.

    former   [0s, 10s)  s1 s2     [10s, 30s)  s3          merge of both, split at 5s
                  |                    |
                  |        .-----------'                  10s is not a start any more: s3 goes to [5s, 30s)
                  v        v                              s1 and s2 stay at 0s, and the next cross-purge
    next     [0s, 5s)  s1 s2     [5s, 30s)  s3            moves their rows beyond 5s on

If there are several joins, a join that exists in both versions keeps its segments, moved in the same way. Any
other join takes the rows of a side from all former joins, each row once. The rows that it admits enter its
first slice.

Invariant: a row is never in a later slice than the watermarks allow, but it may be in an earlier slice. The
next cross-purge filters the rows in earlier slices and moves them to the slices where they belong.

``lineage.entitlement`` decides which rows a query may use, regardless of which joins hold the rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from catalog.values.plan import JoinPlan
from operators.filters.expressions import evaluate_filters
from operators.join.chain import Chain
from operators.join.compiled_family import CompiledFamily
from operators.join.family_joins import FamilyJoins
from operators.join.nearest import PositionTable
from operators.kernels.keys import Bools, Int64s
from operators.lineage.entitlement import Term, rows_of_terms
from operators.segments.layout import SIDES
from operators.segments.segment import Segment

#: A side's segments in one join, each with the start of its slice, µs.
Held = list[tuple[int, Segment]]
#: Per side: new lineage bits, each with the terms that it replaces. The bit is set on the rows that satisfy
#: one of these terms (``entitlement.settled``).
Marks = dict[str, dict[int, tuple[Term, ...]]]
#: Parts of segments that joins have admitted. A key is the segment's ``id()``, whether each row class is
#: admitted, and the event time after which rows are admitted, or None for rows of all times.
Taken = dict[tuple[int, tuple[bool, ...], int | None], Segment | None]
_NO_MARKS: Mapping[str, Mapping[int, Sequence[Term]]] = MappingProxyType({})
_NO_WATERMARKS: Mapping[str, int | None] = MappingProxyType({})


def migrated(
    former: FamilyJoins,
    family: CompiledFamily,
    activated: frozenset[int],
    marks: Mapping[str, Mapping[int, Sequence[Term]]] = _NO_MARKS,
    watermarks: Mapping[str, int | None] = _NO_WATERMARKS,
) -> FamilyJoins:
    """Return the joins of the next plan version with the rows that its queries may still use.

    Args:
        former: The joins under the version in force.
        family: The family, compiled under the next version.
        activated: Ids of the queries that the next version activates.
        marks: Per side: new lineage bits, each with the terms that it replaces (``Marks``).
        watermarks: Watermark per side at the end of the previous batch, or None before the first row.

    Returns:
        The joins of the next version. Each row is in a slice that starts no later than its former slice.
    """
    following = FamilyJoins.empty(family)
    kept = [
        side
        for side in following.closed
        # Several plan versions may take effect before one batch. One version may end a contract and spread
        # keys over more buckets, and a later one may renew the contract. Then the new buckets of a key lack
        # its closings, so no bucket may keep them.
        if side in former.closed and former.family.plan.replication == family.plan.replication
    ]
    if following.absence is not None and former.absence is not None:
        for side in former.closed.keys() - set(kept):
            # Closings mark the rows of their keys as decided. So before a family loses its closings, it must
            # remove these rows.
            former.purge_closed("b" if side == "a" else "a", all_rows=True)
        following.absence.take_over(former.absence)
    if following.ranked is not None and former.ranked is not None:
        following.ranked.take_over(former.ranked)
    reached = former.opposite_reached(watermarks) if watermarks else watermarks
    _take_waiting(former, following, activated, marks)
    if following.groups is not None and former.groups is not None:
        following.groups.take_over(former.groups)
    for side in kept:
        following.closed[side].take_over(former.closed[side])
    if following.waiting is not None:
        following.waiting.entering = family.finishing_ids
        if former.waiting is not None:
            following.waiting.take_over(former.waiting, family.finishing_ids, kept)
            following.waiting.entering -= former.family.finishing_ids - activated
    for side in SIDES:
        held = _held(former, family, side, activated, marks.get(side, {}))
        pool: list[Segment] | None = None
        taken: Taken = {}
        for chain in following.chains.values():
            source = _continued(former, chain.join.plan, len(following.chains), activated)
            if source is not None:
                _take_over(chain, side, held[source])
                continue
            if pool is None:
                pool = _pooled(segment for rows in held.values() for _, segment in rows)
            passed_us = _passed_us(chain, side, reached)
            for segment in pool:
                # Rows that all windows of the join have left would be purged before they could match.
                if passed_us is None or segment.t_max > passed_us:
                    admitted = _admitted(chain, side, segment, passed_us, taken)
                    if admitted is not None:
                        chain.slices[side][0].segments.append(admitted)
    return following


def _take_waiting(
    former: FamilyJoins,
    following: FamilyJoins,
    activated: frozenset[int],
    marks: Mapping[str, Mapping[int, Sequence[Term]]],
) -> None:
    """Take over rows that wait; open parked rows only if an activated query may use older rows."""
    family = following.family
    asked = any(q.id in activated and q.backfill == "state" for q in family.plan.queries)

    def known(side: str, segments: list[Segment]) -> list[Segment]:
        if own := marks.get(side, {}):
            segments = [_with_marks(s, family.layouts[side].kept(s), own) for s in segments]
        return _with_new_filters(segments, [0] * len(segments), family, side, activated)

    for side, waiting in former.sorting.items():
        following.sorting[side].segments = known(side, waiting.segments)
    for side, parked in former.parked.items():
        if side in following.parked and not asked:
            following.parked[side].take_over(parked)
            continue
        segments = known(side, list(parked.opened()))
        if side in following.parked:
            following.parked[side].load = parked.load
            following.parked[side].tail.segments = segments
            continue
        for chain in following.chains.values():
            for segment in segments:
                _place(chain, side, segment, 0)


def _admitted(
    chain: Chain, side: str, segment: Segment, passed_us: int | None, taken: Taken
) -> Segment | None:
    """Return the rows that a join admits; joins that admit the same rows of a segment share the result.

    Each row is in the state of every join that admits it. But the queries have few distinct filters, so rows
    are copied and stored (``bucket.state.store_segments``) only once per distinct filter.
    """
    admission = chain.join.admission
    if admission is None:
        return chain.admitted(side, segment, after_us=passed_us)
    masks = chain.classes.of(side, segment).masks
    wanted = tuple(m & admission[side].one_of != 0 and m & admission[side].none_of == 0 for m in masks)
    after_us = passed_us if passed_us is not None and segment.t_min <= passed_us else None
    key = (id(segment), wanted, after_us)
    if key not in taken:
        taken[key] = chain.admitted(side, segment, after_us=passed_us)
    return taken[key]


def _continued(former: FamilyJoins, join: JoinPlan, joins: int, activated: frozenset[int]) -> str | None:
    """Return the id of the former join that holds all rows that a join may use, or None if no join does."""
    if joins == 1 and len(former.chains) == 1:
        return next(iter(former.chains))
    if join.id not in former.chains or activated.intersection(join.queries):
        return None
    before = former.chains[join.id].join.plan
    facts = (before.queries, before.partition, before.pulled_up)
    return join.id if facts == (join.queries, join.partition, join.pulled_up) else None


def _passed_us(chain: Chain, side: str, reached: Mapping[str, int | None]) -> int | None:
    """Return the event time up to which a side's rows have left a join, or None if no row has left."""
    opposite_us = reached.get(side)
    return None if opposite_us is None else opposite_us - chain.slices[side][-1].w_end_us


def _take_over(chain: Chain, side: str, held: Held) -> None:
    starts_us = [state.w_start_us for state in chain.slices[side]]
    for start_us, segment in held:
        _place(chain, side, segment, max(0, bisect_right(starts_us, start_us) - 1))


def _place(chain: Chain, side: str, segment: Segment, index: int) -> None:
    admitted = chain.admitted(side, segment)
    if admitted is not None and index:
        admitted = chain.reaching(side, admitted, chain.slices[side][index].reach)
    if admitted is not None:
        chain.slices[side][index].segments.append(admitted)


def _pooled(held: Iterable[Segment]) -> list[Segment]:
    """Return the rows of a side, each row once, although several joins may hold equal copies of it."""
    distinct = {id(segment): segment for segment in held}
    # Take large segments first, so that few segments are cut into pieces.
    segments = sorted(distinct.values(), key=len, reverse=True)
    pool = []
    for segment, new in zip(segments, first_copies([s.pos for s in segments]), strict=True):
        if new.any():
            pool.append(segment if new.all() else segment.filter(new))
    return pool


def first_copies(positions: Sequence[Int64s]) -> list[Bools]:
    """Return, for each array, which positions occur in no earlier array.

    >>> [new.tolist() for new in first_copies([np.array([4, 2]), np.array([2, 7])])]
    [[True, True], [False, True]]

    Args:
        positions: int64[n] each, positions of rows in their source, in any order. No array contains a
            position twice.

    Returns:
        bool[n] for each.
    """
    some = [pos for pos in positions if len(pos)]
    table = PositionTable.covering(some) if some else None
    if table is None:
        return _first_copies_by_sorting(positions) if some else [np.zeros(0, np.bool_) for _ in positions]
    seen = np.zeros(table.size, dtype=np.bool_)
    result = []
    for pos in positions:
        place = table.places(pos)
        result.append(~seen[place])
        seen[place] = True
    return result


def _first_copies_by_sorting(positions: Sequence[Int64s]) -> list[Bools]:
    _, firsts = np.unique(np.concatenate(positions), return_index=True)
    new = np.zeros(sum(map(len, positions)), dtype=np.bool_)
    new[firsts] = True
    return np.split(new, np.cumsum([len(pos) for pos in positions])[:-1])


def _held(
    former: FamilyJoins,
    family: CompiledFamily,
    side: str,
    activated: frozenset[int],
    marks: Mapping[int, Sequence[Term]],
) -> Mapping[str, Held]:
    """Return the rows of a side in each former join, with new lineage bits for new filters and ``marks``.

    A filter gives the same answer for all copies of a row, so it does not matter which copy a join uses.
    """
    states = {join_id: chain.slices[side] for join_id, chain in former.chains.items()}
    before: dict[int, Segment] = {}
    starts_us: dict[int, int] = {}
    for state in (state for slices in states.values() for state in slices):
        for segment in state.segments:
            before[id(segment)] = segment
            starts_us[id(segment)] = min(state.w_start_us, starts_us.get(id(segment), state.w_start_us))
    layout, live = family.layouts[side], family.lineages[side].live
    marked = list(before.values())
    if marks:
        marked = [_with_marks(segment, layout.kept(segment), marks) for segment in marked]
    # If a segment is rewritten anyway, it drops the bits of filters that no query has any more. Without this,
    # rows in unbounded windows would collect the bits of all queries that ever existed.
    known = {
        id(segment): found if found is segment else found.slimmed(live)
        for segment, found in zip(
            before.values(),
            _with_new_filters(marked, list(starts_us.values()), family, side, activated),
            strict=True,
        )
    }
    return {
        join_id: [(state.w_start_us, known[id(s)]) for state in slices for s in state.segments]
        for join_id, slices in states.items()
    }


def _with_marks(segment: Segment, kept: frozenset[str], marks: Mapping[int, Sequence[Term]]) -> Segment:
    """Set each new bit on the rows that satisfy one of its terms; add no bit that would be set on no row."""
    for bit, terms in marks.items():
        rows = rows_of_terms(segment, terms, kept)
        if rows.any():
            segment = segment.with_bit(bit, rows)
    return segment


def _with_new_filters(
    segments: Sequence[Segment],
    starts_us: Sequence[int],
    family: CompiledFamily,
    side: str,
    activated: frozenset[int],
) -> list[Segment]:
    """Evaluate the filters of activated queries on the older rows that these queries may use.

    The watermark has passed the rows of a slice by at least the slice's start. So a query whose window is not
    longer than this start finds no more matches for these rows: they need no bit and are not rewritten. All
    segments that lack the same filters are evaluated in one call, because each call takes milliseconds.
    """
    filters = {f.bit: f for f in (family.plan.filters_a if side == "a" else family.plan.filters_b)}
    wanted: dict[int, int] = {}
    for query in family.plan.queries:
        bit, window_us = (query.filter_a, query.w_a_us) if side == "a" else (query.filter_b, query.w_b_us)
        if bit is not None and query.id in activated and query.backfill == "state":
            wanted[bit] = max(window_us, wanted.get(bit, 0))
    if not wanted:
        return list(segments)
    layout = family.layouts[side]
    lacking: dict[tuple[int, ...], list[int]] = {}
    for number, (segment, start_us) in enumerate(zip(segments, starts_us, strict=True)):
        missing = [
            bit
            for bit, window_us in wanted.items()
            if start_us < window_us
            and bit not in segment.filters
            and layout.kept(segment).issuperset(filters[bit].columns)
        ]
        if missing:
            lacking.setdefault(tuple(missing), []).append(number)
    result = list(segments)
    for lacked, numbers in lacking.items():
        # If no filter reads a column, add one anyway, so that the table has the right number of rows.
        names = {name for bit in lacked for name in filters[bit].columns} or {layout.event_time}
        parts = {name: [layout.read(segments[n], name) for n in numbers] for name in sorted(names)}
        table = pa.table({name: pa.chunked_array(arrays) for name, arrays in parts.items()})
        answers = evaluate_filters(table, [filters[b].sql for b in lacked])
        ends = np.cumsum([len(segments[n]) for n in numbers])
        for bit, passes in zip(lacked, answers, strict=True):
            for number, own in zip(numbers, np.split(passes, ends[:-1]), strict=True):
                result[number] = result[number].with_bit(bit, own)
    return result
