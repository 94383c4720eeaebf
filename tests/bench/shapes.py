"""Joins of three streams, as-of joins, bands, large states and trees: CPU time without Spark, and whole jobs.

    python -m tests.bench.shapes [shared|as-of|band|held|closed|orders|jobs]...

The workers' own code runs in this process: PACK, join, store, write. Loads of one figure take turns batch by
batch, and a figure is the median of its batches. DuckDB joins the same rows at once, on one thread. The
jobs are those of `sluice run`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, pairwise
from pathlib import Path
from typing import Annotated

import duckdb
import numpy as np
import pyarrow as pa
import typer

from catalog.values.plan import Plan
from catalog.values.query import Query
from catalog.values.statistics import FamilyProfile, Measure, Profile, StreamProfile
from catalog.values.stream import FilesSource, Stream
from planner.bind.bind import bind
from planner.bind.keys.step_keys import Joining
from planner.build.build_plan import build_plan
from planner.costs.calibration.shipped import SHIPPED
from planner.families.families import family_of
from planner.trees.choice import OrderChoice
from planner.trees.join_order import JoinOrder
from planner.trees.order_costs import OrderCosts
from planner.trees.order_rates import OrderRates, pair_queries
from tests.bench.measuring import Batches
from tests.bench.reports import table
from tests.bench.runs import manifests_of, run_workload, write_part, write_workload
from tests.builders import SECOND_US, a_stream
from tests.pipeline import Pipeline, Ran, Rows, race
from tests.planner.trees.all_trees import all_streams, all_trees

COLUMNS = (("k", "bigint"), ("j", "bigint"), ("v", "double"))
STREAMS = {
    s.name: s for s in (a_stream(n, 0, COLUMNS, source=FilesSource("parquet", "")) for n in range(1, 5))
}
#: Batches before the first that counts.
WARM = 2
#: Rows that endless windows hold.
HELD = (5_000_000, 50_000_000)
#: Rows of each stream in a batch that fills a state.
FILL = 250_000
#: Trees by the streams that they join.
JOBS = {
    "ABC": ("((a, b), c)", "(a, b, c)"),
    "ABCD": ("(((a, b), c), d)", "((a, b), (c, d))", "(a, b, c, d)"),
}
#: Seconds of event time and batches of a run that compares trees.
TREE_S, TREE_BATCHES = 40, 5
#: CPU seconds that the slowest tree is predicted to take. Where it takes less, the costs of batches hide it.
SLOWEST_S = (0.4, 10.0)
WINDOWS_S = [2.5 * n for n in range(1, 13)]


@dataclass(frozen=True, slots=True)
class Made:
    """Rows of a stream: so many per second, and so many values of each key."""

    rate: int
    keys: int
    others: int = 1

    def rows(self, stream: Stream, seconds: int, seed: int) -> pa.Table:
        """Return its rows in the order of event times."""
        rng, count = np.random.default_rng((seed, stream.id)), self.rate * seconds
        times = np.sort(rng.integers(0, seconds * SECOND_US, count))
        return pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us")),
                "k": rng.integers(0, self.keys, count),
                "j": rng.integers(0, self.others, count),
                "v": rng.random(count),
                "_pos": np.arange(count),
            }
        )


def planned(texts: Sequence[str]) -> Plan:
    """Return the plan of some queries."""
    queries = [bind(text, STREAMS, name=f"q{n}", query_id=n) for n, text in enumerate(texts, 1)]
    return build_plan(queries, {s.id: s for s in STREAMS.values()})


def pieces(tables: Mapping[str, pa.Table], plan: Plan, batches: int) -> Iterator[list[Rows]]:
    """Yield the rows of each batch: as many of every stream as of each other batch."""
    for batch in range(batches):
        found = []
        for stream in plan.streams:
            of = tables[stream.name]
            start, end = (of.num_rows * number // batches for number in (batch, batch + 1))
            found.append(Rows(stream.id, of.slice(start, end - start)))
        yield found


def measured(
    loads: Mapping[str, Sequence[str]], tables: Mapping[str, pa.Table], batches: int, warm: int = WARM
) -> dict[str, Batches]:
    """Return what each load takes."""
    plans = {name: planned(texts) for name, texts in loads.items()}
    with tempfile.TemporaryDirectory(prefix="sluice-shapes-") as root:
        every = pieces(tables, next(iter(plans.values())), batches)
        ran = race(plans, every, Path(root), buckets=2)
    return {name: Batches.of(batches, warm) for name, batches in ran.items()}


def duckdb_s(text: str, tables: Mapping[str, pa.Table]) -> tuple[float, int]:
    """Return the CPU seconds and the count of rows of a query of DuckDB."""
    with duckdb.connect(config={"threads": 1}) as duck:
        for name, rows in tables.items():
            duck.register(f"given_{name}", rows)
            duck.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
        began_s = time.process_time()
        duck.execute(f"CREATE TABLE made AS {text}")
        taken_s = time.process_time() - began_s
        ((count,),) = duck.sql("SELECT count(*) FROM made").fetchall()
        return taken_s, int(count)


def three(window_s: float) -> str:
    """Return a query over three streams on one key."""
    over = ", ".join(f"{name} [RANGE {window_s} SECONDS] {name.lower()}" for name in "ABC")
    return f"SELECT a.v AS x, b.v AS y, c.v AS z FROM {over} WHERE a.k = b.k AND b.k = c.k"


def shared() -> None:
    """Compare 12 queries over three streams with one, and with 12 over two streams beside them."""
    tables = {n: Made(1000, 60_000).rows(STREAMS[n], 500, 1) for n in "ABC"}
    two = [
        f"SELECT a.v AS x, b.v AS y FROM A [RANGE {w} SECONDS] a, B [RANGE {w} SECONDS] b WHERE a.k = b.k"
        for w in WINDOWS_S
    ]
    loads = {"1": [three(30)], "12": [three(w) for w in WINDOWS_S]}
    loads["12 beside 12 of two streams"] = [*loads["12"], *two]
    lines = []
    for batches in (10, 50):
        found = measured(loads, tables, batches)
        one = found["1"].cpu_ms
        for name, load in found.items():
            lines.append((name, 500 // batches, load.cpu_ms, load.cpu_ms / one, load.held, load.stored))
    typer.echo(table(("queries", "batch, s", "CPU, ms", "to 1", "rows held", "stored"), lines))
    apart = " AND ".join(
        f"abs(epoch_us({x}.ts) - epoch_us({y}.ts)) < {30 * SECOND_US}" for x, y in ("ab", "ac", "bc")
    )
    text = f"SELECT a.v, b.v, c.v FROM A a, B b, C c WHERE a.k = b.k AND b.k = c.k AND {apart}"
    cpu_s, count = duckdb_s(text, tables)
    rows = sum(t.num_rows for t in tables.values())
    own_s = found["1"].cpu_ms * 50 / 1e3
    assert count == found["1"].stored, "the counts differ"
    typer.echo(
        f"{rows:,} rows: {own_s:.2f} s of CPU in 50 batches, DuckDB {cpu_s:.2f} s ({own_s / cpu_s:.2f})"
    )


def as_of() -> None:
    """Compare an as-of join with DuckDB's."""
    tables = {n: Made(5000, 500).rows(STREAMS[n], 200, 2) for n in "AB"}
    text = "SELECT a.v AS x, b.v AS y FROM A [PARTITION BY k ROWS 1] a, B [NOW] b WHERE a.k = b.k"
    found = measured({"as-of": [text]}, tables, 10)["as-of"]
    cpu_s, count = duckdb_s("SELECT a.v, b.v FROM B b ASOF JOIN A a ON a.k = b.k AND b.ts >= a.ts", tables)
    own_s = found.cpu_ms * 10 / 1e3
    rows = sum(t.num_rows for t in tables.values())
    typer.echo(
        f"as-of, {rows:,} rows: {own_s:.2f} s of CPU for {found.stored:,} results, "
        f"DuckDB {cpu_s:.2f} s for {count:,} ({own_s / cpu_s:.1f})"
    )


