"""Families: queries over the same two streams and the same join key (or none), planned together.

A family is the input of a strategy: its queries with their windows and lineage bits, but no join yet.
Its queries are sorted by id and its filters by bit, so the same queries give the same family in any order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from catalog.steps import steps
from catalog.values.plan import FamilyPlan, JoinPlan, PlannedFilter, PlannedQuery, Slice
from catalog.values.query import Clock, Query

SideName = Literal["a", "b"]

#: Both sides, in the order in which all code handles them.
SIDES: tuple[SideName, SideName] = ("a", "b")

#: Placeholder for the key in the id of a family without one.
_THETA = "theta"


@dataclass(frozen=True, slots=True)
class Family:
    """Queries over one pair of streams and one join key, before a strategy has chosen their joins.

    Attributes:
        id: Derived from streams and key (``family_id``).
        queries: Queries, sorted by id.
        filters_a: Distinct filters of a, sorted by lineage bit.
        filters_b: Distinct filters of b, sorted by lineage bit.
    """

    id: str
    queries: tuple[PlannedQuery, ...]
    filters_a: tuple[PlannedFilter, ...]
    filters_b: tuple[PlannedFilter, ...]

    @property
    def spreads(self) -> bool:
        """Return whether the rows checked for matches are divided among a key's buckets (``family_id``)."""
        return self.id.endswith(("-absence-a", "-absence-b"))


def planned_query(
    query: Query, filter_a: int | None, filter_b: int | None, since_version: int
) -> PlannedQuery:
    """Return a query in the form in which its family stores it.

    Args:
        query: A bound query.
        filter_a: Lineage bit of the query's filter on a, or None without a filter.
        filter_b: Lineage bit of the query's filter on b, or None without a filter.
        since_version: Plan version that activates the query.
    """
    return PlannedQuery(
        id=query.id,
        name=query.name,
        w_a_us=query.a.window_us,
        w_b_us=query.b.window_us,
        filter_a=filter_a,
        filter_b=filter_b,
        residual=query.residual,
        columns_a=tuple(sorted(query.a.columns)),
        columns_b=tuple(sorted(query.b.columns)),
        outputs=query.outputs,
        since_version=since_version,
        backfill=query.backfill,
        kind=query.kind,
        preserved=query.preserved,
        grouping=query.grouping,
        hands_on=query.hands_on,
        expires_a=query.a.expires,
        expires_b=query.b.expires,
    )


def families(queries: Iterable[Query]) -> dict[str, tuple[Query, ...]]:
    """Group queries into families.

    Args:
        queries: Bound queries in any order.

    Returns:
        Queries by family id; families are sorted by id, and so are the queries of a family. A join of more
        than two streams is in the families of all its steps.
    """
    grouped: dict[str, list[Query]] = {}
    for query in sorted(queries, key=lambda q: q.id):
        for step in steps(query):
            grouped.setdefault(family_of(step), []).append(step)
    return {family: tuple(grouped[family]) for family in sorted(grouped)}


def family_of(query: Query) -> str:
    """Return the id of the family that makes a query's results: the family of its last step."""
    return family_id(
        query.a.stream_id,
        query.b.stream_id,
        query.key,
        absence=is_apart(query),
        groups=query.grouping is not None,
        clocks=(query.a.clock, query.b.clock),
        spread=spread_side(query),
    )


def is_apart(query: Query) -> bool:
    """Return whether a query is an outer, semi or anti join in a family without inner joins."""
    return query.kind != "inner" and not query.beside_inner


def spread_side(query: Query) -> SideName | None:
    """Return the side whose rows of a key are divided among several buckets, or None if no side is."""
    return query.preserved[0] if query.spreads else None


