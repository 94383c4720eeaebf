"""The cost of outer, semi and anti joins compared with inner ones: CPU time, rows held, results.

    python -m tests.bench.absence [--part 0.25] [--thousand-part 0.01] [--turns 5] [--out docs/bench]

The streams and windows of many-keys, a part of its rows and as small a part of its keys, so that a row has as
many partners. The workers' own code runs in this process (``service.calibrate``), without Spark: read, PACK,
join, store, write. The loads take turns of a few batches each, in another order each time; figures are
medians over turns.

    load            queries                      is compared with
    12 inner        windows of 2.5, 5 ... 30 s
    12 left         the same, as LEFT JOIN       12 inner: at most 1.35
    12 anti, semi   the same                     12 inner; an anti join is to hold fewer rows
    dense           all of these over a tenth of the keys: 12 partners in the largest window for 1.2
    1 left          30 s
    1,000 left      30 ms to 30 s                1 left: at most 1.5

What every query has given in all batches must be what DuckDB finds in the same files.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import duckdb
import typer

from catalog.values.plan import Plan
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from service.calibrate.in_process_job import InProcessJob
from service.calibrate.workload import Batch, SyntheticWorkload, WindowQuery
from tests.bench.peers.workloads import WORKLOADS

MANY_KEYS = WORKLOADS["many-keys"]
BATCH_S = MANY_KEYS.streams.rows / MANY_KEYS.streams.files / MANY_KEYS.streams.rate_per_s
TWELVE = tuple(query.window_us for query in MANY_KEYS.queries)
LONGEST = TWELVE[-1:]
THOUSAND = tuple(LONGEST[0] * number // 1000 for number in range(1, 1001))
#: Batches of one load before the next one's turn.
TURN = 2
JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}


@dataclass(frozen=True, slots=True)
class Load:
    """Queries of one kind that differ in their windows.

    Attributes:
        kind: A key of ``JOINS``.
        windows_us: Windows of both sides, whole milliseconds; query n has the n-th, from 1.
        dense: Over a tenth of the keys.
    """

    kind: str
    windows_us: tuple[int, ...]
    dense: bool = False

    @property
    def name(self) -> str:
        """Name, as in the table."""
        return f"{len(self.windows_us):,} {self.kind}" + (", dense" if self.dense else "")

    def texts(self) -> list[str]:
        """Return the queries in CQL."""
        selected = "A.ts AS ats, A.k AS k" + (", B.ts AS bts" if self.kind in ("inner", "left") else "")
        windows = [f"[RANGE {us // 1000} MILLISECONDS]" for us in self.windows_us]
        return [f"SELECT {selected} FROM A {w} {JOINS[self.kind]} B {w} ON A.k = B.k" for w in windows]


#: Loads over the same rows; the first of each group is what the others are compared with.
_KINDS = ("inner", "left", "anti", "semi")
GROUPS = (
    tuple(Load(kind, TWELVE) for kind in _KINDS),
    tuple(Load(kind, TWELVE, dense=True) for kind in _KINDS),
    (Load("left", LONGEST), Load("left", THOUSAND), Load("inner", LONGEST), Load("inner", THOUSAND)),
)


@dataclass(slots=True)
class Measured:
    """Figures of a load.

    Attributes:
        turns_s: CPU time of a batch, s, mean of each turn once the windows were full.
        held: Rows held at the end.
        stored: Result rows, all batches: each once for all its queries.
        counts: Results by query, all batches.
    """

    turns_s: list[float] = field(default_factory=list)
    held: int = 0
    stored: int = 0
    counts: Counter[int] = field(default_factory=Counter)

    @property
    def cpu_ms(self) -> float:
        """CPU time of a batch, ms."""
        return statistics.median(self.turns_s) * 1e3


def rows_of(part: float, *, dense: bool) -> SyntheticWorkload:
    """Return the streams of many-keys, a part of them."""
    streams = MANY_KEYS.streams
    rate, keys = streams.rate_per_s * part, max(round(streams.keys * part / (10 if dense else 1)), 1)
    longest_s = LONGEST[0] / 1e6
    return SyntheticWorkload("many-keys", (WindowQuery(longest_s, longest_s),), rate, rate, BATCH_S, keys)


def plan_of(load: Load, rows: SyntheticWorkload) -> Plan:
    """Plan a load: Mem-Opt, as the peers' benchmark has it."""
    queries = [bind(text, rows.streams, name=f"q{n}", query_id=n) for n, text in enumerate(load.texts(), 1)]
    streams = {stream.id: stream for stream in rows.streams.values()}
    return build_plan(
        queries, streams, objective=Objective("mem-opt", cost_model="paper"), profile=rows.profile
    )


