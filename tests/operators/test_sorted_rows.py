"""Rows that wait for their place in the order: results come in order, and with leading rows on disk, too."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from catalog.values.control import Heartbeat
from catalog.values.policies.memory import Memory, MemoryStrategy
from catalog.values.stream import Order
from operators.bucket.counters import memory_counters
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.operators.harness import Runner
from tests.operators.parking.test_parked_rows import BATCH, scrambled
from tests.operators.test_orders import ordered_stream, saving, table_of

ROWS, NOISE = 2_000, 25


@pytest.mark.parametrize("way", ["msf", "hybrid"])
@pytest.mark.parametrize("streams_of", [2, 3])
@pytest.mark.parametrize("lead", [0, 10])
def test_results_come_in_order(way: MemoryStrategy, streams_of: int, lead: int) -> None:
    rng = np.random.default_rng(lead)
    k, read_ahead = 2 * NOISE + 2, 60
    names = {1: "A", 2: "B", 3: "C"}
    streams = {n: ordered_stream(n, names[n], "bigint", Order("e", k)) for n in range(1, streams_of + 1)}
    values = {n: scrambled(rng, ROWS, NOISE) for n in streams}
    further = " JOIN C c ON b.e = c.e" if streams_of == 3 else ""
    text = f"SELECT a.e AS e FROM A a JOIN B b ON a.e = b.e{further}"
    query = bind(text, {s.name: s for s in streams.values()}, query_id=1)
    plan = saving(build_plan([query], streams), Memory(way, read_ahead))
    final = next(f for f in plan.families if streams_of == 2 or f.stream_a < 0)
    runner = Runner(streams, 2, None, stored=True)
    came = Counter[int]()
    reached = -1
    for batch in range(ROWS // BATCH + lead + 1):
        tables = {}
        for n in streams:
            # The first stream leads by some batches.
            begin = (batch - (lead if n > 1 else 0)) * BATCH
            rows = [
                (e, 0, 0, place) for place, e in enumerate(values[n][max(begin, 0) : max(begin + BATCH, 0)])
            ]
            tables[n] = table_of(streams[n], rows, max(begin, 0))
        last = batch == ROWS // BATCH + lead
        beats = [Heartbeat(n, 10**9) for n in streams] if last else []
        outputs = runner.step(tables, [plan] if batch == 0 else [], heartbeats=beats)
        found = [output.results[final.id] for output in outputs if final.id in output.results]
        of_b = values[final.stream_b]
        clocks = [of_b[place] for table in found for place in table.column("_pos_b").to_pylist()]
        assert not clocks or min(clocks) > reached
        reached = max(clocks, default=reached)
        came.update(clocks)
        counters = [
            c for b in runner.state for c in memory_counters(b.families) if c.family == plan.families[0].id
        ]
        waiting = Counter[str]()
        for each in counters:
            waiting[each.side] += each.waiting
        # The last k rows of each stream wait; blocks of the progress have no rows besides.
        assert all(rows <= k + read_ahead * (way == "hybrid") for rows in waiting.values())
        if way == "hybrid":
            held = [sum(map(len, runner.state_rows(f.id, "a"))) for f in plan.families[:1]]
            assert max(held) <= read_ahead + 2 * BATCH
    counts = [Counter(of) for of in values.values()]
    assert came == Counter({e: int(np.prod([c[e] for c in counts])) for e in counts[0]})
    assert not runner.violating