# Cached: every change of queries calls it for all queries, which belong to few families.
@lru_cache(maxsize=1 << 10)
def family_id(
    stream_a: int,
    stream_b: int,
    key: tuple[tuple[str, str], ...],
    *,
    absence: bool = False,
    groups: bool = False,
    clocks: tuple[Clock, Clock] = ("time", "time"),
    spread: SideName | None = None,
) -> str:
    """Return the id of a family, the same in every version and process.

    An outer, semi or anti join checks rows for matches, and all partners of such a row must be in one bucket.
    But inner joins may spread the rows of a key over several buckets, whose number only grows. So outer, semi
    and anti joins have their own family, unless each key of the inner joins has one bucket. The family of
    such a query is chosen when the query enters (``planner.build.placement.place_query``). Queries that
    divide the checked rows among buckets have one family per checked side, because all these buckets store
    the rows of the other side, and each of them would check these rows. Queries whose results are groups have
    their own family, because all pairs of a group must be in one bucket. Queries whose windows are measured
    by another clock than time have their own family, because a slice has one clock.

    Args:
        stream_a: Stream id of side a.
        stream_b: Stream id of side b.
        key: Key columns as (of a, of b), in canonical order; empty for joins without an equal key.
        absence: Whether the family can only have outer, semi and anti joins.
        groups: Whether the results of the family's queries are groups of pairs.
        clocks: Clocks that measure the windows of a and of b.
        spread: Side whose rows are checked for matches and divided among the buckets of their key; only for
            families of outer, semi and anti joins.

    Returns:
        ``s<a>s<b>-`` and 8 hexadecimal digits of the key's digest, or ``theta`` without a key. If a stream is
        an intermediate, whose id is negative (``catalog.steps``), ``d`` replaces ``s`` and the sign.

    >>> family_id(1, 2, (("k", "k"),)), family_id(1, 2, (("k", "k"),), absence=True), family_id(1, 2, ())
    ('s1s2-52383a8d', 's1s2-52383a8d-absence', 's1s2-theta')
    >>> family_id(1, 2, (("k", "k"),), clocks=("rows", "time"))
    's1s2-52383a8d-rows-a'
    >>> family_id(1, 2, (("k", "k"),), absence=True, spread="b")
    's1s2-52383a8d-absence-b'
    """
    digest = hashlib.sha256(json.dumps(key, ensure_ascii=False).encode()).hexdigest()[:8] if key else _THETA
    counted = [f"-{c.replace(' ', '')}-{s}" for s, c in zip(SIDES, clocks, strict=True) if c != "time"]
    kind = "-absence" if absence else "-groups" if groups else ""
    kind += f"-{spread}" if spread else ""
    streams = f"s{stream_a}s{stream_b}".replace("s-", "d")
    return f"{streams}-{digest}{kind}{''.join(counted)}"


def is_theta(family: str) -> bool:
    """Return whether the joins of a family have no key, given its id.

    >>> is_theta("s1s2-theta"), is_theta("s1s2-theta-absence"), is_theta("s1s2-52383a8d")
    (True, True, False)
    """
    return family.split("-")[1] == _THETA


def family_clocks(family: str) -> tuple[Clock, Clock]:
    """Return the clocks that measure the windows of a and of b, given the family's id.

    >>> family_clocks("s1s2-52383a8d"), family_clocks("s1s2-52383a8d-keyrows-a-rows-b")
    (('time', 'time'), ('key rows', 'rows'))
    >>> family_clocks("s1s2-52383a8d-order-a-order-b")
    ('order', 'order')
    """
    found = [_clock(family, side) for side in SIDES]
    return found[0], found[1]


def _clock(family: str, side: SideName) -> Clock:
    if f"-keyrows-{side}" in family:
        return "key rows"
    if f"-order-{side}" in family:
        return "order"
    return "rows" if f"-rows-{side}" in family else "time"


def family_streams(family: str) -> tuple[int, int]:
    """Return the stream ids that a family's id names.

    >>> family_streams("s1s12-52383a8d"), family_streams("d77s12-52383a8d")
    ((1, 12), (-77, 12))
    """
    a, b = family.partition("-")[0].replace("d", "s-").split("s")[1:]
    return int(a), int(b)


def side_window_us(query: PlannedQuery, side: SideName) -> int:
    """Return the window of a query on one side, µs."""
    return query.w_a_us if side == "a" else query.w_b_us


def side_filter(query: PlannedQuery, side: SideName) -> int | None:
    """Return the lineage bit of a query's filter on one side, or None if the query takes every row."""
    return query.filter_a if side == "a" else query.filter_b


def result_columns(queries: Sequence[PlannedQuery], side: SideName) -> tuple[str, ...]:
    """Return the columns of a side that outputs or groups of these queries read, and pairs carry; sorted."""
    # Most outputs of a thousand queries read the same columns, so only distinct sets of columns are visited.
    distinct = {output.columns for query in queries for output in query.outputs}
    carried = {name for columns in distinct for of, name in columns or () if of == side}
    carried |= {name for q in queries if q.grouping for of, name in q.grouping.columns if of == side}
    if None in distinct:
        for query in queries:
            if any(output.columns is None for output in query.outputs):
                carried.update(query.columns_a if side == "a" else query.columns_b)
    return tuple(sorted(carried))


def side_stream(family: FamilyPlan, side: SideName) -> int:
    """Return the id of one side's stream."""
    return family.stream_a if side == "a" else family.stream_b


def side_filters(family: Family | FamilyPlan, side: SideName) -> dict[int, PlannedFilter]:
    """Return the distinct filters of one side by their lineage bits."""
    return {f.bit: f for f in (family.filters_a if side == "a" else family.filters_b)}


def side_chain(join: JoinPlan, side: SideName) -> tuple[Slice, ...]:
    """Return the slices of one side of a join."""
    return join.chain_a if side == "a" else join.chain_b


def other_side(side: SideName) -> SideName:
    """Return the side whose rows probe the slices of ``side``."""
    return "b" if side == "a" else "a"


def clocks_document(family: FamilyPlan) -> dict[str, dict[str, Clock]]:
    """Return both clocks of a family as a document, or an empty one if time measures all its windows."""
    return (
        {"clock": {side: family.clock(side) for side in SIDES}}
        if (family.clock_a, family.clock_b) != ("time", "time")
        else {}
    )