def measure(loads: Sequence[Load], part: float, turns: int) -> dict[Load, Measured]:
    """Run loads over the same rows in turn.

    Raises:
        AssertionError: Some query has given another number of results than DuckDB finds.
    """
    rows, order = rows_of(part, dense=loads[0].dense), random.Random(len(loads))
    fill = -(-rows.batches_to_fill // TURN)
    measured = {load: Measured() for load in loads}
    with tempfile.TemporaryDirectory(prefix="sluice-absence-") as root:
        directory = Path(root)
        jobs = {load: InProcessJob(plan_of(load, rows), rows.buckets, directory) for load in loads}
        batches = next(rows.batches(directory, at_once=(fill + turns) * TURN))
        for turn in range(fill + turns):
            some = batches[turn * TURN : (turn + 1) * TURN]
            for load in order.sample(list(loads), len(loads)):
                took_s = sum(_process(jobs[load], batch, measured[load]) for batch in some)
                if turn >= fill:
                    measured[load].turns_s.append(took_s / TURN)
        for job in jobs.values():
            job.close()
        for load, found in measured.items():
            wanted = expected_counts(directory, load)
            assert {n: found.counts[n] for n in wanted} == wanted, f"{load.name}: DuckDB finds other results"
    return measured


def _process(job: InProcessJob, batch: Batch, into: Measured) -> float:
    """Process one batch and return its CPU time, s."""
    began_s = time.process_time()
    packets = job.pack(batch.number, batch.pieces)
    reports = [job.join(bucket, packets[bucket]) for bucket in packets]
    took_s = time.process_time() - began_s
    into.held = sum(counters.rows for report in reports for counters in report.slices)
    for report in reports:
        into.stored += sum(file.rows for file in report.files)
        for query, count in report.query_rows:
            into.counts[query] += count
    job.discard_results(reports)
    return took_s


def expected_counts(directory: Path, load: Load) -> dict[int, int]:
    """Count with DuckDB what each query of a load gives once all rows in the files have been read.

    A row of A is absent as soon as the newest row of B is a window away from it: what has come decides.
    """
    steps = ", ".join(f"({n}, {window_us})" for n, window_us in enumerate(load.windows_us, 1))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE step AS SELECT * FROM (VALUES {steps}) t(number, window_us)")
        for side in "AB":
            connection.execute(
                f"CREATE TABLE {side} AS SELECT epoch_us(ts) AS us, k FROM '{directory}/{side}-*.parquet'"
            )
        connection.execute(
            "CREATE TABLE pair AS SELECT A.rowid AS a_row, A.us AS a_us, abs(B.us - A.us) AS apart "
            f"FROM A JOIN B ON A.k = B.k WHERE abs(B.us - A.us) < {max(load.windows_us)}"
        )
        if load.kind in ("inner", "left"):
            matches = _below(connection, "SELECT apart FROM pair")
        else:
            matches = _below(connection, "SELECT min(apart) FROM pair GROUP BY a_row")
        if load.kind in ("inner", "semi"):
            return matches
        # Absent: all rows that are old enough, less those of them with a match.
        newest = "(SELECT max(us) FROM B)"
        old = _below(connection, f"SELECT {newest} - us FROM A", at_least=True)
        matched = connection.sql(
            f"SELECT number, count(*) FROM step JOIN (SELECT {newest} - any_value(a_us) AS age, "
            "min(apart) AS apart FROM pair GROUP BY a_row) ON apart < window_us AND age >= window_us "
            "GROUP BY ALL"
        ).fetchall()
    found = dict(matched)
    absent = {n: count - found.get(n, 0) for n, count in old.items()}
    return absent if load.kind == "anti" else {n: matches[n] + absent[n] for n in absent}


def _below(connection: duckdb.DuckDBPyConnection, values: str, *, at_least: bool = False) -> dict[int, int]:
    """Count for each window the values below it, or those that reach it."""
    sorted_values = connection.sql(f"SELECT v FROM ({values}) t(v) ORDER BY v").fetchnumpy()["v"]
    steps = connection.sql("SELECT number, window_us FROM step ORDER BY number").fetchnumpy()
    below = sorted_values.searchsorted(steps["window_us"], side="left").tolist()
    counts = [len(sorted_values) - n for n in below] if at_least else below
    return dict(zip(steps["number"].tolist(), counts, strict=True))


def table(groups: Sequence[Mapping[Load, Measured]]) -> str:
    """Return the figures as a Markdown table; ratios are to the first load of each group."""
    lines = [
        "| queries | CPU time of a batch, ms | ratio | rows held | ratio | result rows stored | ratio |",
        "| --- |" + " ---: |" * 6,
    ]
    for group in groups:
        first = next(iter(group.values()))
        lines += [
            f"| {load.name} | {m.cpu_ms:,.1f} | {m.cpu_ms / first.cpu_ms:.2f} "
            f"| {m.held:,} | {m.held / first.held:.2f} | {m.stored:,} | {m.stored / first.stored:.2f} |"
            for load, m in group.items()
        ]
    return "\n".join(lines) + "\n"


def main(
    part: Annotated[float, typer.Option(help="Part of the rows of many-keys.")] = 0.25,
    thousand_part: Annotated[float, typer.Option(help="The same where a thousand queries are.")] = 0.01,
    turns: Annotated[int, typer.Option(help="Turns of each load once the windows are full.")] = 5,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the report; none is written without.")
    ] = None,
) -> None:
    """Measure all loads, print the table, and write it with its JSON."""
    parts = (part, part, thousand_part)
    measured = [measure(loads, of, turns) for loads, of in zip(GROUPS, parts, strict=True)]
    text = table(measured)
    typer.echo(text)
    if out is None:
        return
    facts = {
        load.name: {"cpu_ms": m.cpu_ms, "held": m.held, "stored": m.stored, "results": m.counts.total()}
        for group in measured
        for load, m in group.items()
    }
    (out / "absence.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    (out / "absence.md").write_text(
        "# Outer, semi and anti joins beside inner ones\n\nWritten by `python -m tests.bench.absence "
        f"--part {part} --thousand-part {thousand_part} --turns {turns}`; many-keys, {part:.0%} of its rows "
        f"for twelve queries and {thousand_part:.1%} where a thousand are compared with one; dense: a tenth "
        "of the keys, so 12 partners for 1.2. Ratios are to the first load of each group; all counts are "
        f"DuckDB's.\n\n{text}",
        encoding="utf-8",
    )


if __name__ == "__main__":
    typer.run(main)
