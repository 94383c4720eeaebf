"""The cost of outer, semi and anti joins compared with inner ones: CPU time, rows held, results.

    python -m tests.bench.absence [--part 0.25] [--thousand-part 0.01] [--turns 5] [--out docs/bench]

The streams and windows of many-keys, a part of its rows and as small a part of its keys, so that a row has as
many partners. The workers' own code runs in this process (``tests.pipeline``), without Spark: read, PACK,
join, store, write. The loads take turns of a few batches each; figures are medians over turns.

    load                 queries                       is compared with
    12 inner             windows of 2.5, 5 ... 30 s
    12 left              the same, as LEFT JOIN        12 inner: at most 1.35
    12 anti, semi        the same                      12 inner; an anti join is to hold fewer rows
    12 inner, 4.33 times the partners                  12 left, which has about as many result rows
    dense                all of these over a tenth of the keys: 12 partners in the largest window for 1.2
    6 inner and 6 left   every other window            12 inner; in one family, and in one for each kind
    1 left               30 s
    1,000 left           30 ms to 30 s                 1 left: at most 1.5

What every query has given in all batches must be what DuckDB finds in the same files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from tests.pipeline import Pipeline, Ran

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
    """Queries with different windows, of one kind or of several.

    Attributes:
        kinds: Keys of ``JOINS``; the queries take them in turn.
        windows_us: Windows of both sides, whole milliseconds; query n has the n-th, from 1.
        density: Partners of a row, relative to many-keys.
        beside_inner: Whether outer, semi and anti joins are in the family of the inner ones.
    """

    kinds: tuple[str, ...]
    windows_us: tuple[int, ...]
    density: float = 1.0
    beside_inner: bool = False

    @property
    def name(self) -> str:
        """Name, as in the table."""
        each = len(self.windows_us) // len(self.kinds)
        name = " and ".join(f"{each:,} {kind}" for kind in self.kinds)
        if len(self.kinds) > 1:
            name += ", one family" if self.beside_inner else ", two families"
        return name + {1.0: "", DENSE: ", dense"}.get(self.density, f", {self.density:g} times the partners")

    def kind(self, number: int) -> str:
        """Return the kind of query ``number``, from 1."""
        return self.kinds[(number - 1) % len(self.kinds)]

    def texts(self) -> list[str]:
        """Return the queries in CQL."""
        found = []
        for number, us in enumerate(self.windows_us, 1):
            kind, w = self.kind(number), f"[RANGE {us // 1000} MILLISECONDS]"
            selected = "A.ts AS ats, A.k AS k" + (", B.ts AS bts" if kind in ("inner", "left") else "")
            found.append(f"SELECT {selected} FROM A {w} {JOINS[kind]} B {w} ON A.k = B.k")
        return found


#: Partners in loads that are named dense, and in the one with about as many result rows as 12 LEFT JOINs.
DENSE, AS_LEFT = 10.0, 4.33
#: Loads that take turns; the first of each group is what the others are compared with.
_KINDS = ("inner", "left", "anti", "semi")
GROUPS = (
    (*(Load((kind,), TWELVE) for kind in _KINDS), Load(("inner",), TWELVE, AS_LEFT)),
    tuple(Load((kind,), TWELVE, DENSE) for kind in _KINDS),
    (
        Load(("inner",), TWELVE),
        *(Load(("inner", kind), TWELVE, beside_inner=way) for kind in _KINDS[1:3] for way in (False, True)),
    ),
    tuple(Load((kind,), windows) for kind in ("left", "inner") for windows in (LONGEST, THOUSAND)),
)


def rows_of(part: float, density: float) -> SyntheticWorkload:
    """Return the streams of many-keys, a part of them."""
    streams = MANY_KEYS.streams
    rate, keys = streams.rate_per_s * part, max(round(streams.keys * part / density), 1)
    longest_s = LONGEST[0] / 1e6
    return SyntheticWorkload("many-keys", (WindowQuery(longest_s, longest_s),), rate, rate, BATCH_S, keys)


def plan_of(load: Load, rows: SyntheticWorkload) -> Plan:
    """Plan a load: Mem-Opt, as the peers' benchmark has it."""
    queries = [bind(text, rows.streams, name=f"q{n}", query_id=n) for n, text in enumerate(load.texts(), 1)]
    beside = [replace(q, beside_inner=load.beside_inner and q.kind != "inner") for q in queries]
    streams = {stream.id: stream for stream in rows.streams.values()}
    return build_plan(
        beside, streams, objective=Objective("mem-opt", cost_model="paper"), profile=rows.profile
    )


