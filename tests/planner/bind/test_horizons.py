"""Queries over a stream whose oldest rows may leave at a cap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.bind.bind import bind
from planner.errors import UnsupportedCql
from tests.builders import a_stream

PLAIN = {name: replace(a_stream(i), name=name) for i, name in ((1, "A"), (2, "B"), (3, "C"))}
CAPPED = PLAIN | {"B": replace(PLAIN["B"], state_cap_mb=1, at_cap="evict")}


@pytest.mark.parametrize(
    ("cql", "refused"),
    [
        ("SELECT a.v FROM A [NOW] a LEFT JOIN B [NOW] b ON a.k = b.k", "an outer join"),
        ("SELECT a.v FROM A [NOW] a WHERE EXISTS (SELECT 1 FROM B [NOW] b WHERE a.k = b.k)", "a semi join"),
        ("SELECT a.v FROM A [ROWS 2] a, B [NOW] b WHERE a.k = b.k", "a window of rows"),
        (
            "SELECT a.v FROM A a, B b, C c WHERE a.k = b.k AND b.k = c.k WINDOW 1 MINUTE",
            "a join of more than two streams",
        ),
    ],
)
def test_what_cannot_do_without_evicted_rows_is_refused_by_name(cql: str, refused: str) -> None:
    bind(cql, PLAIN)
    bind(cql, PLAIN | {"B": replace(CAPPED["B"], at_cap="stop")})
    with pytest.raises(UnsupportedCql, match=f'{refused} over stream "B" is not supported') as raised:
        bind(cql, CAPPED)
    assert raised.value.hint == "Set at_cap of the stream to stop, or give it retain instead of a cap."
    assert raised.value.location is not None


def test_inner_joins_and_groups_of_pairs_are_accepted() -> None:
    bind("SELECT a.v FROM A [NOW] a, B [RANGE UNBOUNDED] b WHERE a.k = b.k", CAPPED)
    bind("SELECT a.v FROM A [NOW] a, B [RANGE UNBOUNDED] b WHERE a.v < b.v", CAPPED)
    bind(
        "SELECT k, COUNT(*) AS n FROM A [NOW] a, B [RANGE UNBOUNDED] b WHERE a.k = b.k "
        "GROUP BY k, TUMBLE(1 HOUR)",
        CAPPED,
    )
