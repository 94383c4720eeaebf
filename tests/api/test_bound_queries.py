"""A bound query as it is answered: which join it was understood as."""

from __future__ import annotations

import pytest

from api.queries.schemas import BoundQuery
from planner.bind.bind import bind
from tests.planner.cql_streams import STREAMS


@pytest.mark.parametrize(
    ("source", "join"),
    [
        ("A [NOW] a, B [NOW] b WHERE a.k = b.k", "inner"),
        ("A [NOW] a LEFT JOIN B [NOW] b ON a.k = b.k", "left outer"),
        ("B [NOW] b LEFT JOIN A [NOW] a ON a.k = b.k", "right outer"),
        ("A [NOW] a FULL JOIN B [NOW] b ON a.k = b.k", "full outer"),
        ("A [NOW] a LEFT JOIN B [NOW] b ON a.k = b.k WHERE b.v > 1", "inner"),
        ("A [NOW] a LEFT JOIN B [NOW] b ON a.k = b.k WHERE b.k IS NULL", "left anti"),
        ("A [NOW] a WHERE EXISTS (SELECT 1 FROM B [NOW] b WHERE a.k = b.k)", "left semi"),
        ("A [NOW] b RIGHT ANTI JOIN B [NOW] a ON a.k = b.k", "right anti"),
    ],
)
def test_an_answer_names_the_join_that_a_query_is(source: str, join: str) -> None:
    assert BoundQuery.of(bind(f"SELECT a.k FROM {source}", STREAMS)).join == join


def test_an_answer_says_that_time_never_shows_that_a_row_is_alone() -> None:
    def answered(a: str, b: str, join: str) -> str | None:
        text = f"SELECT x.k FROM A [{a}] x {join} B [{b}] y ON x.k = y.k"
        return BoundQuery.of(bind(text, STREAMS)).undecided

    assert answered("NOW", "RANGE UNBOUNDED", "LEFT JOIN") is None
    assert answered("RANGE UNBOUNDED", "NOW", "SEMI JOIN") is None
    assert answered("RANGE UNBOUNDED", "NOW", "JOIN") is None
    for join, names in (("LEFT JOIN", '"x"'), ("ANTI JOIN", '"x"'), ("FULL JOIN", '"x"')):
        said = answered("RANGE UNBOUNDED", "NOW", join)
        assert said == (
            f"a row of {names} may find a partner until a punctuation closes its key: its window is unbounded"
        )
