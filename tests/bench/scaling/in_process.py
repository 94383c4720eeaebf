"""CPU time of our own code in this process: reading and packing, joining.

``service.calibrate.pipeline`` runs what the workers run and takes its CPU time; nothing of Spark is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.calibrate.pipeline import measure
from service.calibrate.runs import plans, warm_up
from tests.bench.scaling.load import NO_FILES, Case, Point, workload

#: Batches measured of a point: three turns of ``service.calibrate.pipeline``.
BATCHES = 12


def measure_points(points: Sequence[Point], batches: int = BATCHES) -> Iterator[Case]:
    """Measure points one after the other; what a batch with full windows takes, all buckets together."""
    warm_up(workload(points[0]))
    for point in points:
        load = workload(point)
        planned = plans(load, ["mem-opt"])
        (found,) = measure(load, planned, batches=batches, rows_file_bytes=NO_FILES).values()
        slices = found.slices.values()
        yield point.facts() | {
            "pack_s": found.pack_s / found.batches,
            "chain_s": found.chain_s / found.batches,
            "segments": sum(s.segments for s in slices) / found.batches,
            "results": sum(s.results for s in slices) / found.batches,
        }
