"""Experiments of Window-Oblivious Join (Wu, Tan, Zhou) and of WNL and WHJ (Kostowski, Claypool).

    python -m tests.bench.oblivious [--figures whj|wo|all] [--rate 100] [--runs 3]

The operators run in this process, without Spark. Tables go to stdout as Markdown.

WHJ, §4: two streams in order, windows of 30 s, 100 keys, 60 s of which the last 30 s count. Counters stand
beside Equations 1 and 2, CPU time beside that of merging (Figures 4 to 7). Then come the rows that each
invalidation holds where one stream is 100 times as fast (Figure 8).

WO-Join, §5.1, Query 1: three streams joined by their order, a row each 20 ms (Poisson), Mul 2, scrambling
factors up to 500. From 10 s to 40 s S2 comes at an eighth of its rate, and then catches up; from 80 s to 90 s
S3 comes at eight times its rate. The rows held stand beside the optimum, which is found by looking back from
each result, and beside what Equation 8 predicts (Figure 5). The same follows with leading rows on disk
(Figure 9).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, get_args

import numpy as np
import pyarrow as pa
import typer

from catalog.values.plan import Invalidation, Memory, Plan, Probe
from catalog.values.stream import Order, Stream
from operators.bucket.counters import probe_counters
from operators.kernels.keys import Int64s
from operators.orders.order_progress import scrambling_factor
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.orders.buffers import OrderedStream, buffer_rows_of
from planner.orders.lag import lag
from planner.probes.asked_probe import probe_text
from planner.probes.ring_costs import JoinRates, expired_rows, ring_work
from tests.bench.reports import table
from tests.builders import SECOND_US, a_query, a_stream
from tests.operators.harness import Runner
from tests.operators.test_orders import ordered_stream

Doubles = np.ndarray[tuple[int], np.dtype[np.float64]]

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


@dataclass(frozen=True, slots=True)
class Arriving:
    """A stream of Query 1: values and times in order of arrival."""

    values: Int64s
    times_s: Doubles


def arriving(random: np.random.Generator, scramble: int, slow: bool, burst: bool, end_s: float) -> Arriving:
    """Draw a stream of a row each 20 ms, each value twice."""
    gaps = random.exponential(0.02, round(end_s / 0.02 * (2 if burst else 1)))
    if burst:
        made = np.cumsum(gaps)
        # In the burst the clock of the source runs eight times as fast.
        made = np.where(made < 80, made, np.where(made < 160, 80 + (made - 80) / 8, made - 70))
    else:
        made = np.cumsum(gaps)
    if slow:
        # A queue that lets an eighth of the rows pass, and later four times as many, until it is empty.
        served, times = 0.0, []
        for moment in made.tolist():
            gap = 0.16 if 10 <= max(served, moment) < 40 else 0.005
            served = max(moment, served + gap)
            times.append(served)
        made = np.array(times)
    order = np.argsort(np.arange(len(made)) + random.uniform(0, scramble, len(made)), kind="stable")
    made = made[made < end_s]
    return Arriving((order // 2).astype(np.int64)[: len(made)], made)


def optimum(streams: Sequence[Arriving], end_s: float) -> int:
    """Return the peak of the rows that results asked for, looking back from the last row of each.

    Of each second the most rows of each stream count, as in the paper.
    """
    most = np.zeros((round(end_s), len(streams)), dtype=np.int64)
    came = [
        [np.searchsorted(other.times_s, each.times_s, side="right") for other in streams] for each in streams
    ]
    places = [_places(stream.values) for stream in streams]
    for value in set.intersection(*(set(p) for p in places)):
        members = [p[value] for p in places]
        for last, own in enumerate(members):
            for place in own:
                moment = streams[last].times_s[place]
                earlier = [[p for p in m if streams[n].times_s[p] <= moment] for n, m in enumerate(members)]
                if all(earlier):
                    for n, found in enumerate(earlier):
                        if n != last:
                            asked = int(came[last][n][place]) - min(found)
                            most[int(moment), n] = max(most[int(moment), n], asked)
    return int(most.sum(axis=1).max())


def _places(values: Int64s) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for place, value in enumerate(values.tolist()):
        places.setdefault(value, []).append(place)
    return places


def query_1(streams: dict[int, Stream]) -> Plan:
    text = "SELECT a.v AS v FROM A a, B b, C c WHERE a.e = b.e AND b.e = c.e"
    query = bind(text, {s.name: s for s in streams.values()}, name="q", query_id=1)
    return build_plan([query], streams)


def wo(runs: int, end_s: int = 100) -> Iterator[str]:
    """Yield the table of Figure 5: rows held, the optimum and the prediction, and the accuracy."""
    settings = {
        "declared": (True, Memory()),
        "monitored": (False, Memory()),
        "declared, dbf, C = 100": (True, Memory("dbf", read_ahead=100)),
    }
    lines = []
    for name, (declared, memory) in settings.items():
        figures = np.array([_wo_run(seed, end_s, memory, declared=declared) for seed in range(runs)])
        lines.append((name, *figures[:, :5].mean(axis=0).round().astype(int), f"{figures[:, 5].min():.2%}"))
    header = ("k", "rows of the optimum, peak", "rows in memory", "of S3")
    yield table((*header, "pairs of the first step in memory", "rows predicted", "accuracy"), lines)


def _wo_run(seed: int, end_s: int, memory: Memory, *, declared: bool) -> tuple[float, ...]:
    random = np.random.default_rng(seed)
    drawn = [arriving(random, int(random.integers(0, 500)), n == 1, n == 2, end_s) for n in range(3)]
    factors = [scrambling_factor(stream.values) for stream in drawn]
    streams = {
        n: ordered_stream(n, name, "bigint", Order("e", factors[n - 1] if declared else None))
        for n, name in ((1, "A"), (2, "B"), (3, "C"))
    }
    runner, plan = Runner(streams), query_1(streams)
    plan = replace(plan, families=tuple(replace(family, memory=memory) for family in plan.families))
    peaks = Counter[str]()
    for second in range(end_s):
        begins, ends = ([int(np.searchsorted(s.times_s, at)) for s in drawn] for at in (second, second + 1))
        tables = {n: rows_of(streams[n], drawn[n - 1], begins[n - 1], ends[n - 1]) for n in streams}
        runner.step(tables, [plan] if second == 0 else [])
        held = _held(runner)
        pairs = sum(rows for stream, rows in held.items() if stream < 0)
        peaks |= {"rows": held.total() - pairs, "of S3": held[3], "pairs": pairs}
        if all(ends):
            since_s, seconds = max(second - 4, 0), min(second + 1, 5)
            before = [int(np.searchsorted(s.times_s, since_s)) for s in drawn]
            recent = zip(factors, before, ends, strict=True)
            known = [OrderedStream(k, max(end - begin, 1) / seconds) for k, begin, end in recent]
            lags = [
                [lag(drawn[i].values, ends[i], drawn[j].values, ends[j]) for j in range(3)] for i in range(3)
            ]
            peaks |= {"predicted": round(sum(buffer_rows_of(known, i, lags[i]) for i in range(3)))}
    counts = [Counter(stream.values.tolist()) for stream in drawn]
    possible = sum(counts[0][v] * counts[1][v] * counts[2][v] for v in counts[0])
    accuracy = sum(runner.results.values()) / possible
    found = (peaks[name] for name in ("rows", "of S3", "pairs", "predicted"))
    return optimum(drawn, end_s), *found, accuracy


def _held(runner: Runner) -> Counter[int]:
    """Return the rows held in memory by stream; what the first step joined has a negative number."""
    (bucket,) = runner.state
    held = Counter[int]()
    for joins in bucket.families.values():
        of = {"a": joins.family.plan.stream_a, "b": joins.family.plan.stream_b}
        for _, side, _, state in joins.slices():
            held[of[side]] += state.rows
        for side, parked in joins.parked.items():
            # Segments that are not stored here are closed where they are.
            held[of[side]] += parked.tail.rows
    return held


def rows_of(stream: Stream, arrived: Arriving, begin: int, end: int) -> pa.Table:
    count = end - begin
    columns = [
        pa.array((arrived.times_s[begin:end] * SECOND_US).astype(np.int64)).cast(pa.timestamp("us")),
        pa.array(arrived.values[begin:end]),
        pa.nulls(count, pa.int32()),
        pa.nulls(count, pa.int32()),
        pa.array(np.arange(begin, end)),
    ]
    return pa.table(columns, names=[*(c.name for c in stream.columns), "_pos"])


def main(
    figures: Annotated[str, typer.Option(help="whj, wo or all")] = "all",
    rate: Annotated[float, typer.Option(help="Rows per second of WHJ.")] = 100.0,
    runs: Annotated[int, typer.Option(help="Runs of WO-Join.")] = 3,
) -> None:
    """Run the experiments and print their tables."""
    for name, tables in (("whj", whj(rate)), ("wo", wo(runs))):
        for text in tables if figures in (name, "all") else ():
            typer.echo(f"{text}\n")


if __name__ == "__main__":
    typer.run(main)
