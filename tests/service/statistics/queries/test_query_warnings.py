"""A query says when rows are kept forever, and when it cannot use a contract."""

from __future__ import annotations

import pytest

from catalog.values.stream import Column, Constraints, HttpSource, Punctuations, Stream
from planner.bind.bind import bind
from service.statistics.queries.query_warnings import query_warnings

COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "bigint"))
A = Stream(1, "A", COLUMNS, "ts", 0, HttpSource(), constraints=Constraints(clustered=("k",)))
B = Stream(2, "B", COLUMNS, "ts", 0, HttpSource(), punctuations=Punctuations((("k",),)))
C = Stream(3, "C", COLUMNS, "ts", 0, HttpSource())

FOREVER = (
    'rows of "{}" are kept forever: the window is unbounded, '
    'and no contract of stream "{}" closes the join key'
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT a.v FROM A [RANGE UNBOUNDED] a, B [RANGE UNBOUNDED] b WHERE a.k = b.k", ()),
        ("SELECT a.v FROM A [NOW] a, C [NOW] c WHERE a.k = c.k", ()),
        ("SELECT a.v FROM A [RANGE UNBOUNDED] a, C [NOW] c WHERE a.k = c.k", (FOREVER.format("a", "C"),)),
        ("SELECT a.v FROM A [NOW] a, C [RANGE UNBOUNDED] c WHERE a.k = c.k", ()),
        ("SELECT c.v FROM C [RANGE UNBOUNDED] c ANTI JOIN A [NOW] a ON a.k = c.k", ()),
        (
            "SELECT b.v FROM B [NOW] b, C [RANGE UNBOUNDED] c WHERE b.v = c.v",
            (
                FOREVER.format("c", "B"),
                'the contract of stream "B" ("b") is not used: it closes no key of {v}',
            ),
        ),
        (
            "SELECT b.v FROM B [ROWS 5] b, C [ROWS 5] c WHERE b.k = c.k",
            (
                'the contract of stream "B" ("b") is not used: only joins with an equal key and time '
                "windows use contracts",
            ),
        ),
    ],
)
def test_warnings(text: str, told: tuple[str, ...]) -> None:
    streams = {stream.name: stream for stream in (A, B, C)}
    query = bind(text, streams)
    assert query_warnings(query, streams[query.a.stream], streams[query.b.stream]) == told
