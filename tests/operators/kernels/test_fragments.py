from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import ALL_BUCKETS, Replication
from catalog.values.query import Backfill
from operators.kernels.fragments import Fragments
from planner.build.build_plan import build_plan
from tests.builders import a_query
from tests.examples import examples
from tests.operators.cases import SETTINGS, replicated
from tests.operators.harness import Runner
from tests.operators.queries import Row, a_table
from tests.operators.segment_builders import STREAMS
from tests.operators.world import World

KEYS = st.integers(-3, 6)
_heavy = st.dictionaries(KEYS, st.integers(4, 9), max_size=4).map(lambda heavy: tuple(sorted(heavy.items())))
REPLICATIONS = st.builds(Replication, st.integers(1, 3), _heavy)


def copies(
    replication: Replication, keys: list[int], valid: list[bool], buckets: int
) -> list[list[tuple[int, int]]]:
    """Return (key, row) of the copies in each bucket."""
    key = np.array(keys, dtype=np.int64)
    order, starts = Fragments.of(replication).sort_into_buckets(key, np.array(valid, dtype=np.bool_), buckets)
    return [[(keys[row], row) for row in order[starts[b] : starts[b + 1]]] for b in range(buckets)]


@settings(SETTINGS, max_examples=examples(200))
@given(REPLICATIONS, st.lists(st.tuples(KEYS, st.booleans()), max_size=40), st.integers(1, 7))
def test_each_row_comes_to_every_bucket_of_its_key_and_rests_in_one(
    replication: Replication, rows: list[tuple[int, bool]], buckets: int
) -> None:
    keys, valid = [key for key, _ in rows], [is_valid for _, is_valid in rows]
    found = copies(replication, keys, valid, buckets)
    given_fragments = dict(replication.heavy)
    resting: list[int] = []
    homes: list[int] = []
    for bucket, came in enumerate(found):
        assert came == sorted(came)
        key = np.array([k for k, _ in came], dtype=np.int64)
        row = np.array([n for _, n in came], dtype=np.int64)
        placed = Fragments.of(replication).place(key, row, bucket, buckets)
        resting += row.tolist() if placed.female is None else row[placed.female].tolist()
        homes += row.tolist() if placed.home is None else row[placed.home].tolist()
    whole = [n for n, is_valid in enumerate(valid) if is_valid]
    assert sorted(resting) == sorted(homes) == whole
    for row, key in enumerate(keys):
        wanted = min(given_fragments.get(key, replication.every), buckets) if valid[row] else 0
        assert sum((key, row) in came for came in found) == wanted


@settings(SETTINGS, max_examples=examples(200))
@given(REPLICATIONS, REPLICATIONS, KEYS, st.integers(1, 7))
def test_the_buckets_of_fewer_fragments_are_among_those_of_more(
    before: Replication, more: Replication, key: int, buckets: int
) -> None:
    """So rows that rest need not move when fragments grow: later males come to them."""
    fewer, grown = (copies(r, [key], [True], buckets) for r in (before, before.grown(more)))
    assert all(came in ([], wider) for came, wider in zip(fewer, grown, strict=True))


def test_rows_of_one_key_rest_evenly_in_all_buckets() -> None:
    fragments = Fragments.of(Replication(ALL_BUCKETS))
    key, pos = np.zeros(8000, dtype=np.int64), np.arange(8000) + (7 << 32)
    females = [fragments.place(key, pos, bucket, 8).female for bucket in range(8)]
    counts = [0 if female is None else int(female.sum()) for female in females]
    assert sum(counts) == 8000
    assert min(counts) > 800


def test_what_is_not_replicated_is_not_looked_at() -> None:
    key = np.array([1, 2], dtype=np.int64)
    placed = Fragments.of(Replication(1, ((9, 4),))).place(key, key, 0, 4)
    assert (placed.female, placed.home) == (None, None)


def arrivals(count: int, first: int = 0) -> dict[int, list[Row]]:
    """Return rows of one key on both streams."""
    values: dict[str, object] = {"k": 5, "m": None, "v": 0, "w": None}
    return {i: [Row(n, n, values) for n in range(first, first + count)] for i in (1, 2)}


def spread(runner: Runner) -> list[int]:
    """Return the rows that each bucket holds."""
    return [sum(len(s) for j in b.families.values() for s in j.segments()) for b in runner.state]


@pytest.mark.parametrize("heavy", [Replication(ALL_BUCKETS), Replication(1, ((5, 4),))])
def test_the_rows_of_one_key_rest_in_all_its_buckets_and_each_pair_is_made_once(heavy: Replication) -> None:
    runner = Runner(STREAMS, buckets=4)
    plan = replicated(build_plan([a_query(1, 1000)], STREAMS), heavy)
    tables = {i: a_table(STREAMS[i], rows) for i, rows in arrivals(60).items()}
    outputs = runner.step(tables, [plan])
    assert sum(runner.results.values()) == len(runner.results) == 60 * 60
    assert sum(spread(runner)) == 120
    assert min(spread(runner)) > 12
    counters = [c for output in outputs for c in output.keys]
    assert sum(c.rows for c in counters) == 120
    assert sum(c.keys for c in counters) == 2
    assert sum(c.copies for c in counters) == 480


def test_a_key_may_get_more_buckets_while_its_rows_rest() -> None:
    world = World(STREAMS, buckets=4)
    plan = build_plan([query := a_query(1, 1000)], STREAMS)
    world.batch(dict(arrivals(8)), [plan], [query])
    assert sorted(spread(world.runner)) == [0, 0, 0, 16]
    grown = replicated(build_plan([query], STREAMS, plan), Replication(1, ((5, 3),)))
    world.batch(dict(arrivals(8, first=8)), [grown], [query])
    assert sorted(spread(world.runner))[0] == 0
    assert sorted(spread(world.runner))[1] > 0


@pytest.mark.parametrize("backfill", ["state", "none"])
def test_a_family_that_goes_and_comes_at_one_boundary_finds_its_rows_again(backfill: Backfill) -> None:
    """No bucket sees the version without it: its rows rest on in all buckets of their key."""
    world = World(STREAMS, buckets=4)
    first = replicated(build_plan([old := a_query(1, 1000)], STREAMS), Replication(ALL_BUCKETS))
    world.batch(dict(arrivals(12)), [first], [old])
    gone = build_plan([], STREAMS, first)
    back = build_plan([new := a_query(2, 1000, backfill=backfill)], STREAMS, gone)
    world.batch(dict(arrivals(4, first=12)), [gone, back], [new])
    assert back.families[0].replication == Replication(ALL_BUCKETS)
