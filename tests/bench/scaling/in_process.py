"""CPU time of our own code in this process: reading and packing, joining.

``service.calibrate.pipeline`` runs what the workers run and takes its CPU time; nothing of Spark is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.calibrate.pipeline import measure
from service.calibrate.runs import plans, warm_up
from tests.bench.scaling.load import NO_FILES, Point, workload

#: Batches measured of a point: three turns of ``service.calibrate.pipeline``.
BATCHES = 12


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
