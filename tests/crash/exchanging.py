"""A job without Spark that joins three streams on two keys, and lets rows leave below a horizon.

A and B by k ── pairs ── file of each bucket ── manifest ── next batch ── pairs and C by j
D [RANGE UNBOUNDED] and B by k                              below a horizon rows of D leave in one batch

python -m tests.crash.exchanging ROOT BATCHES STEP...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.values.control import ControlRecord, Horizon
from catalog.values.plan import Plan
from catalog.values.stream import GeneratorSource, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from tests.crash.killed_job import live_and_die
from tests.crash.powered import BUCKETS, Job
from tests.operators.steps.combinations import SECOND_US, rows, stream
from tests.pipeline import Piece, Rows

#: Batches with rows; in the next one only pairs on their way arrive.
FILLED = 5
ROWS = 30
#: Batch in which rows of D below a horizon leave, and the horizon, seconds.
LEAVES, HORIZON_S = 3, 14
THREE = (
    "SELECT a.r AS x, b.r AS y, c.r AS z FROM A [RANGE 9 SECONDS] a, B [RANGE 9 SECONDS] b, "
    "C [RANGE 9 SECONDS] c WHERE a.k = b.k AND b.j = c.j"
)
TWO = "SELECT d.r AS x, b.r AS y FROM B [RANGE 3 SECONDS] b, D [RANGE UNBOUNDED] d WHERE b.k = d.k"


def streams() -> dict[str, Stream]:
    """Return the streams by name."""
    made = (replace(stream(number), source=GeneratorSource(1.0)) for number in (1, 2, 3, 4))
    return {each.name: each for each in made}


def tables() -> dict[int, pa.Table]:
    """Return the rows of each stream in the order of their times, as many for each batch."""
    rng = np.random.default_rng(5)
    return {each.id: rows(rng, each, ROWS * FILLED, 6 * FILLED, 0, 4) for each in streams().values()}


@dataclass(slots=True)
class ExchangingJob(Job):
    """The job, whose plan never changes."""

    def carried(self) -> dict[int, Plan]:
        """Return its plan."""
        return {0: the_plan()}

    def pieces(self, batch: int) -> Sequence[Piece]:
        """Return the rows of a batch."""
        return [Rows(i, t.slice(ROWS * batch, ROWS)) for i, t in tables().items()] if batch < FILLED else []

    def control_records(self, batch: int) -> list[ControlRecord]:
        """Return the records of a batch, with the horizon in one of them."""
        records = Job.control_records(self, batch)
        if batch == LEAVES:
            records.append(ControlRecord(2, horizon=Horizon(4, HORIZON_S * SECOND_US)))
        return records


def the_plan() -> Plan:
    """Return the plan of the two queries."""
    known = streams()
    queries = [bind(text, known, name=f"q{n}", query_id=n) for n, text in enumerate((THREE, TWO), 1)]
    return build_plan(queries, {each.id: each for each in known.values()})


def the_job(root: Path, reached: Callable[[str], None] = lambda _: None) -> ExchangingJob:
    """Open a data directory, new or as a process has left it."""
    return ExchangingJob(the_plan(), BUCKETS, root, reached=reached)


def found(job: Job) -> list[set[tuple[int, ...]]]:
    """Return the visible results of both queries, each once."""
    made: list[list[tuple[int, ...]]] = [[], []]
    for manifest in job.store.batches.manifests(0, 10**6):
        for file in manifest.files:
            table = pq.read_table(job.data_dir.results / file.path)
            three = "a_a.r" in table.column_names
            names = ("a_a.r", "a_b.r", "b_r") if three else ("b_r", "a_r")
            columns = [table.column(name).to_pylist() for name in names]
            made[not three] += zip(*columns, strict=True)
    assert all(len(set(rows)) == len(rows) for rows in made), "a result appears twice"
    return [set(rows) for rows in made]


def expected() -> list[set[tuple[int, ...]]]:
    """Return the results of both queries by one DuckDB join over all rows."""
    with duckdb.connect() as duck:
        for name, table in zip("ABCD", tables().values(), strict=True):
            batches = pa.array(np.arange(table.num_rows) // ROWS)
            duck.register(name, table.append_column("batch", batches))
        near = "abs(epoch_us({0}.ts) - epoch_us({1}.ts)) < 9000000"
        apart = " AND ".join(near.format(*pair) for pair in ("ab", "ac", "bc"))
        three = f"SELECT a.r, b.r, c.r FROM A a, B b, C c WHERE a.k = b.k AND b.j = c.j AND {apart}"
        left = f"d.batch < {LEAVES} AND b.batch >= {LEAVES} AND epoch_us(d.ts) < {HORIZON_S * SECOND_US}"
        two = (
            "SELECT d.r, b.r FROM D d, B b WHERE d.k = b.k AND epoch_us(d.ts) - epoch_us(b.ts) < 3000000 "
            f"AND NOT ({left})"
        )
        return [set(duck.sql(three).fetchall()), set(duck.sql(two).fetchall())]


if __name__ == "__main__":
    live_and_die(the_job, *sys.argv[1:])
