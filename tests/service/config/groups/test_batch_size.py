"""The size of batches against models of what a batch costs: linear, worse than linear, slow, noisy."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.config.groups.batch_size import FIRST_ROWS, FLOOR_ROWS, WARM_UP_BATCHES, BatchSize, BatchSizing
from tests.examples import examples

Seconds = Callable[[int], float]

CEILING = 8_000_000


def sizes(cost: Seconds, batches: int, *, ceiling: int = CEILING, target_s: float = 2.0) -> list[int]:
    """Sizes of the batches of a backlog, each as full as it may be."""
    size, found = BatchSize.first(ceiling=ceiling, target_s=target_s), []
    for _ in range(batches):
        found.append(size.rows)
        size = size.after(size.rows, cost(size.rows))
    return found


def turns(found: list[int]) -> int:
    """How often sizes went down after up, or up after down."""
    steps = [after - before for before, after in pairwise(found) if after != before]
    return sum((a > 0) != (b > 0) for a, b in pairwise(steps))


def linear(fixed_s: float, row_s: float) -> Seconds:
    return lambda rows: fixed_s + row_s * rows


def test_a_backlog_of_two_cores_is_taken_in_growing_batches() -> None:
    assert sizes(linear(0.25, 0.3e-6), 5) == [1_000_000, 2_000_000, 4_000_000, 4_000_000, 4_000_000]


def test_the_ceiling_ends_the_growth_of_a_fast_machine() -> None:
    assert sizes(linear(0.2, 1e-8), 6)[-3:] == [CEILING] * 3
    assert sizes(linear(0.2, 1e-8), 6, ceiling=3_000_000)[-3:] == [3_000_000] * 3


def test_expensive_rows_make_small_batches() -> None:
    found = sizes(linear(0.25, 10e-6), 20)
    assert found[:3] == [1_000_000, 1_000_000, 500_000], "one slow batch alone says nothing"
    assert found[-1] == 250_000


def test_a_run_nobody_waits_for_grows_but_never_takes_less_than_at_first() -> None:
    size = BatchSize.first(ceiling=CEILING, target_s=2.0, shrinks=False)
    for _ in range(10):
        size = size.after(size.rows, 10e-6 * size.rows)
    assert size.rows == FIRST_ROWS
    for _ in range(10):
        size = size.after(size.rows, 0.25 + 0.3e-6 * size.rows)
    assert size.rows == 4_000_000
    for _ in range(10):
        size = size.after(size.rows, 10e-6 * size.rows)
    assert size.rows == FIRST_ROWS


def test_a_small_explicit_limit_is_taken_whatever_a_batch_takes() -> None:
    for limit in (1, 7, 50_000, FLOOR_ROWS):
        assert set(sizes(linear(60.0, 1e-6), 20, ceiling=limit)) == {limit}
        assert set(sizes(linear(0.1, 1e-9), 20, ceiling=limit)) == {limit}


def test_without_a_target_every_batch_takes_the_limit() -> None:
    for limit in (10, 5_000_000):
        assert set(sizes(linear(60.0, 1e-6), 20, ceiling=limit, target_s=0)) == {limit}
        assert set(sizes(linear(0.1, 1e-9), 20, ceiling=limit, target_s=0)) == {limit}


def test_time_that_rows_do_not_cause_is_not_fought_with_small_batches() -> None:
    """Seven seconds whatever is in a batch: halves would cost half of the throughput and gain nothing."""
    found = sizes(linear(7.0, 0.3e-6), 60)
    assert found.count(FIRST_ROWS // 2) == 6, "three trials of two batches, ever further apart"
    assert found[-20:] == [FIRST_ROWS] * 20


def test_rows_that_meet_all_others_do_not_make_sizes_swing() -> None:
    """Quadratic cost: 1.1 s for a million rows, 3.8 s for twice as many."""

    def cost(rows: int) -> float:
        return 0.2 + 0.9 * (rows / 1e6) ** 2

    found = sizes(cost, 200)
    assert set(found) == {FIRST_ROWS, 2 * FIRST_ROWS}
    assert found.count(2 * FIRST_ROWS) == 10, "five trials, ever further apart"
    found = sizes(lambda rows: cost(4 * rows), 200)
    assert set(found[4:]) == {250_000, 500_000}
    assert found[4:].count(500_000) <= 12


def test_a_slow_down_shrinks_and_its_end_grows() -> None:
    size = BatchSize.first(ceiling=CEILING, target_s=2.0)
    found = []
    for batch in range(60):
        cost = linear(0.25, 3e-6 if 20 <= batch < 40 else 0.3e-6)
        found.append(size.rows)
        size = size.after(size.rows, cost(size.rows))
    assert found[19] == 4_000_000
    assert found[39] == 500_000
    assert found[59] == 4_000_000


def test_one_hiccup_changes_nothing() -> None:
    size = BatchSize.first(ceiling=CEILING, target_s=2.0)
    for _ in range(6):
        size = size.after(size.rows, 0.25 + 0.3e-6 * size.rows)
    assert size.after(size.rows, 30.0).after(size.rows, 1.45).rows == size.rows


def test_a_size_that_large_files_do_not_use_is_not_refused() -> None:
    """Files of 1.2M rows: sizes of 1M and 2M take one, which proves nothing against the larger size."""
    size = BatchSize.first(ceiling=CEILING, target_s=2.0)
    taken = []
    for _ in range(5):
        rows = max(size.rows // 1_200_000, 1) * 1_200_000
        taken.append(rows)
        size = size.after(rows, 0.1 + 0.3e-6 * rows)
    assert taken == [1_200_000, 1_200_000, 3_600_000, 7_200_000, 7_200_000]


def test_a_file_larger_than_the_size_does_not_shrink_it() -> None:
    size = BatchSize.first(ceiling=CEILING, target_s=2.0)
    for _ in range(10):
        size = size.after(20_000_000, 12.0)
    assert size.rows == FIRST_ROWS


@settings(max_examples=examples(300), deadline=None)
@given(
    fixed_s=st.floats(0.0, 5.0),
    row_s=st.floats(1e-9, 1e-3),
    ceiling=st.integers(1, 50_000_000),
    target_s=st.floats(0.2, 20.0),
)
def test_linear_costs_settle_between_floor_and_ceiling(
    fixed_s: float, row_s: float, ceiling: int, target_s: float
) -> None:
    cost = linear(fixed_s, row_s)
    found = sizes(cost, 60, ceiling=ceiling, target_s=target_s)
    assert all(min(FLOOR_ROWS, ceiling) <= size <= ceiling for size in found)
    assert turns(found) <= 6, "steps that did not pay are tried ever less often"
    size = max(set(found), key=found.count)
    assert found.count(size) >= 40
    if cost(size) > 1.5 * target_s:
        assert size <= FLOOR_ROWS or cost(max(size // 2, FLOOR_ROWS)) > 0.75 * cost(size) * 0.99
    assert size == ceiling or cost(size) > 0.7 * target_s, "more rows would be faster"


@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 2**32), spread=st.floats(0.0, 0.2), power=st.floats(0.5, 2.0))
def test_noise_moves_sizes_little(seed: int, spread: float, power: float) -> None:
    rng = random.Random(seed)

    def cost(rows: int) -> float:
        return (0.25 + 0.3 * (rows / 1e6) ** power) * rng.uniform(1 - spread, 1 + spread)

    found = sizes(cost, 200)
    assert all(FLOOR_ROWS <= size <= CEILING for size in found)
    assert turns(found) <= 20
    assert max(found[100:]) <= 4 * min(found[100:])


@given(
    st.integers(1, 10**8),
    st.floats(0.0, 10.0),
    st.lists(st.tuples(st.integers(1, 10**8), st.floats(1e-3, 1e3)), max_size=80),
)
def test_whatever_batches_take_the_size_stays_between_floor_and_ceiling(
    ceiling: int, target_s: float, seen: list[tuple[int, float]]
) -> None:
    size = BatchSize.first(ceiling=ceiling, target_s=target_s)
    for rows, seconds in seen:
        size = size.after(rows, seconds)
        assert min(FLOOR_ROWS, ceiling) <= size.rows <= ceiling


def test_a_size_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="5 rows are not between 1 and 4"):
        BatchSize(1, 4, 2.0, 5)
    with pytest.raises(ValueError, match="cannot take -1 s"):
        BatchSize(1, 4, -1, 3)


def follow(sizing: BatchSizing, seen: list[tuple[int, bool, float]]) -> list[int]:
    """Sizes before each of some batches: rows, whether full, seconds."""
    found, now_s = [], 100.0
    for batch, (rows, full, seconds) in enumerate(seen):
        sizing.asked(batch, now_s=now_s)
        found.append(sizing.rows)
        sizing.admitted(batch, rows, full=full, now_s=now_s)
        now_s += seconds
    return found


def sizing() -> BatchSizing:
    made = BatchSizing(BatchSize.first(ceiling=CEILING, target_s=2.0))
    made.has_room(CEILING)
    return made


def test_the_first_batches_of_a_process_say_nothing() -> None:
    assert WARM_UP_BATCHES == 2
    full = (1_000_000, True, 0.5)
    assert follow(sizing(), [(1_000_000, True, 0.1)] * 2 + [full] * 2) == [1_000_000] * 3 + [2_000_000]
    assert follow(sizing(), [(1_000_000, True, 9.0)] * 2 + [full] * 2) == [1_000_000] * 3 + [2_000_000]


def test_a_batch_of_no_rows_warms_nothing_up() -> None:
    seen = [(0, False, 5.0), (1_000_000, True, 9.0), (1_000_000, True, 4.0), *[(1_000_000, True, 0.5)] * 2]
    assert follow(sizing(), seen) == [1_000_000] * 4 + [2_000_000]


def test_a_batch_grows_into_the_room_there_is_and_is_never_less_than_at_first_for_want_of_it() -> None:
    followed = sizing()
    follow(followed, [(1_000_000, True, 0.5)] * 5)
    assert followed.grows
    for room, rows in ((CEILING, 4_000_000), (2_500_000, 2_500_000), (10, 1_000_000)):
        followed.has_room(room)
        assert followed.rows == rows


def test_batches_that_took_all_there_was_change_nothing() -> None:
    assert set(follow(sizing(), [(900_000, False, 0.1)] * 9 + [(10, False, 60.0)] * 9)) == {1_000_000}


def test_time_in_which_no_batch_was_done_is_not_counted() -> None:
    followed = sizing()
    follow(followed, [(1_000_000, True, 0.5)] * 3)
    followed.admitted(3, 1_000_000, full=True, now_s=200.0)
    followed.asked(3, now_s=200.1)  # asked again for the same batch
    followed.asked(4, now_s=200.2)
    assert followed.rows == 1_000_000