def band() -> None:
    """Compare a band of one per cent with nested loops over the same rows."""
    tables = {n: Made(400, 1).rows(STREAMS[n], 40, 3) for n in "AB"}
    over = "SELECT a.v AS x, b.v AS y FROM A [RANGE 10 SECONDS] a, B [RANGE 10 SECONDS] b WHERE "
    loads = {
        "band": [over + "a.v BETWEEN b.v - 0.005 AND b.v + 0.005"],
        # The same condition in a form of which no band is known.
        "loops": [over + "(a.v - b.v) * (a.v - b.v) <= 0.000025"],
    }
    plans = {name: planned(texts) for name, texts in loads.items()}
    with tempfile.TemporaryDirectory(prefix="sluice-shapes-") as root:
        ran = race(plans, pieces(tables, plans["band"], 40), Path(root), buckets=2)
    lines = []
    for name, batches in ran.items():
        touched = sum(counters.touched for batch in batches for counters in batch.slices)
        pairs = sum(batch.pairs for batch in batches)
        lines.append((name, Batches.of(batches, WARM).cpu_ms, touched, pairs, touched / pairs))
    typer.echo(table(("method", "CPU, ms", "candidates", "pairs", "candidates to pairs"), lines))


def held() -> None:
    """Compare rates while a window holds ten times as many rows, with as many partners for each."""
    lines = []
    for window_s, keys in ((10, 100_000), (100, 1_000_000)):
        over = f"FROM A [RANGE {window_s} SECONDS] a, B [RANGE {window_s} SECONDS] b"
        tables = {n: Made(20_000, keys).rows(STREAMS[n], window_s + 20, 4) for n in "AB"}
        batches = window_s + 20
        found = measured(
            {"held": [f"SELECT a.v AS x, b.v AS y {over} WHERE a.k = b.k"]}, tables, batches, window_s + 4
        )["held"]
        lines.append((found.held, 40_000 / found.cpu_ms * 1e3))
    typer.echo(table(("rows held", "rows/s of CPU"), lines, texts=0))
    typer.echo(f"ratio {lines[1][1] / lines[0][1]:.2f}")