def measure(loads: Sequence[Load], part: float, turns: int) -> dict[Load, Batches]:
    """Run loads in turn, those of one density over the same rows; another one begins in each turn.

    Raises:
        AssertionError: Some query has given another number of results than DuckDB finds.
    """
    rows = {load.density: rows_of(part, load.density) for load in loads}
    fill = -(-rows[loads[0].density].batches_to_fill // TURN)
    with tempfile.TemporaryDirectory(prefix="sluice-absence-") as root:
        directories = {density: Path(root) / f"{density:g}" for density in rows}
        for directory in directories.values():
            directory.mkdir()
        made = {n: next(of.batches(directories[n], at_once=(fill + turns) * TURN)) for n, of in rows.items()}
        pipelines = {
            load: Pipeline(
                plan_of(load, rows[load.density]), rows[load.density].buckets, directories[load.density]
            )
            for load in loads
        }
        ran: dict[Load, list[Ran]] = {load: [] for load in loads}
        order = list(loads)
        for first in range(0, (fill + turns) * TURN, TURN):
            for load in order:
                some = made[load.density][first : first + TURN]
                ran[load] += [pipelines[load].step(batch.pieces) for batch in some]
            order.append(order.pop(0))
        for pipeline in pipelines.values():
            pipeline.close()
        measured = {load: Batches.of(ran[load], fill * TURN, TURN) for load in loads}
        for load, found in measured.items():
            wanted = expected_counts(directories[load.density], load)
            assert {n: found.results[n] for n in wanted} == wanted, f"{load.name}: DuckDB finds other results"
    return measured


def expected_counts(directory: Path, load: Load) -> dict[int, int]:
    """Count with DuckDB what each query of a load gives once all rows in the files have been read.

    A row of A is absent as soon as the newest row of B is a window away from it: what has come decides.
    """
    found = {kind: _expected_of_kind(directory, load.windows_us, kind) for kind in load.kinds}
    return {n: found[load.kind(n)][n] for n in range(1, len(load.windows_us) + 1)}


def _expected_of_kind(directory: Path, windows_us: Sequence[int], kind: str) -> dict[int, int]:
    """Return the counts of queries of one kind."""
    steps = ", ".join(f"({n}, {window_us})" for n, window_us in enumerate(windows_us, 1))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE step AS SELECT * FROM (VALUES {steps}) t(number, window_us)")
        for side in "AB":
            connection.execute(
                f"CREATE TABLE {side} AS SELECT epoch_us(ts) AS us, k FROM '{directory}/{side}-*.parquet'"
            )
        connection.execute(
            "CREATE TABLE pair AS SELECT A.rowid AS a_row, A.us AS a_us, abs(B.us - A.us) AS apart "
            f"FROM A JOIN B ON A.k = B.k WHERE abs(B.us - A.us) < {max(windows_us)}"
        )
        if kind in ("inner", "left"):
            matches = _below(connection, "SELECT apart FROM pair")
        else:
            matches = _below(connection, "SELECT min(apart) FROM pair GROUP BY a_row")
        if kind in ("inner", "semi"):
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
    return absent if kind == "anti" else {n: matches[n] + absent[n] for n in absent}


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
    parts = (part, part, part, thousand_part)
    found = figures([measure(loads, of, turns) for loads, of in zip(GROUPS, parts, strict=True)])
    typer.echo(report(found))
    if out is not None:
        setting = {"part": part, "thousand_part": thousand_part, "turns": turns}
        publish(out, "absence", setting | {"figures": found}, {"figures": report(found)})


if __name__ == "__main__":
    typer.run(main)
