"""What our own code takes, in this process: reading and packing, joining, and a batch that brings a plan.

``service.calibrate.pipeline`` runs what the workers run and takes its CPU time; nothing of Spark is in it.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.calibrate.pipeline import measure
from service.calibrate.runs import plans, warm_up
from tests.bench.migration.carrying import run_batch
from tests.bench.migration.changes import Step, steps
from tests.bench.migration.load import Load
from tests.bench.scaling.load import NO_FILES, Point, workload
from tests.pipeline import Pipeline

#: Batches measured of a point: three turns of ``service.calibrate.pipeline``.
BATCHES = 12
#: Buckets over which a batch with a plan is measured.
PLAN_BUCKETS = (2, 8, 32)


@dataclass(frozen=True, slots=True)
class Own:
    """What a point took, per batch with full windows.

    Attributes:
        point: The point.
        pack_s: CPU seconds of reading and packing.
        chain_s: CPU seconds of joining, storing and writing, all buckets.
        segments: Segments held, all buckets.
        results: Pairs made.
        state_rows: Rows held, all buckets.
    """

    point: Point
    pack_s: float
    chain_s: float
    segments: float
    results: float
    state_rows: float


def measure_points(points: Sequence[Point], batches: int = BATCHES) -> Iterator[Own]:
    """Measure points one after the other."""
    warm_up(workload(points[0]))
    for point in points:
        load = workload(point)
        planned = plans(load, ["mem-opt"])
        (found,) = measure(load, planned, batches=batches, rows_file_bytes=NO_FILES).values()
        slices = found.slices.values()
        yield Own(
            point,
            pack_s=found.pack_s / found.batches,
            chain_s=found.chain_s / found.batches,
            segments=sum(s.segments for s in slices) / found.batches,
            results=sum(s.results for s in slices) / found.batches,
            state_rows=sum(s.rows for s in slices) / found.batches,
        )


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What a batch with a new plan takes beyond the batches beside it.

    Attributes:
        queries: Queries of the plan.
        buckets: Buckets.
        read_s: CPU seconds more in reading and packing: the record is packed for every bucket.
        chain_s: CPU seconds more in the chain, all buckets.
    """

    queries: int
    buckets: int
    read_s: float
    chain_s: float


def measure_plans(queries: int, buckets: Sequence[int] = PLAN_BUCKETS, versions: int = 2) -> list[PlanCost]:
    """Measure batches that each add or remove a query, between batches that do not."""
    load = Load().sized(longest_s=1.0, queries=queries)
    return [_plan_cost(load, count, versions) for count in buckets]


def _plan_cost(load: Load, buckets: int, versions: int) -> PlanCost:
    changes: list[Step] = list(steps(load))[: versions + 1]
    with tempfile.TemporaryDirectory(prefix="sluice-scaling-") as root:
        pipeline = Pipeline(changes[0].plan, buckets, Path(root))
        try:
            for _ in range(1 + load.batches_to_fill):
                run_batch(pipeline, load)
            read, chain = [], []
            for change in changes[1:]:
                before = run_batch(pipeline, load)
                with_plan = run_batch(pipeline, load, change.plan)
                run_batch(pipeline, load)
                after = run_batch(pipeline, load)
                read.append(with_plan.pack_s - (before.pack_s + after.pack_s) / 2)
                chain.append(with_plan.chain_s - (before.chain_s + after.chain_s) / 2)
        finally:
            pipeline.close()
    return PlanCost(load.queries, buckets, statistics.median(read), statistics.median(chain))
