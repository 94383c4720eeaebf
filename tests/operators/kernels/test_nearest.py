"""Loops about nearest matches against what plain Python says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from operators.join.absence_classes import ClassBlocks
from operators.kernels.keys import Int64s
from operators.kernels.nearest import take_nearer, without_match
from operators.kernels.positions import PositionTable
from operators.lineage.route_numbers import query_keys

FAR = 2**62
distances = st.integers(-20, 20)


def array(values: list[int]) -> Int64s:
    return np.array(values, dtype=np.int64)


@given(st.lists(st.tuples(st.integers(0, 4), distances)))
def test_the_nearest_of_each_row_stay(matches: list[tuple[int, int]]) -> None:
    ahead, behind = np.full(5, FAR), np.full(5, FAR)
    take_nearer(ahead, behind, array([row for row, _ in matches]), array([apart for _, apart in matches]))
    for row in range(5):
        own = [apart for of, apart in matches if of == row]
        assert ahead[row] == min((apart for apart in own if apart >= 0), default=FAR)
        assert behind[row] == min((-apart for apart in own if apart < 0), default=FAR)


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 20), st.integers(0, 20))),
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=7, max_size=7),
)
def test_rows_are_without_a_match_by_the_classes_that_ask(
    rows: list[tuple[int, int, int, int]], windows: list[tuple[int, int]]
) -> None:
    ids = tuple(range(1, 8))
    compiled = ClassBlocks.of(ids, query_keys(ids), [(both, 1 << n) for n, both in enumerate(windows)])
    columns = [array([row[column] for row in rows]) for column in range(4)]
    bounds = (compiled.least_a_us, compiled.most_a_us, compiled.least_b_us, compiled.most_b_us)
    found = without_match(*columns, compiled.offsets, *bounds)
    blocks = list(zip(*(part.tolist() for part in found), strict=True))
    classes = [range(n, n + 1) for n in range(7)] + [range(2), range(2, 4), range(4, 6), range(4)]
    assert [tuple(n + 1 for n in each) for each in classes] == list(compiled.routes.ids().values())
    assert [(place, number) for place, block in blocks for number in classes[block]] == [
        (place, number)
        for place, (first, last, ahead, behind) in enumerate(rows)
        for number in range(first, last)
        if ahead >= windows[number][0] and behind >= windows[number][1]
    ]
    pairs = {(0, 1), (2, 3), (4, 5), (7, 8)}
    assert not {(one, other) for (row, one), (at, other) in pairwise(blocks) if row == at} & pairs, (
        "two in one"
    )


@given(st.sets(st.tuples(st.integers(3, 6), st.integers(10, 15)), min_size=1), st.data())
def test_distances_are_found_by_position(known: set[tuple[int, int]], data: st.DataObject) -> None:
    positions = [piece << 32 | row for piece, row in sorted(known)]
    table = PositionTable.covering([array(positions)])
    assert table is not None
    ahead, behind = np.full(table.size, FAR), np.full(table.size, FAR)
    ahead[table.places(array(positions))] = range(len(positions))
    behind[table.places(array(positions))] = range(100, 100 + len(positions))
    places = st.tuples(st.integers(1, 8), st.integers(7, 18)).map(lambda place: place[0] << 32 | place[1])
    asked = data.draw(st.lists(places))
    found = table.nearest(ahead, behind, array(asked), FAR)
    numbers = {pos: number for number, pos in enumerate(positions)}
    assert found[0].tolist() == [numbers.get(pos, FAR) for pos in asked]
    assert found[1].tolist() == [numbers[pos] + 100 if pos in numbers else FAR for pos in asked]
