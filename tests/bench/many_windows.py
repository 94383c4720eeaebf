"""Ten thousand queries over many windows without Spark: what a plan, a change and a batch take of the CPU.

    python -m tests.bench.many_windows [--queries 10000] [--windows 2000] [--batches 3]

    changes ── plan ── dry run ── control log ── offset, partitions ── PACK ── CHAIN ── reports ── commit
    |------ one change of all queries -------|------- driver -------|                 |---- driver ----|

All of it is the service's own code; Spark's part is taken by ``tests.simulation.spark``. Figures are CPU time
of this one process, medians: a second core does not shorten them, nor does other work stretch them.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from api.dependencies import page_of
from api.queries.schemas import QueryOut
from catalog.values.change import AddQuery, RemoveQuery
from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from service.commit.bucket_report import BucketReport, decode_report, encode_report
from service.commit.commit import BatchCommitter
from service.config.settings import load_settings
from service.inputs.sources.http_log import Sending
from service.job.source import Offset, SluiceReader
from service.workspace.workspace import Workspace
from tests.bench.measuring import Stages
from tests.simulation.spark import SimulatedSpark

SECOND_US = 1_000_000
START_US = 1_800_000_000 * SECOND_US
COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
#: Longest window; the others are equal parts of it.
LONGEST_S = 100
#: Distinct filters of every other query.
FILTERS = 20
ROWS_PER_BATCH = 2_000
BATCH_S = 10
KEYS = 200

OFFSET, PARTITIONS, REPORTS, COMMIT = (
    "driver: choose the end of a batch",
    "driver: hand out its partitions",
    "driver: decode the reports",
    "driver: commit",
)
DRIVER = (OFFSET, PARTITIONS, REPORTS, COMMIT)
PACK, CHAIN = "task: read and PACK, a partition", "task: CHAIN, a bucket"


def query_text(number: int, windows: int) -> str:
    """Return the text of a query: one of the windows on both sides, and for every other one a filter."""
    window_ms = LONGEST_S * 1000 * (number % windows + 1) // windows
    condition = f" AND A.v < {(number // 2 % FILTERS + 1) / (FILTERS + 1):.3f}" if number % 2 else ""
    return (
        f"SELECT A.ts AS ats, B.ts AS bts, A.k, A.v FROM A [RANGE {window_ms} MILLISECONDS], "
        f"B [RANGE {window_ms} MILLISECONDS] WHERE A.k = B.k{condition}"
    )


class TimedReader(SluiceReader):
    """Notes what the driver's side of the source takes."""

    stages = Stages()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Choose the end of a batch."""
        with self.stages.timed(OFFSET):
            return super().latestOffset(start, limit)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Hand out what the readers of a batch read; Spark also asks where there is no batch."""
        if start == end:
            return super().partitions(start, end)
        with self.stages.timed(PARTITIONS):
            return super().partitions(start, end)


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
        self._reader = TimedReader(self._options.source, clock_s=lambda: 0.0)
        self._reader.stages = self.stages
        self._reader.getDefaultReadLimit()
        one = self._committer
        self._committer = TimedCommitter(
            one.store,
            one.results_dir,
            one.late_dir,
            one.epoch,
            one.engine_lock,
            one.log,
            stages=self.stages,
        )

    def _attempts(self) -> Iterator[int]:
        return iter(range(1))

    def _read(self, task: InputPartition) -> list[tuple[int, bytes]]:
        with self.stages.timed(PACK):
            return SimulatedSpark._read(self, task)

    def _join(self, number: int, key: int, packets: list[bytes]) -> tuple[BucketReport, bytes]:
        with self.stages.timed(CHAIN):
            return SimulatedSpark._join(self, number, key, packets)


