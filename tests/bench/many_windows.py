"""Ten thousand queries over many windows without Spark: what a plan, a change and a batch take of the CPU.

    python -m tests.bench.many_windows [--queries 10000] [--windows 2000] [--batches 3]

    changes ── plan ── dry run ── control log ── offset, partitions ── PACK ── CHAIN ── reports ── commit
    |------ one change of all queries -------|------- driver -------|                 |---- driver ----|

All of it is the service's own code; Spark's part is taken by ``tests.simulation.spark``. Figures are CPU time
of this one process, medians: a second core does not shorten them, nor does other work stretch them.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from pyspark.sql.datasource import InputPartition

from api.dependencies import page_of
from api.queries.schemas import QueryOut
from catalog.values.change import AddQuery, RemoveQuery
from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from service.commit.commit import BatchCommitter
from service.commit.reporting.bucket_report import BucketReport, decode_report, encode_report
from service.config.settings import load_settings
from service.inputs.sources.posted.http_log import Sending
from service.job.source import Offset
from service.workspace.workspace import Workspace
from tests.bench.measuring import Stages
from tests.bench.reports import table
from tests.simulation.spark import SimulatedSpark

SECOND_US = 1_000_000
START_US = 1_800_000_000 * SECOND_US
COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
#: Longest window; the others are equal parts of it.
LONGEST_S = 100
#: Distinct filters of every other query.
FILTERS = 20
ROWS_PER_BATCH, BATCH_S, KEYS = 2_000, 10, 200
#: Queries that come one by one, and as many that leave.
CHANGES = 3

OFFSET, PARTITIONS = "driver: choose the end of a batch", "driver: hand out its partitions"
PACK, CHAIN = "task: read and PACK, a partition", "task: CHAIN, a bucket"
REPORTS, COMMIT = "driver: decode the reports", "driver: commit"
DRIVER = (OFFSET, PARTITIONS, REPORTS, COMMIT)


def query_text(number: int, windows: int) -> str:
    """Return the text of a query: one of the windows on both sides, and for every other one a filter."""
    window_ms = LONGEST_S * 1000 * (number % windows + 1) // windows
    condition = f" AND A.v < {(number // 2 % FILTERS + 1) / (FILTERS + 1):.3f}" if number % 2 else ""
    return (
        f"SELECT A.ts AS ats, B.ts AS bts, A.k, A.v FROM A [RANGE {window_ms} MILLISECONDS], "
        f"B [RANGE {window_ms} MILLISECONDS] WHERE A.k = B.k{condition}"
    )


@dataclass(frozen=True, slots=True)
class TimedCommitter(BatchCommitter):
    """Notes what reports and commit take."""

    stages: Stages = field(kw_only=True)

    def __call__(self, reports: Sequence[BucketReport]) -> None:
        """Commit a batch."""
        encoded = [encode_report(report) for report in reports]
        with self.stages.timed(REPORTS):
            decoded = [decode_report(data) for data in encoded]
        with self.stages.timed(COMMIT):
            BatchCommitter.__call__(self, decoded)


@dataclass(slots=True)
class TimedSpark(SimulatedSpark):
    """Runs every task once, and notes what each stage takes.

    Attributes:
        stages: Takes the figures.
    """

    stages: Stages = field(default_factory=Stages)

    def __post_init__(self) -> None:
        SimulatedSpark.__post_init__(self)
        choose, hand_out, one = self._reader.latestOffset, self._reader.partitions, self._committer

        def timed_choice(start: Offset, limit: object) -> Offset:
            with self.stages.timed(OFFSET):
                return choose(start, limit)

        def timed_partitions(start: Offset, end: Offset) -> Sequence[InputPartition]:
            if start == end:  # Spark also asks where there is no batch
                return hand_out(start, end)
            with self.stages.timed(PARTITIONS):
                return hand_out(start, end)

        self._reader.latestOffset, self._reader.partitions = timed_choice, timed_partitions
        self._committer = TimedCommitter(*(getattr(one, f.name) for f in fields(one)), stages=self.stages)

    def _attempts(self) -> Iterator[int]:
        return iter(range(1))

    def _read(self, task: InputPartition) -> list[tuple[int, bytes]]:
        with self.stages.timed(PACK):
            return SimulatedSpark._read(self, task)

    def _join(self, number: int, key: int, packets: list[bytes]) -> tuple[BucketReport, bytes]:
        with self.stages.timed(CHAIN):
            return SimulatedSpark._join(self, number, key, packets)


def run_batches(workspace: Workspace, job: TimedSpark, first: int, count: int) -> Stages:
    """Post rows of both streams and run them as a batch, so many times from batch ``first`` on."""
    job.stages.taken_ms.clear()
    for number in range(first, first + count):
        rng, start_us = Random(number), START_US + number * BATCH_S * SECOND_US
        for stream in workspace.streams.all():
            rows = [
                {
                    "ts": start_us + rng.randrange(BATCH_S * SECOND_US),
                    "k": rng.randrange(KEYS),
                    "v": rng.random(),
                }
                for _ in range(ROWS_PER_BATCH // 2)
            ]
            workspace.streams.append(stream, rows, sending=Sending(f"{stream.id}.{number}", "rows"))
        assert job.step()
    return replace(job.stages, taken_ms=dict(job.stages.taken_ms))


def change_one(workspace: Workspace, windows: int) -> Stages:
    """Add and remove queries, one by one: the first change of a process also builds what encodes it."""
    stages = Stages()
    for number in range(CHANGES):
        text = query_text(7, windows).replace("A.v < 0.", f"A.v < 0.7{number}")
        with stages.timed("change: add a query"):
            workspace.queries.add(f"extra{number}", text)
        removed = RemoveQuery(f"q{number + 17}")
        with stages.timed("change: remove a query"), workspace.queries.changing(removed):
            pass
    return stages


def read(workspace: Workspace) -> Stages:
    """Read what people look at."""
    stages, queries = Stages(), workspace.queries
    with stages.timed("GET /queries, a page of 100"):
        found, _ = page_of(list(queries.names().items()), lambda item: item[1], None, 100)
        for status in queries.statuses([query_id for query_id, _ in found]):
            QueryOut.of_status(status).model_dump_json()
    with stages.timed("GET /queries/q7"):
        QueryOut.of_status(queries.status("q7")).model_dump_json()
    with stages.timed("GET /statistics"):
        workspace.statistics()
    with stages.timed("GET /metrics"):
        workspace.metrics(None, ingest=True)
    return stages


def main(
    queries: Annotated[int, typer.Option(help="Number of queries.")] = 10_000,
    windows: Annotated[int, typer.Option(help="Distinct windows.")] = 2_000,
    batches: Annotated[int, typer.Option(help="Batches in the steady state.")] = 3,
) -> None:
    """Measure, and print a table."""
    lines: list[tuple[object, ...]] = []

    def note(when: str, stages: Stages) -> None:
        lines.extend((when, stage, stages.median_ms(stage)) for stage in stages.taken_ms)
        if stages.taken_ms.keys() >= set(DRIVER):
            lines.append((when, "driver, all of it", sum(map(stages.median_ms, DRIVER))))

    with tempfile.TemporaryDirectory(prefix="sluice-windows-") as root:
        workspace = Workspace(load_settings(data_dir=Path(root), buckets=2))
        workspace.open()
        gc.freeze()  # as a service does, so that collections skip the modules it has loaded
        for name in ("A", "B"):
            workspace.streams.register(Stream(0, name, COLUMNS, "ts", 0, HttpSource()))
        changes = [AddQuery(f"q{number}", query_text(number, windows)) for number in range(queries)]
        coming, streams = Stages(), {stream.name: stream for stream in workspace.streams.all()}
        with coming.timed("parse and bind all texts"):
            for text in dict.fromkeys(change.cql for change in changes):
                bind(text, streams)
        with coming.timed("change: add all queries"), workspace.queries.changing(changes):
            pass
        note("all queries come", coming)
        job = TimedSpark(workspace.settings, workspace.data_dir, workspace._store, Random(1), False, False)
        note("their first batch", run_batches(workspace, job, 0, 1))
        run_batches(workspace, job, 1, 2)  # windows fill, and with them the routes
        note("a batch", run_batches(workspace, job, 3, batches))
        note("changes of one query each", change_one(workspace, windows))
        note("the batch that brings them", run_batches(workspace, job, 3 + batches, 1))
        note("the batch after", run_batches(workspace, job, 4 + batches, 1))
        note("reading", read(workspace))
        with workspace._store._database.read() as connection:
            sizes = connection.exec_driver_sql("SELECT version, base, length(document) FROM plans").all()
        job.close()
        workspace.close_catalog()
    typer.echo(f"{queries:,} queries, {windows:,} windows; medians, ms of CPU time\n")
    typer.echo(table(("when", "what", "ms"), lines, texts=2) + "\n")
    typer.echo(table(("plan version", "the difference from", "bytes"), sizes))


if __name__ == "__main__":
    typer.run(main)
