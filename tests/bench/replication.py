"""What hash partitioning and fragment-and-replicate cost each bucket, where keys are few or skewed.

    python -m tests.bench.replication [--batches N] [--buckets 2 8 32]

The rows and queries of the peers' benchmark (``few-keys``, ``skew``) go through the job's Python without
Spark: packed once, then joined, stored and written bucket by bucket, whose CPU time is taken one by one. On
enough cores a batch takes as long as its hottest bucket. ``auto`` knows the keys from a sample of the input,
as the service does. Every way must give the same number of results.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa

from catalog.values.plan import Partitioning, Plan
from catalog.values.query import Query
from catalog.values.stream import Column, FilesSource, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from service.calibrate.in_process_job import write_piece
from service.inputs.partitions import FilesPartition
from service.inputs.sample import RowSample
from service.statistics.sampling import sample_profile
from tests.bench.peers.workloads import WORKLOADS, Workload
from tests.bench.reports import table
from tests.pipeline import check_results, race

#: Batches that compile, fill caches and windows before the others are measured.
WARM_UP = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of the measured batches.

    Attributes:
        pack_s: Of packing, for all buckets.
        bucket_s: Of joining, storing and writing, by bucket.
        results: Joined pairs.
        heavy: Keys of several fragments.
    """

    pack_s: float
    bucket_s: tuple[float, ...]
    results: int
    heavy: int

    @property
    def imbalance(self) -> float:
        """CPU of the hottest bucket over the mean."""
        return max(self.bucket_s) * len(self.bucket_s) / sum(self.bucket_s)


@dataclass(frozen=True, slots=True)
class Rows:
    """Batches of a workload, one after another; also a sample of them, as the planner takes it."""

    workload: Workload
    streams: tuple[Stream, Stream]

    def batch(self, number: int, stream: Stream) -> pa.Table:
        """Return the rows of one stream in one batch."""
        shape = self.workload.streams
        rows = shape.rows // shape.files
        rng = np.random.default_rng((number, stream.id))
        if shape.zipf is None:
            keys = rng.integers(0, shape.keys, rows)
        else:
            weights = np.arange(1, shape.keys + 1) ** -shape.zipf
            keys = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(rows))
        position = number * rows + np.arange(rows)
        times = position * 1_000_000 // shape.rate_per_s
        return pa.table(
            {
                "ts": pa.array(times).cast(pa.timestamp("us")),
                "k": pa.array(keys.astype(np.int64)),
                "v": pa.array(rng.random(rows)),
            }
        )

    def pieces(self, batches: int, directory: Path) -> Iterator[list[FilesPartition]]:
        """Yield the files of each batch, which are removed when it has been read."""
        for number in range(batches):
            pieces = [write_piece(directory, s, number, self.batch(number, s)) for s in self.streams]
            yield pieces
            for piece in pieces:
                Path(piece.files[0].path).unlink()

    def amount(self, _: Stream) -> int:
        """See ``service.inputs.sample.SampleSource``."""
        return 1

    def sample(self, stream: Stream, columns: Sequence[str], limit: int = 200_000) -> RowSample:
        """See ``service.inputs.sample.SampleSource``."""
        table = self.batch(0, stream).slice(0, limit)
        return RowSample(table.select(sorted({*columns, "ts"})), self.workload.streams.rate_per_s)


def streams_and_queries(workload: Workload) -> tuple[tuple[Stream, Stream], tuple[Query, ...]]:
    """Return a workload's streams and its queries, bound."""
    columns = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
    a, b = (
        Stream(n, name, columns, "ts", 0, FilesSource("parquet", "", 1)) for n, name in ((1, "A"), (2, "B"))
    )
    queries = enumerate(workload.queries, 1)
    return (a, b), tuple(bind(q.cql(), {"A": a, "B": b}, name=q.name, query_id=n) for n, q in queries)


def costs(workload: Workload, buckets: int, batches: int) -> Iterator[tuple[Partitioning, Cost]]:
    """Measure each way of partitioning, in turn over the same rows.

    Raises:
        RuntimeError: Two ways gave different numbers of results.
    """
    streams, queries = streams_and_queries(workload)
    rows = Rows(workload, streams)
    profile = replace(sample_profile(rows, streams, queries), buckets=buckets)
    by_id = {stream.id: stream for stream in streams}
    plans: dict[Partitioning, Plan] = {
        way: build_plan(queries, by_id, profile=profile, objective=Objective(partitioning=way))
        for way in get_args(Partitioning)
    }
    with tempfile.TemporaryDirectory(prefix="sluice-replication-") as root:
        ran = race(plans, rows.pieces(WARM_UP + batches, Path(root)), Path(root), buckets=buckets)
    check_results(ran)
    for way, plan in plans.items():
        measured = ran[way][WARM_UP:]
        yield (
            way,
            Cost(
                pack_s=sum(batch.pack_s for batch in measured),
                bucket_s=tuple(map(sum, zip(*(batch.bucket_s for batch in measured), strict=True))),
                results=sum(batch.pairs for batch in ran[way]),
                heavy=sum(len(family.replication.heavy) for family in plan.families),
            ),
        )


def main() -> None:
    """Print a table in Markdown."""
    arguments = argparse.ArgumentParser(
        description="CPU per bucket: hash, replicated, as the planner chooses."
    )
    arguments.add_argument("--batches", type=int, default=4)
    arguments.add_argument("--buckets", type=int, nargs="+", default=[2, 8, 32])
    given = arguments.parse_args()
    header = ("workload", "buckets", "keys", "heavy keys", "hottest / mean", "hottest s", "all s", "pack s")
    rows = [
        (
            *(name, buckets, way, cost.heavy, f"{cost.imbalance:.2f}", f"{max(cost.bucket_s):.2f}"),
            *(f"{sum(cost.bucket_s):.2f}", f"{cost.pack_s:.2f}", cost.results),
        )
        for name in ("few-keys", "skew")
        for buckets in given.buckets
        for way, cost in costs(WORKLOADS[name], buckets, given.batches)
    ]
    print(table((*header, "pairs"), rows))


if __name__ == "__main__":
    main()