@dataclass(slots=True)
class Bench:
    """One service with its simulated job.

    Attributes:
        workspace: The service, without an engine.
        windows: Distinct windows.
        rng: Source of the rows.
    """

    workspace: Workspace
    windows: int
    rng: Random = field(default_factory=lambda: Random(1))
    _posted: int = 0

    def prepare(self, queries: int) -> Stages:
        """Register the streams, and add all queries in one change."""
        for name in ("A", "B"):
            self.workspace.streams.register(Stream(0, name, COLUMNS, "ts", 0, HttpSource()))
        stages = Stages()
        texts = [query_text(number, self.windows) for number in range(queries)]
        streams = {stream.name: stream for stream in self.workspace.streams.all()}
        with stages.timed("parse and bind all texts"):
            for text in dict.fromkeys(texts):
                bind(text, streams)
        changes = [AddQuery(f"q{number}", text) for number, text in enumerate(texts)]
        with (
            stages.timed("change: add all queries, parsed and bound"),
            self.workspace.queries.changing(changes),
        ):
            pass
        return stages

    def batch(self, job: TimedSpark) -> Stages:
        """Post rows of both streams and run them as a batch."""
        for stream in self.workspace.streams.all():
            start_us = START_US + self._posted * BATCH_S * SECOND_US
            rows = [
                {
                    "ts": start_us + self.rng.randrange(BATCH_S * SECOND_US),
                    "k": self.rng.randrange(KEYS),
                    "v": self.rng.random(),
                }
                for _ in range(ROWS_PER_BATCH // 2)
            ]
            self.workspace.streams.append(
                stream, rows, sending=Sending(f"{stream.id}.{self._posted}", "rows")
            )
        self._posted += 1
        job.stages.taken_ms.clear()
        assert job.step()
        found = Stages()
        for stage, taken in job.stages.taken_ms.items():
            found.taken_ms[stage] = list(taken)
        return found

    def reads(self) -> Stages:
        """Read what people look at."""
        stages, queries = Stages(), self.workspace.queries
        with stages.timed("GET /queries, a page of 100"):
            found, _ = page_of(list(queries.names().items()), lambda item: item[1], None, 100)
            for status in queries.statuses([query_id for query_id, _ in found]):
                QueryOut.of_status(status).model_dump_json()
        with stages.timed("GET /queries/q7"):
            QueryOut.of_status(queries.status("q7")).model_dump_json()
        with stages.timed("GET /statistics"):
            self.workspace.statistics()
        with stages.timed("GET /metrics"):
            self.workspace.metrics(None, ingest=True)
        return stages


def main(
    queries: Annotated[int, typer.Option(help="Number of queries.")] = 10_000,
    windows: Annotated[int, typer.Option(help="Distinct windows.")] = 2_000,
    batches: Annotated[int, typer.Option(help="Batches in the steady state.")] = 3,
) -> None:
    """Measure, and print a table for each step."""
    with tempfile.TemporaryDirectory(prefix="sluice-windows-") as root:
        workspace = Workspace(load_settings(data_dir=Path(root), buckets=2))
        workspace.open()
        bench = Bench(workspace, windows)
        typer.echo(f"{queries} queries, {windows} windows; medians, ms of CPU time")

        def show(title: str, measured: Callable[[], Stages]) -> None:
            stages = measured()
            typer.echo(f"\n{title}")
            for stage, taken in stages.taken_ms.items():
                typer.echo(f"  {stage:45} {statistics.median(taken):9.1f}")
            if stages.taken_ms.keys() >= set(DRIVER):
                typer.echo(f"  {'driver, all of it':45} {sum(map(stages.median_ms, DRIVER)):9.1f}")

        def steady(job: TimedSpark) -> Stages:
            some = Stages()
            for _ in range(batches):
                for stage, taken in bench.batch(job).taken_ms.items():
                    some.taken_ms[stage] += taken
            return some

        def change() -> Stages:
            stages = Stages()
            with stages.timed("change: add a query"):
                workspace.queries.add("extra", query_text(7, windows).replace("A.v < 0.", "A.v < 0.7"))
            with stages.timed("change: remove a query"), workspace.queries.changing([RemoveQuery("q17")]):
                pass
            return stages

        show("all queries come", lambda: bench.prepare(queries))
        job = TimedSpark(workspace.settings, workspace.data_dir, workspace._store, Random(1), False, False)
        show("their first batch", lambda: bench.batch(job))
        for _ in range(2):
            bench.batch(job)  # windows fill, and with them the routes
        show("a batch", lambda: steady(job))
        show("two changes of one query each", change)
        show("the batch that brings them", lambda: bench.batch(job))
        show("the batch after", lambda: bench.batch(job))
        show("reading", bench.reads)
        with workspace._store._database.read() as connection:
            rows = connection.exec_driver_sql("SELECT version, base, length(document) FROM plans").all()
        for version, base, length in rows:
            typer.echo(
                f"plan version {version}: {length} bytes, {'whole' if base is None else 'a difference'}"
            )
        job.close()
        workspace.close_catalog()


if __name__ == "__main__":
    typer.run(main)
