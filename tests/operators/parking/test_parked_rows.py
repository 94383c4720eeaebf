"""Leading rows wait on disk: closed segments are neither opened nor in memory until partners are near."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.values.policies.memory import Memory
from catalog.values.stream import Order
from operators.bucket.counters import memory_counters
from operators.parking.parked_rows import ParkedRows
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.operators.harness import Runner
from tests.operators.segment_builders import a_segment
from tests.operators.test_orders import ordered_stream, saving, table_of

BATCH = 100
LEAD = 20


def scrambled(rng: np.random.Generator, rows: int, by: int) -> list[int]:
    return (np.argsort(np.arange(rows) + rng.uniform(0, by, rows), kind="stable") // 2).tolist()


@pytest.mark.parametrize("buckets", [1, 2])
def test_memory_does_not_grow_with_the_lag(buckets: int) -> None:
    rng = np.random.default_rng(buckets)
    k, read_ahead, batches = 60, 200, 35
    streams = {n: ordered_stream(n, name, "bigint", Order("e", k)) for n, name in ((1, "A"), (2, "B"))}
    values = {n: scrambled(rng, batches * BATCH, 25) for n in streams}
    text = "SELECT a.v AS v FROM A a JOIN B b ON a.e = b.e"
    query = bind(text, {s.name: s for s in streams.values()}, query_id=1)
    plan = saving(build_plan([query], streams), Memory("dbf", read_ahead))
    (family,) = plan.families
    plain, saved = Runner(streams, buckets, None), Runner(streams, buckets, None, stored=True)
    closed: set[str] = set()
    seen: set[str] = set()
    for batch in range(batches + LEAD):
        tables = {}
        for n, begin in ((1, batch * BATCH), (2, (batch - LEAD) * BATCH)):
            rows = [(e, 0, 0, 0) for e in values[n][max(begin, 0) : max(begin + BATCH, 0)]]
            tables[n] = table_of(streams[n], rows, begin)
        plain.step(tables, [saving(plan, Memory())] if not batch else [])
        saved.step(tables, [plan] if not batch else [])
        assert plain.results == saved.results
        held = sum(map(len, saved.state_rows(family.id, "a")))
        held_plain = sum(map(len, plain.state_rows(family.id, "a")))
        counters = [c for b in saved.state for c in memory_counters(b.families) if c.side == "a"]
        waiting, parked = sum(c.waiting for c in counters), sum(c.parked for c in counters)
        assert held + waiting <= 2 * k + read_ahead + 2 * BATCH
        assert held + waiting + parked >= held_plain
        now = {s.id for b in saved.state for s in b.families[family.id].parked["a"].closed}
        # What has been opened does not come back, and before there are partners nothing is opened.
        assert not now & (seen - closed)
        if batch < LEAD:
            assert held == 0
            assert closed <= now
        if batch == LEAD - 1:
            assert parked >= held_plain - read_ahead
        closed, seen = now, seen | now
    assert not saved.violating
    assert len(seen) >= LEAD * BATCH // read_ahead
    assert saved.results


def test_rows_wait_on_disk_for_pairs_of_a_stream_that_lags() -> None:
    rng = np.random.default_rng(4)
    k, read_ahead, batches = 60, 200, 30
    streams = {
        n: ordered_stream(n, name, "bigint", Order("e", k)) for n, name in ((1, "A"), (2, "B"), (3, "C"))
    }
    text = "SELECT a.v AS v FROM A a JOIN B b ON a.e = b.e JOIN C c ON b.e = c.e"
    query = bind(text, {s.name: s for s in streams.values()}, query_id=1)
    plan = saving(build_plan([query], streams), Memory("dbf", read_ahead))
    step = next(family for family in plan.families if family.stream_a < 0)
    assert step.stream_b == 3
    values = {n: scrambled(rng, batches * BATCH, 25) for n in streams}
    runner = Runner(streams, slack_us=None, stored=True)
    for batch in range(batches):
        # B lags behind both others.
        begins = {n: (batch - (LEAD if n == 2 else 0)) * BATCH for n in streams}
        taken = {n: values[n][max(begin, 0) : max(begin + BATCH, 0)] for n, begin in begins.items()}
        tables = {
            n: table_of(streams[n], [(e, 0, 0, 0) for e in rows], max(begins[n], 0))
            for n, rows in taken.items()
        }
        runner.step(tables, [plan] if not batch else [])
        (bucket,) = runner.state
        counters = [c for c in memory_counters(bucket.families) if (c.family, c.side) == (step.id, "b")]
        held = sum(map(len, runner.state_rows(step.id, "b")))
        assert held + sum(c.waiting for c in counters) <= 2 * k + read_ahead + 2 * BATCH
    assert runner.results
    assert sum(c.parked for c in counters) >= (LEAD - 5) * BATCH


def test_a_bucket_in_which_rows_only_probe_parks_none() -> None:
    # Of a key that several buckets share, a bucket may have no row that rests in it.
    parked = ParkedRows(reach=1, read_ahead=2)
    assert parked.park(a_segment([(5, 5), (6, 6)]).cut(9, 10), newest=None) is None
    parked.settle(1, ())
    assert (parked.rows, parked.due(7)) == (0, [])
