"""Runs of judged classes against what their sets of queries say."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from operators.join.absence_classes import ClassRuns
from operators.lineage.routes import query_keys

QUERIES = tuple(range(3, 73))
KEYS = query_keys(QUERIES)


@given(st.lists(st.integers(0, 9), min_size=len(QUERIES), max_size=len(QUERIES)), st.data())
def test_routes_of_runs_have_the_queries_of_their_classes(classes: list[int], data: st.DataObject) -> None:
    members = [[q for q, c in zip(QUERIES, classes, strict=True) if c == number] for number in range(10)]
    sets = [sum(1 << QUERIES.index(q) for q in own) for own in members]
    compiled = ClassRuns.of(QUERIES, KEYS, [((w, w), each) for w, each in enumerate(sets)])
    ends = st.tuples(st.integers(0, 10), st.integers(0, 10)).filter(lambda both: both[0] < both[1])
    runs = data.draw(st.lists(ends, min_size=1))
    starts, stops = (np.array([run[place] for run in runs], dtype=np.int64) for place in (0, 1))
    codes, routes = compiled.routes(starts, stops)
    wanted = [tuple(sorted(q for own in members[start:end] for q in own)) for start, end in runs]
    ids = routes.sets.ids()
    assert [ids[code] for code in codes.tolist()] == wanted
    rows = compiled.rows(starts, stops)
    assert rows.tolist() == [sum(start <= n < end for start, end in runs) for n in range(10)]
    assert compiled.results(rows) == sum(map(len, wanted))
    assert len(routes) == len(set(runs))


def test_the_more_the_routes_take_the_fewer_lengths_runs_have() -> None:
    few = ClassRuns.of(QUERIES, KEYS, [((w, w), 1 << w) for w in range(70)])
    ids = tuple(range(1, 10_001))
    many = ClassRuns.of(ids, query_keys(ids), [((w, w), 1 << w) for w in range(2_000)])
    rows = [np.array([value]) for value in (0, 63, 2**62, 2**62)]
    assert [part.tolist() for part in few.without_match(*rows)] == [[0], [0], [63]], "one run"
    assert len(many.without_match(*rows)[0]) == 6, "63 is 111111"
