"""Joins of three or more streams as steps; each side of a step is a stream or an earlier step.

    A, B, C on one key      step 1   A join B          family of A and B, shared with queries over A, B
                            step 2   (A, B) join C     side a is the intermediate of step 1

    A, B, C, D              step 1   A join B
                            step 2   C join D
                            step 3   (A, B) join (C, D)   both sides are intermediates: the tree is *bushy*

An *intermediate* is a stream that no source feeds. Its rows are the pairs of one step, which queries *hand
on* to their next step. An intermediate has the columns ``a.<column>`` and ``b.<column>`` that the queries of
the next step read. The event time of a pair is the newer event time of its two rows. For each query that
hands on pairs, the intermediate has a boolean column that says whether a pair belongs to the query. The next
step therefore takes a pair as one row, however many queries share it, and uses a query's boolean column as
the query's filter.

After several steps, a pair combines one row of each joined stream; its event time is the newest of these
rows' event times. A later row must be close enough in event time to all rows of the pair. So an intermediate
also has the column ``oldest``, the oldest event time of the rows in a pair. If the windows of the joined
streams are equally long, ``oldest`` determines which later rows the pair joins and when it expires. Otherwise
the column ``expires`` gives the event time up to which some query can use the pair.

    A.k = B.k AND A.j = C.j     step 2 has another key: its rows of (A, B) come from other buckets

If a step has the key of the previous step, it finds the pairs in its own bucket and batch. If a step has
another key, the pairs are sent to the buckets of the new key and arrive there in the next batch. Such an
intermediate is *exchanged*. An exchanged intermediate has an id of its own, because its rows arrive one batch
later and a family may hand on the same pairs exchanged and not exchanged.

    A, B, C on one key, (A, B) does not rest      a new row of C meets rows of A, and with these, rows of B

The rows of an intermediate *rest* if they are stored. The pairs of an intermediate that is not exchanged need
not be stored. They can be made again from the rows of A and B for each new row of C, as in an MJoin (Viglas,
Naughton, Burger, VLDB 2003). Rows of A and B then stay in the state until no later row of C can
join them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from catalog.sql_text import quoted
from catalog.values.plan import FamilyPlan, Plan
from catalog.values.query import OLDEST, Clock, Output, Query, Side
from catalog.values.stream import Column, HttpSource, Stream

#: Most streams of one query.
MOST_STREAMS = 8

#: Event-time column of an intermediate.
TIME = "time"

#: Column of an intermediate: latest event time of a row that the pair can join under any query, µs UTC.
EXPIRES = "expires"

_ID_BYTES = 6

#: Number that is subtracted from the id of an intermediate to get the id of its exchanged form.
_EXCHANGED = 1 << (8 * _ID_BYTES)


#: Join key, as pairs (column of a, column of b).
Key = tuple[tuple[str, str], ...]


@lru_cache(maxsize=1 << 10)
def intermediate_id(
    stream_a: int, stream_b: int, key: Key, clocks: tuple[Clock, Clock] = ("time", "time")
) -> int:
    """Return the stream id, a negative number, of the intermediate that a family's inner joins make.

    Args:
        stream_a: Stream id of side a of the joins' family.
        stream_b: Stream id of side b.
        key: Key of the family.
        clocks: Clocks that measure the windows of a and of b.

    >>> intermediate_id(1, 2, (("k", "k"),)) == intermediate_id(1, 2, (("k", "k"),)) < 0
    True
    """
    ordered = clocks == ("order", "order")
    counted = [f"{side} {clock}" for side, clock in zip("ab", clocks, strict=True) if clock != "time"]
    named = (stream_a, stream_b, key, *(["ordered"] if ordered else counted))
    digest = hashlib.sha256(repr(named).encode()).digest()
    return -1 - int.from_bytes(digest[:_ID_BYTES], "big")


def is_intermediate(stream_id: int) -> bool:
    """Return whether a stream id is the id of an intermediate."""
    return stream_id < 0


def exchanged_id(stream_id: int) -> int:
    """Return the id of the exchanged form of an intermediate.

    >>> made = intermediate_id(1, 2, (("k", "k"),))
    >>> is_exchanged(made), is_exchanged(exchanged_id(made)), is_intermediate(exchanged_id(made))
    (False, True, True)
    """
    return stream_id - _EXCHANGED


def is_exchanged(stream_id: int) -> bool:
    """Return whether the rows of an intermediate arrive from other buckets, one batch later."""
    return stream_id < -_EXCHANGED


def copied_side(family: FamilyPlan) -> Literal["a", "b"] | None:
    """Return the side whose rows are copied to all buckets of their key, or None if there is no such side.

    Rows of the other side are never copied. They are pairs of a previous step, which stay in the bucket that
    made them, or rows that are checked for matches in one bucket each.
    """
    if not family.replication.replicates:
        return None
    if family.spread_side is not None:
        return "b" if family.spread_side == "a" else "a"
    stays = is_intermediate(family.stream_a) and not is_exchanged(family.stream_a)
    return "b" if stays else None


def steps(query: Query) -> tuple[Query, ...]:
    """Return the steps of a query in order, each as a query of its family; a join of two streams is one step.

    All steps but the last hand on their pairs under the query's id. The next step takes only pairs with this
    id.
    """
    if query.left is None:
        return (query,)
    before: list[Query] = []
    sides = [query.a, query.b]
    member = membership(query.id)
    for place, joined in enumerate((query.left, query.right)):
        if joined is not None:
            before += steps(replace(joined, id=query.id, name=query.name, cql=query.cql, hands_on=True))
            sides[place] = replace(sides[place], filter=quoted(member), filter_columns=(member,))
    return (*before, replace(query, a=sides[0], b=sides[1]))


def widest_sides(queries: Sequence[Query], registered: Callable[[int], Stream]) -> tuple[Stream, Stream]:
    """Return the streams of both sides of a family's queries, with all columns that any query reads."""
    if queries[0].left is None:
        return side_streams(queries[0], registered)
    of_a, of_b = zip(*(side_streams(query, registered) for query in queries), strict=True)
    return _widest(of_a), _widest(of_b)


