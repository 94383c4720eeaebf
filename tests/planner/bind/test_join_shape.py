"""Shape of a join of many streams, as the choice of its order is given it."""

from __future__ import annotations

from dataclasses import replace

from planner.bind.bind import bind
from planner.bind.keys.step_keys import Joining, JoinShape
from tests.builders import a_stream

STREAMS = {name: replace(a_stream(i), name=name) for i, name in ((1, "A"), (2, "B"), (3, "C"))}


def test_filters_name_the_columns_of_their_streams() -> None:
    found: list[JoinShape] = []

    def choose(shape: JoinShape) -> Joining:
        found.append(shape)
        return Joining((2, 0, 1))

    conditions = "a.k = b.k AND b.k = c.k AND a.v < 1 AND c.v > 2 AND c.w = 3"
    query = bind(f"SELECT a.v FROM A a, B b, C c WHERE {conditions} WINDOW 1 MINUTE", STREAMS, choose=choose)
    assert found[0].filters == (('"v" < 1', ("v",)), None, ('"v" > 2 AND "w" = 3', ("v", "w")))
    assert query.left is not None
    assert {(side.alias, side.filter) for side in (query.left.a, query.left.b, query.b)} == {
        ("a", '"v" < 1'),
        ("b", None),
        ("c", '"v" > 2 AND "w" = 3'),
    }
