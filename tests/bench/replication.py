"""What hash partitioning and fragment-and-replicate cost each bucket, where keys are few or skewed.

    python -m tests.bench.replication [--batches N] [--buckets 2 --buckets 8]

The rows and queries of the peers' benchmark (``few-keys``, ``skew``) go through the job's Python without
Spark: packed once, then joined, stored and written bucket by bucket, whose CPU time is taken one by one. On
enough cores a batch takes as long as its hottest bucket. ``auto`` knows the keys from a sample of the input,
as the service does. Every way must give the same number of results.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import pyarrow.parquet as pq
import typer

from catalog.values.plan import Partitioning, Plan
from catalog.values.query import Query
from catalog.values.stream import Column, FilesSource, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from service.inputs.partitions import ROW_BITS, FileRows, FilesPartition
from service.inputs.reading.sample import RowSample
from service.statistics.samples.sampling import sample_profile
from tests.bench.peers.inputs import write_streams
from tests.bench.peers.workloads import WORKLOADS, Workload
from tests.bench.reports import table
from tests.pipeline import check_results, race

#: Batches that compile, fill caches and windows before the others are measured.
WARM_UP = 1


@dataclass(frozen=True, slots=True)
class Files:
    """Files of a workload, one of each stream a batch; also a sample of them, as the planner takes it."""

    workload: Workload
    directory: Path

    def piece(self, stream: Stream, number: int) -> FilesPartition:
        """Return what a reader's task is given of a file."""
        path = self.directory / stream.name / f"part-{number:06}.parquet"
        facts, rows = path.stat(), self.workload.streams.rows // self.workload.streams.files
        file = FileRows(number, str(path), facts.st_size, facts.st_mtime_ns, 0, rows)
        return FilesPartition(stream.id, number << ROW_BITS, None, rows, (file,))

    def amount(self, _: Stream) -> int:
        """See ``service.inputs.reading.sample.SampleSource``."""
        return 1

    def sample(self, stream: Stream, columns: Sequence[str], limit: int = 200_000) -> RowSample:
        """See ``service.inputs.reading.sample.SampleSource``."""
        rows = pq.read_table(self.piece(stream, 0).files[0].path, columns=sorted({*columns, "ts"}))
        return RowSample(rows.slice(0, limit), self.workload.streams.rate_per_s)


def streams_and_queries(workload: Workload) -> tuple[tuple[Stream, Stream], tuple[Query, ...]]:
    """Return a workload's streams and its queries, bound."""
    columns = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
    a, b = (
        Stream(n, name, columns, "ts", 0, FilesSource("parquet", "", 1)) for n, name in ((1, "A"), (2, "B"))
    )
    queries = enumerate(workload.queries, 1)
    return (a, b), tuple(bind(q.cql(), {"A": a, "B": b}, name=q.name, query_id=n) for n, q in queries)


def costs(workload: Workload, buckets: int, batches: int) -> Iterator[dict[str, Any]]:
    """Measure each way of partitioning, in turn over the same rows.

    Raises:
        RuntimeError: Two ways gave different numbers of results.
    """
    streams, queries = streams_and_queries(workload)
    by_id = {stream.id: stream for stream in streams}
    with tempfile.TemporaryDirectory(prefix="sluice-replication-") as root:
        files = Files(workload, write_streams(Path(root), workload.streams))
        profile = replace(sample_profile(files, streams, queries), buckets=buckets)
        plans: dict[Partitioning, Plan] = {
            way: build_plan(queries, by_id, profile=profile, objective=Objective(partitioning=way))
            for way in get_args(Partitioning)
        }
        pieces = ([files.piece(s, number) for s in streams] for number in range(WARM_UP + batches))
        ran = race(plans, pieces, Path(root), buckets=buckets)
    check_results(ran)
    for way, plan in plans.items():
        measured = ran[way][WARM_UP:]
        # CPU seconds of joining, storing and writing, by bucket.
        bucket_s = [sum(of_bucket) for of_bucket in zip(*(batch.bucket_s for batch in measured), strict=True)]
        yield {
            "buckets": buckets,
            "keys": way,
            "heavy keys": sum(len(family.replication.heavy) for family in plan.families),
            "hottest / mean": max(bucket_s) * buckets / sum(bucket_s),
            "hottest s": max(bucket_s),
            "all s": sum(bucket_s),
            "pack s": sum(batch.pack_s for batch in measured),
            "pairs": sum(batch.pairs for batch in ran[way]),
        }


def main(
    batches: Annotated[int, typer.Option(help="Batches after the first.")] = 4,
    buckets: Annotated[list[int] | None, typer.Option(help="Numbers of buckets; 2, 8 and 32.")] = None,
) -> None:
    """Print a table in Markdown."""
    found = [
        {"workload": name} | cost
        for name in ("few-keys", "skew")
        for count in buckets or (2, 8, 32)
        for cost in costs(WORKLOADS[name], count, batches)
    ]
    typer.echo(table(list(found[0]), (line.values() for line in found)))


if __name__ == "__main__":
    typer.run(main)