@dataclass(slots=True)
class Endless:
    """A join of two streams with unbounded windows; a row of B has about one row of A as partner.

    Attributes:
        pipeline: The job.
        kind: ``rising`` if keys rise with time; otherwise they are drawn evenly from all keys.
        held: Rows that the state is to hold.
        given: Rows of each stream so far.
    """

    pipeline: Pipeline
    kind: str
    held: int
    given: int = 0

    def step(self, count: int) -> Ran:
        """Run a batch with ``count`` rows of each stream."""
        rng, position = np.random.default_rng(self.given), np.arange(self.given, self.given + count)
        if self.kind == "rising":
            keys = {"A": position, "B": np.maximum(position - rng.integers(0, 20_000, count), 0)}
        else:
            keys = {name: rng.integers(0, self.held // 2, count) for name in "AB"}
        self.given += count
        times = pa.array(position * 1000, pa.timestamp("us"))
        tables = {
            name: pa.table({"ts": times, "k": key, "j": position, "_pos": position})
            for name, key in keys.items()
        }
        return self.pipeline.step([Rows(STREAMS[name].id, rows) for name, rows in tables.items()])


def closed() -> None:
    """Compare the work of a small batch while unbounded windows hold few rows and ten times as many.

    Segments of such windows stay closed where no row of the batch has a partner.
    """
    lines = []
    text = "SELECT a.j AS x, b.j AS y FROM A [RANGE UNBOUNDED] a, B [RANGE UNBOUNDED] b WHERE a.k = b.k"
    for kind in ("rising", "even"):
        for held in HELD:
            with tempfile.TemporaryDirectory(prefix="sluice-shapes-") as root:
                endless = Endless(Pipeline(planned([text]), 2, Path(root)), kind, held)
                while endless.given < held // 2:
                    endless.step(FILL)
                ran = [endless.step(4000) for _ in range(WARM + 30)][WARM:]
                endless.pipeline.close()
            lazy, read = (
                statistics.mean(sum(getattr(c, name) for c in batch.slices) for batch in ran)
                for name in ("lazy_segments", "read_segments")
            )
            taken_ms = sorted(1e3 * batch.cpu_s for batch in ran)
            median, mean = statistics.median(taken_ms), statistics.mean(taken_ms)
            lines.append((kind, ran[-1].state_rows, median, mean, lazy, read, ran[-1].pairs))
        fewer, more = lines[-2:]
        typer.echo(f"{kind}: {fewer[2] / more[2]:.2f} of the speed by the median", err=True)
    heads = ("keys", "rows held", "CPU, ms", "mean, ms", "large segments", "read", "pairs")
    typer.echo(table(heads, lines))


def jobs() -> None:
    """Run whole jobs with Spark, one for each of some trees of joins, and take their wall time.

    The rate is that between the first and the last commit.
    """
    lines = []
    with tempfile.TemporaryDirectory(prefix="sluice-shapes-") as name:
        root, seconds, files = Path(name), 500, 25
        for stream in STREAMS.values():
            rows = Made(2000, 60_000).rows(stream, seconds, 5)
            times, *others = (rows.column(c).to_numpy() for c in ("ts", "k", "v"))
            for number in range(files):
                part = slice(rows.num_rows * number // files, rows.num_rows * (number + 1) // files)
                key, value = (column[part] for column in others)
                write_part(root / "in", stream.name, number, times[part].astype(np.int64), k=key, v=value)
        for streams, trees in JOBS.items():
            over = ", ".join(f"{name} [RANGE 20 SECONDS] {name.lower()}" for name in streams)
            equal = " AND ".join(f"{x}.k = {y}.k" for x, y in pairwise(streams.lower()))
            found = set()
            for number, tree in enumerate(trees):
                text = f"SELECT a.v AS x, b.v AS y FROM {over} WHERE {equal} TREE {tree}"
                path, out = root / f"{streams}{number}.yaml", root / f"{streams}{number}"
                write_workload(path, root / "in", {"q": text}, files_per_batch=2, names=streams)
                _, summary = run_workload(path, out)
                committed = manifests_of(out)
                between_s = (committed[-1].committed_at_us - committed[0].committed_at_us) / 1e6
                given = sum(s.rows for m in committed[1:] for s in m.streams)
                found.add(summary["results"]["q"])
                lines.append((tree, summary["input_rows"], summary["seconds"], given / between_s, *found))
            assert len(found) == 1, "the counts differ"
    typer.echo(table(("tree", "rows", "job, s", "rows/s", "results"), lines))


def orders(workloads: int = 10) -> None:
    """Run random joins of four streams by every tree; compare the chosen one with the fastest.

    In each workload the slowest tree takes twice as long as the fastest, as predicted and as measured. The
    trees are those that add one stream after the other, with the pairs of each step resting or not, and
    the bushy ones.
    """
    lines, seed = [], 0
    while len(lines) < workloads:
        seed += 1
        rng = np.random.default_rng(seed)
        made = {
            n: Made(int(rng.choice([40, 200, 800])), *rng.choice([100, 600, 4000], 2).tolist())
            for n in "ABCD"
        }
        tables = {n: made[n].rows(STREAMS[n], TREE_S, seed) for n in made}
        over = ", ".join(f"{n} [RANGE {rng.choice([2, 5, 10])} SECONDS] {n.lower()}" for n in "ABCD")
        names = "abcd"
        joined = [(names[rng.integers(0, at)], names[at], str(rng.choice(["k", "j"]))) for at in (1, 2, 3)]
        text = f"SELECT a.v AS x FROM {over} WHERE " + " AND ".join(
            f"{p}.{c} = {q}.{c}" for p, q, c in joined
        )
        ranked = OrderChoice(partial(_profile, made), SHIPPED)
        bind(text, STREAMS, choose=ranked)
        assert ranked.last is not None
        shape = ranked.last.shape
        costs = OrderCosts(OrderRates.of(shape, _profile(made, pair_queries(shape))), SHIPPED)
        possible = {order.joining: order for order in _every_order(costs)}
        predicted = sorted(TREE_S * order.cpu_s for order in possible.values())
        if predicted[-1] < 2 * predicted[0] or not SLOWEST_S[0] < predicted[-1] < SLOWEST_S[1]:
            continue
        chosen = ranked.last.orders[0].joining
        ran = {joining: _taken(text, joining, tables) for joining in possible}
        assert len({results for _, results in ran.values()}) == 1, "the counts differ"
        taken = {joining: cpu_s for joining, (cpu_s, _) in ran.items()}
        # Most trees are far from the fastest one: one run of them is enough.
        near = [joining for joining, cpu_s in taken.items() if cpu_s < 1.3 * min(taken.values())]
        for joining in {chosen, *near}:
            for _ in range(2):
                taken[joining] = min(taken[joining], _taken(text, joining, tables)[0])
        best = min(taken, key=lambda joining: taken[joining])
        fastest, worst = taken[best], max(taken.values())
        if worst >= 2 * fastest:
            shown = (possible[chosen].text(shape), possible[best].text(shape))
            lines.append((*shown, seed, len(possible), fastest, worst / fastest, taken[chosen] / fastest))
            typer.echo(f"seed {seed}: {text}\n  {shown}: {lines[-1][5]:.1f}, {lines[-1][6]:.2f}", err=True)
    heads = ("chosen", "fastest", "seed", "trees", "fastest, s", "worst to fastest", "chosen to fastest")
    typer.echo(table(heads, lines, texts=2))
    typer.echo(f"within 10%: {sum(line[6] <= 1.1 for line in lines)} of {len(lines)}")


def _every_order(costs: OrderCosts) -> Iterator[JoinOrder]:
    """Yield all possible trees that join the streams of a query."""
    ids = [stream.id for stream in costs.rates.shape.streams]
    for tree in all_trees(tuple(range(len(ids))), ids):
        steps = range(2, len(tree)) if all_streams(tree) else ()
        for again in chain.from_iterable(combinations(steps, count) for count in range(len(steps) + 1)):
            if (order := costs.of(tree, again)) is not None:
                yield order


def _profile(made: Mapping[str, Made], queries: Sequence[Query]) -> Profile:
    """Return the true statistics: keys are drawn evenly, each from the first so many numbers."""
    families = []
    for query in queries:
        ((a, b),) = query.key
        most = max(
            made[side.stream].keys if column == "k" else made[side.stream].others
            for side, column in ((query.a, a), (query.b, b))
        )
        families.append(FamilyProfile(family_of(query), Measure(1 / most)))
    streams = tuple(StreamProfile(STREAMS[n].id, Measure(float(of.rate))) for n, of in made.items())
    return Profile(streams, families=tuple(families), batch_s=Measure(TREE_S / TREE_BATCHES))


def _taken(text: str, joining: Joining, tables: Mapping[str, pa.Table]) -> tuple[float, int]:
    """Return the CPU time and the results of a query whose streams are joined in one way."""
    query = bind(text, STREAMS, name="q", query_id=1, choose=lambda _: joining)
    plan = build_plan([query], {s.id: s for s in STREAMS.values()})
    with tempfile.TemporaryDirectory(prefix="sluice-shapes-") as root:
        pipeline = Pipeline(plan, 2, Path(root))
        ran = [pipeline.step(each) for each in pieces(tables, plan, TREE_BATCHES)]
        # Pairs that change their bucket are joined one batch later, and there may be two such steps.
        ended = [Rows(stream.id, tables[stream.name].slice(0, 0)) for stream in plan.streams]
        ran += [pipeline.step(ended) for _ in range(2)]
        pipeline.close()
    return sum(batch.cpu_s for batch in ran), sum(batch.pairs for batch in ran)


FIGURES = {
    "shared": shared,
    "as-of": as_of,
    "band": band,
    "held": held,
    "closed": closed,
    "orders": orders,
    "jobs": jobs,
}


def main(
    figures: Annotated[list[str] | None, typer.Argument(help="Of these; all by default.")] = None,
) -> None:
    """Measure and print."""
    for name in figures or list(FIGURES):
        FIGURES[name]()


if __name__ == "__main__":
    typer.run(main)
