"""Loops about nearest matches against what plain Python says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from operators.join.nearest import NEVER, PositionTable, passed_windows, take_nearer, without_match
from operators.kernels.keys import Int64s

FAR = 2**62
distances = st.integers(-20, 20)


def array(values: list[int]) -> Int64s:
    return np.array(values, dtype=np.int64)


def is_ascending(values: Int64s) -> bool:
    return bool((np.diff(values) >= 0).all())


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
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=7, max_size=7)
    | st.lists(st.integers(1, 20), min_size=7, max_size=7).map(lambda ws: [(w, w) for w in sorted(ws)]),
    st.integers(1, 3),
)
def test_rows_are_without_a_match_by_the_classes_that_ask(
    rows: list[tuple[int, int, int, int]], windows: list[tuple[int, int]], digits: int
) -> None:
    columns = [array([row[column] for row in rows]) for column in range(4)]
    bounds = [array([both[place] for both in windows]) for place in (0, 1)]
    found = without_match(*columns, *bounds, windows == sorted(windows) and is_ascending(bounds[1]), digits)
    runs = list(zip(*(part.tolist() for part in found), strict=True))
    assert [(place, number) for place, start, end in runs for number in range(start, end)] == [
        (place, number)
        for place, (first, last, ahead, behind) in enumerate(rows)
        for number in range(first, last)
        if ahead >= windows[number][0] and behind >= windows[number][1]
    ]
    for place, start, end in runs:
        shown = f"{end - start:b}".rstrip("0")
        assert len(shown) <= digits
        before = [run for run in runs if run[0] == place and run[2] == start]
        assert not before or before[0][2] - before[0][1] > end - start, "two runs could be one"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans())),
    st.lists(st.integers(1, 9), min_size=1).map(sorted),
    st.integers(0, 20) | st.none(),
    st.integers(0, 9) | st.none(),
)
def test_a_watermark_passes_rows_by_windows(
    rows: list[tuple[int, bool]], windows: list[int], then: int | None, on: int | None
) -> None:
    now = None if on is None else on + (then or 0)
    if now is None:
        then = None
    some = any(ended for _, ended in rows)
    found = passed_windows(
        array([ts for ts, _ in rows]),
        array(windows),
        NEVER if then is None else then,
        NEVER if now is None else now,
        np.array([ended for _, ended in rows] if some else [], dtype=np.bool_),
    )
    wanted = []
    for place, (ts, ended) in enumerate(rows):
        passed = [n for n, w in enumerate(windows) if ended or (now is not None and now - ts >= w)]
        asking = [n for n in passed if then is None or then - ts < windows[n]]
        if asking:
            wanted.append((place, asking[0], asking[-1] + 1))
    assert list(zip(*(part.tolist() for part in found), strict=True)) == wanted


@given(st.sets(st.tuples(st.integers(3, 6), st.integers(10, 15)), min_size=1), st.data())
def test_distances_are_found_by_position(known: set[tuple[int, int]], data: st.DataObject) -> None:
    positions = [piece << 32 | row for piece, row in sorted(known)]
    table = PositionTable.covering([array(positions)])
    assert table is not None
    ahead, behind = np.full(table.size, FAR), np.full(table.size, FAR)
    numbered = np.arange(len(positions))
    table.take_nearer(ahead, behind, array(positions), numbered, numbered + 200)
    table.take_nearer(ahead, behind, array(positions), numbered + 1, numbered + 100)
    places = st.tuples(st.integers(1, 8), st.integers(7, 18)).map(lambda place: place[0] << 32 | place[1])
    asked = data.draw(st.lists(places))
    found = table.nearest(ahead, behind, array(asked), FAR)
    numbers = {pos: number for number, pos in enumerate(positions)}
    assert found[0].tolist() == [numbers.get(pos, FAR) for pos in asked]
    assert found[1].tolist() == [numbers[pos] + 100 if pos in numbers else FAR for pos in asked]