def _widest(streams: Sequence[Stream]) -> Stream:
    columns = {column.name: column for stream in streams for column in stream.columns}
    return replace(streams[0], columns=tuple(columns.values()))


def stream_sides(query: Query) -> tuple[Side, ...]:
    """Return the sides of all streams in a query, in the order in which they are joined."""
    if query.left is None:
        return (query.a, query.b)
    return (*stream_sides(query.left), *((query.b,) if query.right is None else stream_sides(query.right)))


def membership(query_id: int) -> str:
    """Return the name of an intermediate's column that says whether a pair belongs to a query."""
    return f"query {query_id}"


def side_streams(query: Query, registered: Callable[[int], Stream]) -> tuple[Stream, Stream]:
    """Return the streams of both sides of a query; the sides of a later step may be intermediates.

    Args:
        query: The query.
        registered: Returns a registered stream by its id.
    """
    a, b = (
        registered(side.stream_id)
        if joined is None
        else _intermediate(side.stream_id, side.stream, joined.outputs, ())
        for side, joined in ((query.a, query.left), (query.b, query.right))
    )
    return a, b


def plan_streams(plan: Plan) -> dict[int, Stream]:
    """Return the streams and the intermediates of a plan, by id."""
    streams = {stream.id: stream for stream in plan.streams}
    taken = taken_intermediates(plan.families)
    for family in in_order(plan.families) if taken else ():
        for made in made_by(family, taken):
            streams[made] = intermediate(family, streams[family.stream_a], streams[family.stream_b], made)
    return streams


def stream_names(plan: Plan) -> dict[int, str]:
    """Return the names of the streams and of the intermediates of a plan, by id."""
    return {stream_id: stream.name for stream_id, stream in plan_streams(plan).items()}


