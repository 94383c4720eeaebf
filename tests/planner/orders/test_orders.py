"""Definitions, Theorem 2.1 and Equations 6 to 10 of Window-Oblivious Join, by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.orders.order_progress import scrambling_factor
from planner.orders.buffers import OrderedStream, buffer_rows, joined
from planner.orders.lag import (
    Sighting,
    estimated_lag,
    lag,
    multiplicity,
)

streams_of_values = st.lists(st.integers(0, 12), min_size=1, max_size=14)


def array(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def disorder(values: list[int]) -> int:
    """Definition 2.2, read literally."""
    n = len(values)
    pairs = ((p, q) for p in range(n) for q in range(n) if values[p] <= values[q])
    return max(p - q for p, q in pairs)


def virtual_places(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest place that each row can have in the sorted stream (Def. 2.5)."""
    ordered = np.sort(values)
    return np.searchsorted(ordered, values, side="left"), np.searchsorted(ordered, values, side="right") - 1


@given(streams_of_values)
def test_scrambling_factor_is_as_defined(values: list[int]) -> None:
    assert scrambling_factor(array(values)) == disorder(values)
    assert multiplicity(array(values)) == max(values.count(value) for value in values)


@given(streams_of_values)
def test_theorem_2_1(values: list[int]) -> None:
    k = disorder(values)
    least, most = virtual_places(array(values))
    places = np.arange(len(values))
    assert (places - least <= k).all()
    assert (most - places <= k).all()


def next_of_kin(value: int, values: np.ndarray) -> int | None:
    """Return the greatest of some values that is not above a value (Def. 2.3); None if all are above it."""
    below = values[values <= value]
    return int(below.max()) if len(below) else None


@given(st.integers(0, 12), streams_of_values)
def test_next_of_kin_is_as_defined(value: int, values: list[int]) -> None:
    assert next_of_kin(value, array(values)) == max((v for v in values if v <= value), default=None)


@given(streams_of_values, streams_of_values, st.data())
def test_lag_is_as_defined(one: list[int], other: list[int], data: st.DataObject) -> None:
    arrived_i = data.draw(st.integers(0, len(one)))
    arrived_j = data.draw(st.integers(1, len(other)))
    found = lag(array(one), arrived_i, array(other), arrived_j)
    kin = next_of_kin(sorted(other)[arrived_j - 1], array(one))
    if kin is None:
        assert found == arrived_i
    else:
        places = [place for place, value in enumerate(sorted(one)) if value == kin]
        assert found == arrived_i - 1 - places[-1]


def test_a_lag_by_hand() -> None:
    # Sorted, 63 stands at the place of the second row of S2; its next of kin is the third of S1.
    s1, s2 = array([61, 62, 66, 63, 64, 67, 69]), array([61, 68, 63, 65])
    assert lag(s1, 6, s2, 2) == 5 - 2


@st.composite
def in_disorder(draw: st.DrawFn, most_copies: int = 2) -> list[int]:
    noise = draw(st.sampled_from((0, 1, 4, 9)))
    steps = st.integers(0, noise)
    rows = [(place + draw(steps), place) for place in range(draw(st.integers(4, 24)))]
    copies = draw(st.integers(1, most_copies))
    return [value // copies for _, value in sorted(rows)]


def arrivals(counts: list[int], every: list[int], delays: list[int]) -> list[tuple[int, int]]:
    """Return (stream, place) in order of arrival: a row of each stream every so many ticks, after a delay."""
    times = [
        (delays[number] + place * every[number], number, place)
        for number, count in enumerate(counts)
        for place in range(count)
    ]
    return [(number, place) for _, number, place in sorted(times)]


@given(in_disorder(), in_disorder(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 20))
def test_equation_7_holds_every_partner(
    one: list[int], other: list[int], every_i: int, every_j: int, delay: int
) -> None:
    """At constant rates a row of S_j finds each earlier partner among the last M_ij rows of S_i."""
    i = OrderedStream(disorder(one), 1 / every_i)
    j = OrderedStream(disorder(other), 1 / every_j)
    order = arrivals([len(one), len(other)], [every_i, every_j], [0, delay])
    came_before = {}
    counts = [0, 0]
    for stream, place in order:
        came_before[stream, place] = counts[0]
        counts[stream] += 1
    least, most = virtual_places(array(other))
    for place, value in enumerate(other):
        arrived = came_before[1, place]
        partners = [p for p in range(arrived) if one[p] == value]
        if not partners:
            continue
        # Any row that came at a place which this row has once sorted; one of them within k_j.
        sorted_places = range(least[place], most[place] + 1)
        enough = max(
            buffer_rows(i, j, lag(array(one), came_before[1, at], array(other), at + 1))
            for at in sorted_places
        )
        assert arrived - min(partners) <= math.ceil(enough - 1e-9)


def test_with_k_itself_two_ordered_streams_of_lag_1_lose_a_pair() -> None:
    """Equation 6 as printed holds max{1, 0 + 0 + 1} = 1 row, and the partner is the one before."""
    stream = OrderedStream(0, 1.0)
    one, other = array([1, 2, 3, 4]), array([1, 2, 3, 4])
    # Two rows of S_i have come when the first of S_j does.
    assert lag(one, 2, other, 1) == 1
    assert max(1, stream.scramble + stream.scramble + 1) == 1
    assert buffer_rows(stream, stream, 1) == 3


@given(st.lists(in_disorder(), min_size=2, max_size=3), st.data())
def test_equations_9_and_10_bound_the_output(inputs: list[list[int]], data: st.DataObject) -> None:
    delays = [data.draw(st.integers(0, 6)) for _ in inputs]
    order = arrivals([len(values) for values in inputs], [1] * len(inputs), delays)
    held: list[list[int]] = [[] for _ in inputs]
    output: list[int] = []
    for stream, place in order:
        value = inputs[stream][place]
        held[stream].append(value)
        matches = [[value] if n == stream else [v for v in of if v == value] for n, of in enumerate(held)]
        output += [value for _ in itertools.product(*matches)]
    facts = [OrderedStream(disorder(v), len(v), max(v.count(x) for x in v)) for v in inputs]
    bound = joined(facts)
    assert len(output) <= bound.rate_per_s
    if output:
        assert disorder(output) <= bound.scramble
        assert max(output.count(value) for value in output) <= bound.multiplicity


def test_no_rows_are_held_of_a_stream_that_stands_still_and_all_for_one() -> None:
    still, moving = OrderedStream(1, 0), OrderedStream(10, 50)
    assert buffer_rows(still, moving) == 1
    assert buffer_rows(moving, still) == math.inf


@pytest.mark.parametrize("behind", [0, 300])
def test_the_lag_is_estimated_from_what_was_seen(behind: int) -> None:
    """Two streams of one row per value and k 20, the second so many rows behind the first."""
    seen: list[list[Sighting]] = [[], []]
    for moment in range(1, 21):
        for number, rows in enumerate((100 * moment, max(100 * moment - behind, 0))):
            seen[number].append(Sighting(rows, rows - 21 if rows > 20 else None, 20))
    assert estimated_lag(*seen) == pytest.approx(behind, abs=20)
    assert estimated_lag(*reversed(seen)) == pytest.approx(-behind, abs=20)
    assert estimated_lag([Sighting(5, None, 20)], [Sighting(5, None, 20)]) is None
