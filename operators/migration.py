"""From one plan version's joins to the next one's, between two batches, on the state in place (§5.3).

    one join -> one join       every segment goes to the slice that its former slice became (or to an earlier
                               one); split, merge, extend and truncate are all of them this
    a join that stays          the same: its segments stay where they are
    any other join             the rows of the side, from all former joins, each once; those that the join
                               admits enter its first slice

Either way the next cross-purge moves rows on to where they belong, and filters them on the way: what a slice
holds must never be deeper in the chain than the watermarks have come, but may well be less deep.

Which rows a query may use is not decided here: a query is entitled to rows by ``operators.entitlement``,
whatever joins the rows rest in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from catalog.values.plan import JoinPlan
from operators.chain import Chain
from operators.compiled_family import CompiledFamily
from operators.expressions import evaluate_filters
from operators.family_joins import FamilyJoins
from operators.layout import SIDES
from operators.segment import Segment

#: A side's segments in one join, each with the start of the slice that holds it.
Held = list[tuple[int, Segment]]


def migrated(former: FamilyJoins, family: CompiledFamily, activated: frozenset[int]) -> FamilyJoins:
    """Return the joins of the next plan version with the rows that its queries may still use.

    Args:
        former: The joins under the version in force.
        family: The family under the next version.
        activated: Ids of the queries that the next version activates.

    Returns:
        Joins whose rows lie in slices that start no later than the ones they come from.
    """
    following = FamilyJoins.empty(family)
    for side in SIDES:
        held = _held(former, family, side, activated)
        pool: list[Segment] | None = None
        for chain in following.chains.values():
            source = _continued(former, chain.join.plan, len(following.chains), activated)
            if source is not None:
                _take_over(chain, side, held[source])
                continue
            if pool is None:
                pool = _pooled(segment for rows in held.values() for _, segment in rows)
            for segment in pool:
                _place(chain, side, segment, 0)
    return following


def _continued(former: FamilyJoins, join: JoinPlan, joins: int, activated: frozenset[int]) -> str | None:
    """Return the id of the former join that alone holds all rows the join may use, or None."""
    if joins == 1 and len(former.chains) == 1:
        return next(iter(former.chains))
    if join.id not in former.chains or activated.intersection(join.queries):
        return None
    before = former.chains[join.id].join.plan
    facts = (before.queries, before.partition, before.pulled_up)
    return join.id if facts == (join.queries, join.partition, join.pulled_up) else None


def _take_over(chain: Chain, side: str, held: Held) -> None:
    for start_us, segment in held:
        index = max((i for i, s in enumerate(chain.slices[side]) if s.w_start_us <= start_us), default=0)
        _place(chain, side, segment, index)


def _place(chain: Chain, side: str, segment: Segment, index: int) -> None:
    admitted = chain.admitted(side, segment)
    if admitted is not None and index:
        admitted = chain.reaching(side, admitted, chain.slices[side][index].reach)
    if admitted is not None:
        chain.slices[side][index].segments.append(admitted)


def _pooled(held: Iterable[Segment]) -> list[Segment]:
    """Return the rows of a side, each once: copies of a row are alike, whichever join held them."""
    distinct = {id(segment): segment for segment in held}
    # Large ones first, so that few are cut into pieces.
    segments = sorted(distinct.values(), key=len, reverse=True)
    if not segments:
        return []
    _, firsts = np.unique(np.concatenate([s.pos for s in segments]), return_index=True)
    new = np.zeros(sum(len(s) for s in segments), dtype=np.bool_)
    new[firsts] = True
    pool, start = [], 0
    for segment in segments:
        own = new[start : start + len(segment)]
        start += len(segment)
        if own.any():
            pool.append(segment if own.all() else segment.filter(own))
    return pool


def _held(
    former: FamilyJoins, family: CompiledFamily, side: str, activated: frozenset[int]
) -> Mapping[str, Held]:
    """Return what each former join holds of a side, with the filters that its rows did not know.

    All copies of a row get the same answers, so that it does not matter which of them is taken.
    """
    known: dict[int, Segment] = {}
    held: dict[str, Held] = {}
    for join_id, chain in former.chains.items():
        rows = held[join_id] = []
        for state in chain.slices[side]:
            for segment in state.segments:
                if id(segment) not in known:
                    known[id(segment)] = _with_new_filters(segment, family, side, activated)
                rows.append((state.w_start_us, known[id(segment)]))
    return held


def _with_new_filters(
    segment: Segment, family: CompiledFamily, side: str, activated: frozenset[int]
) -> Segment:
    """Evaluate on old rows the filters of queries that may use them and that these rows do not know."""
    filters = {f.bit: f for f in (family.plan.filters_a if side == "a" else family.plan.filters_b)}
    layout = family.layouts[side]
    kept = layout.kept(segment)
    for query in family.plan.queries:
        bit = query.filter_a if side == "a" else query.filter_b
        if query.id not in activated or query.backfill != "state" or bit is None:
            continue
        if bit not in segment.known_bits and set(filters[bit].columns) <= kept:
            # The event time is there for a filter that reads no column: the table must have the rows.
            names = {layout.event_time, *filters[bit].columns}
            table = pa.table({name: layout.read(segment, name) for name in sorted(names)})
            segment = segment.with_bit(bit, evaluate_filters(table, [filters[bit].sql])[0])
    return segment