def taken_intermediates(families: Iterable[FamilyPlan]) -> frozenset[int]:
    """Return the ids of the intermediates that some family takes as input."""
    return frozenset(i for f in families for i in (f.stream_a, f.stream_b) if is_intermediate(i))


def makers_again(families: Sequence[FamilyPlan]) -> dict[str, FamilyPlan]:
    """Map the id of each family that does not store its side a to the family that makes this side's rows."""
    takers = [family for family in families if not family.rests]
    made_in = makers(families) if takers else {}
    return {family.id: made_in[family.stream_a] for family in takers}


def made_by(family: FamilyPlan, taken: Collection[int]) -> tuple[int, ...]:
    """Return the ids of the intermediates that a family makes, exchanged or not.

    Args:
        family: The family.
        taken: Result of ``taken_intermediates`` for all families; an intermediate that is not in it is left
            out.
    """
    # A family of outer joins over the same streams and key would have the same id, but hands on no pairs.
    if not taken or not family.hands_on:
        return ()
    made = intermediate_id(family.stream_a, family.stream_b, family.key, family.clocks)
    return tuple(each for each in (made, exchanged_id(made)) if each in taken)


def makers(families: Sequence[FamilyPlan]) -> dict[int, FamilyPlan]:
    """Return the family that makes each intermediate in use, by id of the intermediate."""
    taken = taken_intermediates(families)
    return {made: family for family in families for made in made_by(family, taken)}


def in_order(families: Sequence[FamilyPlan]) -> Sequence[FamilyPlan]:
    """Return families sorted so that each one follows the families whose pairs it takes."""
    if not taken_intermediates(families):
        return families
    found = {family.id: family for family in families}
    order = step_order({f.id: (f.stream_a, f.stream_b, f.key, f.clocks) for f in families})
    return tuple(found[name] for name in order)


def step_order(joined: Mapping[str, tuple[int, int, Key, tuple[Clock, Clock]]]) -> tuple[str, ...]:
    """Return ids of families sorted so that each one follows the families whose pairs it may take.

    Args:
        joined: Stream ids of both sides, the key, and the clocks of both sides, by the id of the family.
    """
    made: dict[int, tuple[int, int]] = {}
    for a, b, key, clocks in joined.values():
        here = intermediate_id(a, b, key, clocks)
        made |= {here: (a, b), exchanged_id(here): (a, b)}

    def depth(stream_id: int) -> int:
        return max(map(depth, made[stream_id])) + 1 if stream_id in made else 0

    return tuple(sorted(joined, key=lambda family: (max(map(depth, joined[family][:2])), family)))


def intermediate(family: FamilyPlan, a: Stream, b: Stream, stream_id: int) -> Stream:
    """Return the stream of the pairs that queries of a family hand on.

    Args:
        family: The family.
        a: Stream of its side a.
        b: Stream of its side b.
        stream_id: Id of the intermediate, one of ``made_by``.
    """
    handing = [query for query in family.queries if query.hands_on]
    outputs = {output.name: output for query in handing for output in query.outputs}
    name = intermediate_name(a.name, b.name)
    members = [membership(query.id) for query in handing]
    return _intermediate(stream_id, name, [outputs[column] for column in sorted(outputs)], members)


def intermediate_name(a: str, b: str) -> str:
    """Return the name of the intermediate of two streams.

    >>> intermediate_name(intermediate_name("A", "B"), "C")
    '(A, B, C)'
    >>> intermediate_name(intermediate_name("A", "B"), intermediate_name("C", "D"))
    '(A, B, (C, D))'
    """
    return f"({a.removeprefix('(').removesuffix(')')}, {b})"


def _intermediate(stream_id: int, name: str, outputs: Iterable[Output], members: Iterable[str]) -> Stream:
    columns = [Column(TIME, "timestamp"), Column(OLDEST, "bigint"), Column(EXPIRES, "bigint")]
    columns += [Column(output.name, output.type) for output in outputs]
    columns += [Column(member, "boolean") for member in members]
    return Stream(stream_id, name, tuple(columns), TIME, 0, HttpSource())
