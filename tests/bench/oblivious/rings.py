"""Experiments of WNL and WHJ (Kostowski, Claypool, §4): counters beside Equations 1 and 2, and CPU time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import numpy as np
import pyarrow as pa

from catalog.values.policies.probe import Invalidation, Probe
from operators.bucket.counters import probe_counters
from operators.kernels.keys import Int64s
from planner.build.build_plan import build_plan
from planner.probes.asked_probe import probe_text
from tests.bench.oblivious.ring_costs import JoinRates, expired_rows, ring_work
from tests.bench.reports import table
from tests.builders import SECOND_US, a_query, a_stream
from tests.operators.harness import Runner

WINDOW_S, SECONDS, KEYS, BATCH_S = 30.0, 60.0, 100, 0.25
INVALIDATIONS: tuple[Invalidation, ...] = get_args(Invalidation)


def ring_run(probe: Probe, a_per_s: float, b_per_s: float) -> tuple[Counter[str], float, int]:
    """Join two streams in order, keys drawn at random.

    Returns:
        Counters summed over both sides and the last 30 s, with ``live`` and ``expired`` rows of side b as
        means of its batches; CPU time of the last 30 s; pairs made in all.
    """
    streams = {n: replace(a_stream(n), lateness_us=0) for n in (1, 2)}
    window_us = int(WINDOW_S * SECOND_US)
    plan = build_plan([a_query(1, window_us, window_us, columns_a=(), columns_b=())], streams)
    plan = replace(plan, families=tuple(replace(family, probe=probe) for family in plan.families))
    runner, random = Runner(streams, slack_us=None), np.random.default_rng(11)
    begun, counted, cpu_s = {1: 0, 2: 0}, Counter[str](), 0.0
    batches = round(SECONDS / BATCH_S)
    for batch in range(batches):
        tables = {}
        for number, rate in ((1, a_per_s), (2, b_per_s)):
            count = round((batch + 1) * BATCH_S * rate) - begun[number]
            places = np.arange(begun[number], begun[number] + count)
            begun[number] += count
            times = ((places + number / 3) / rate * SECOND_US).astype(np.int64)
            tables[number] = rows_by_key(times, random.integers(0, KEYS, count), places)
        before = time.process_time()
        runner.step(tables, [plan] if batch == 0 else [])
        if batch * BATCH_S >= SECONDS / 2:
            cpu_s += time.process_time() - before
            (bucket,) = runner.state
            for side in probe_counters(bucket.families, bucket.clocks):
                counted.update({name: getattr(side, name) for name in ("scanned", "looked", "removed")})
                if side.side == "b":
                    counted.update(live=side.live, expired=side.expired)
    for held in ("live", "expired"):
        counted[held] //= batches // 2
    return counted, cpu_s, sum(runner.results.values())


def rows_by_key(times_us: Int64s, keys: Int64s, places: Int64s) -> pa.Table:
    nothing = {"m": pa.string(), "v": pa.int32(), "w": pa.int32()}
    columns = {"ts": pa.array(times_us).cast(pa.timestamp("us")), "k": pa.array(keys)}
    columns |= {name: pa.nulls(len(keys), kind) for name, kind in nothing.items()}
    return pa.table(columns | {"_pos": pa.array(places)})


def whj(rate: float) -> Iterator[str]:
    """Yield the tables of Figures 4 to 8."""
    lines: list[tuple[object, ...]] = []
    probes = [Probe(), Probe("loops"), *(Probe("hash", n) for n in (10, 100, 1000))]
    probes += [Probe("hash", 100, how) for how in INVALIDATIONS[1:]]
    for rates, raced in (((rate, rate), probes), ((rate, 2 * rate), probes[:4])):
        expected, seconds = JoinRates(*rates, WINDOW_S, WINDOW_S), SECONDS / 2
        ran = {probe: ring_run(probe, *rates) for probe in raced}
        _, merged_s, pairs = ran[probes[0]]
        for probe, (counted, cpu_s, results) in ran.items():
            assert results == pairs, probe
            scanned = removing = None
            if probe.has_rings:
                # More rings than keys scan no less: the equation has no such end.
                wanted = ring_work(expected, replace(probe, cells=min(probe.cells, KEYS)))
                looked = ring_work(expected, probe)
                scanned = counted["scanned"] / seconds / wanted.scanned
                removing = counted["looked"] + counted["removed"]
                removing = removing / seconds / (looked.looked + looked.removed)
            pair = "{:g}, {:g}".format(*rates)
            lines.append((probe_text(probe), pair, scanned, removing, cpu_s, cpu_s / merged_s))
    header = ("probe", "rates /s", "scanned / Eq.", "invalidation / Eq.", "CPU s", "CPU / merge")
    yield table(header, lines, texts=2)
    lines, slow = [], rate / 10
    for how in INVALIDATIONS:
        probe = Probe("hash", 100, how)
        counted, _, _ = ring_run(probe, slow, 100 * slow)
        predicted = expired_rows(JoinRates(slow, 100 * slow, WINDOW_S, WINDOW_S), probe, "b")
        lines.append((how, counted["live"], counted["expired"], predicted))
    yield table(("invalidation", "live rows of B", "expired rows held", "predicted"), lines)
