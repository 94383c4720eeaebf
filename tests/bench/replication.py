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
import time
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
from service.calibrate.in_process_job import InProcessJob, write_piece
from service.inputs.sample import RowSample
from service.statistics.sampling import sample_profile
from tests.bench.peers.workloads import WORKLOADS, Workload

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

    def amount(self, _: Stream) -> int:
        """See ``service.inputs.sample.SampleSource``."""
        return 1

    def sample(self, stream: Stream, columns: Sequence[str], limit: int = 200_000) -> RowSample:
        """See ``service.inputs.sample.SampleSource``."""
        table = self.batch(0, stream).slice(0, limit)
        return RowSample(table.select(sorted({*columns, "ts"})), self.workload.streams.rate_per_s)


def measure(rows: Rows, plan: Plan, buckets: int, batches: int, directory: Path) -> Cost:
    """Run a plan over some batches.

    Args:
        rows: The input.
        plan: The plan.
        buckets: Number of buckets.
        batches: Batches to measure.
        directory: Where result files go for a moment.
    """
    job = InProcessJob(plan, buckets, directory)
    pack_s, bucket_s, results = 0.0, [0.0] * buckets, 0
    for number in range(WARM_UP + batches):
        if number == WARM_UP:
            pack_s, bucket_s = 0.0, [0.0] * buckets
        pieces = [write_piece(directory, s, number, rows.batch(number, s)) for s in plan.streams]
        started_s = time.process_time()
        packets = job.pack(number, pieces)
        pack_s += time.process_time() - started_s
        for bucket, given in packets.items():
            started_s = time.process_time()
            report = job.join(bucket, given)
            bucket_s[bucket] += time.process_time() - started_s
            results += sum(file.rows for file in report.files)
            job.discard_results([report])
        for piece in pieces:
            Path(piece.files[0].path).unlink()
    job.close()
    heavy = sum(len(family.replication.heavy) for family in plan.families)
    return Cost(pack_s, tuple(bucket_s), results, heavy)


def streams_and_queries(workload: Workload) -> tuple[tuple[Stream, Stream], tuple[Query, ...]]:
    """Return a workload's streams and its queries, bound."""
    columns = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
    a, b = (
        Stream(n, name, columns, "ts", 0, FilesSource("parquet", "", 1)) for n, name in ((1, "A"), (2, "B"))
    )
    queries = enumerate(workload.queries, 1)
    return (a, b), tuple(bind(q.cql(), {"A": a, "B": b}, name=q.name, query_id=n) for n, q in queries)


def costs(workload: Workload, buckets: int, batches: int) -> Iterator[tuple[Partitioning, Cost]]:
    """Measure each way of partitioning.

    Raises:
        RuntimeError: Two ways gave different numbers of results.
    """
    streams, queries = streams_and_queries(workload)
    rows = Rows(workload, streams)
    sampled = sample_profile(rows, streams, queries)
    profile = replace(sampled, buckets=buckets)
    found: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="sluice-replication-") as directory:
        for way in get_args(Partitioning):
            plan = build_plan(
                queries, {s.id: s for s in streams}, profile=profile, objective=Objective(partitioning=way)
            )
            cost = measure(rows, plan, buckets, batches, Path(directory))
            found.add(cost.results)
            yield way, cost
    if len(found) > 1:
        raise RuntimeError(f"ways of partitioning do not agree on the results: {sorted(found)}")


def main() -> None:
    """Print a table in Markdown."""
    arguments = argparse.ArgumentParser(
        description="CPU per bucket: hash, replicated, as the planner chooses."
    )
    arguments.add_argument("--batches", type=int, default=4)
    arguments.add_argument("--buckets", type=int, nargs="+", default=[2, 8, 32])
    given = arguments.parse_args()
    print("| workload | buckets | keys | heavy keys | hottest / mean | hottest s | all s | pack s | pairs |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in ("few-keys", "skew"):
        for buckets in given.buckets:
            for way, cost in costs(WORKLOADS[name], buckets, given.batches):
                print(
                    f"| {name} | {buckets} | {way} | {cost.heavy} | {cost.imbalance:.2f} "
                    f"| {max(cost.bucket_s):.2f} | {sum(cost.bucket_s):.2f} | {cost.pack_s:.2f} "
                    f"| {cost.results} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
