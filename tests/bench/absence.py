"""The cost of outer, semi and anti joins compared with inner ones: CPU time, rows held, results.

    python -m tests.bench.absence [--part 0.25] [--thousand-part 0.01] [--turns 5] [--out docs/bench]

The streams and windows of many-keys, a part of its rows and as small a part of its keys, so that a row has as
many partners. The workers' own code runs in this process (``tests.pipeline``), without Spark: read, PACK,
join, store, write. The loads take turns of a few batches each; figures are medians over turns.

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

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import duckdb
import typer

from catalog.values.plan import Plan
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from service.calibrate.workload import SyntheticWorkload, WindowQuery
from tests.bench.measuring import Batches
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.reports import publish, table
from tests.pipeline import race

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


def measure(loads: Sequence[Load], part: float, turns: int) -> dict[Load, Batches]:
    """Run loads over the same rows in turn.

    Raises:
        AssertionError: Some query has given another number of results than DuckDB finds.
    """
    rows = rows_of(part, dense=loads[0].dense)
    fill = -(-rows.batches_to_fill // TURN)
    with tempfile.TemporaryDirectory(prefix="sluice-absence-") as root:
        directory = Path(root)
        made = next(rows.batches(directory, at_once=(fill + turns) * TURN))
        plans = {load: plan_of(load, rows) for load in loads}
        pieces = (batch.pieces for batch in made)
        ran = race(plans, pieces, directory, buckets=rows.buckets, turn=TURN)
        measured = {load: Batches.of(ran[load], fill * TURN, TURN) for load in loads}
        for load, found in measured.items():
            wanted = expected_counts(directory, load)
            assert {n: found.results[n] for n in wanted} == wanted, f"{load.name}: DuckDB finds other results"
    return measured


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


def figures(groups: Sequence[Mapping[Load, Batches]]) -> list[dict[str, Any]]:
    """Return the figures of each load, and ratios to the first load of its group."""
    found = []
    for group in groups:
        first = next(iter(group.values()))
        for load, m in group.items():
            ratios = {f"{name} ratio": getattr(m, name) / getattr(first, name) for name in _FIGURES}
            found.append({"queries": load.name} | {name: getattr(m, name) for name in _FIGURES} | ratios)
    return found


def report(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures as a Markdown table."""
    header = ["queries", *(cell for text in _FIGURES.values() for cell in (text, "ratio"))]
    names = ["queries", *(cell for name in _FIGURES for cell in (name, f"{name} ratio"))]
    return table(header, ([line[name] for name in names] for line in found))


#: Figures of ``Batches``, and what tables call them.
_FIGURES = {"cpu_ms": "CPU time of a batch, ms", "held": "rows held", "stored": "result rows stored"}


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
    found = figures([measure(loads, of, turns) for loads, of in zip(GROUPS, parts, strict=True)])
    typer.echo(report(found))
    if out is not None:
        setting = {"part": part, "thousand_part": thousand_part, "turns": turns}
        publish(out, "absence", setting | {"figures": found}, {"figures": report(found)})


if __name__ == "__main__":
    typer.run(main)
