"""The job's pipeline without Spark: what one micro-batch costs, with every row and comparison counted.

    rows ── Packer ── payload bytes ── Bucket ── segments and manifest encoded ── result files

Every step is the code that the Spark job runs; left out are reading the input, the shuffle and Spark's own
work for a batch, which are the same for every strategy. One bucket, so one core, and the whole window of a
stream is in one place, as in the paper.

Strategies take turns batch by batch over the same rows (``race``): whatever else the machine does meets all
of them alike.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from catalog.store.codec import encode
from catalog.values.batch import SliceCounters
from catalog.values.plan import ControlRecord, Plan
from operators.bucket.batch_output import BatchOutput
from operators.bucket.bucket import Bucket
from operators.bucket.bucket_state import SegmentIds, encode_manifest, store_segments
from operators.bucket.counters import slice_counters
from operators.pack.pack import control_payloads, packer
from operators.pack.pack_plan import pack_plan
from operators.pack.payload import Payload
from service.results.result_files import ResultWriter

Tables = Mapping[int, pa.Table]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one strategy did in one micro-batch.

    Attributes:
        wall_s: Seconds of wall clock.
        cpu_s: Seconds of CPU.
        input_rows: Rows read per stream id.
        slices: Counters of every slice.
        results: Results per query id.
        pairs: Joined pairs written; one may be a result of several queries.
    """

    wall_s: float
    cpu_s: float
    input_rows: Mapping[int, int]
    slices: tuple[SliceCounters, ...]
    results: Mapping[int, int]
    pairs: int

    @property
    def state_rows(self) -> int:
        """Rows held at the end of the batch."""
        return sum(s.rows for s in self.slices)

    @property
    def state_bytes(self) -> int:
        """Encoded bytes held at the end of the batch."""
        return sum(s.bytes for s in self.slices)


@dataclass(slots=True)
class Pipeline:
    """One plan at work.

    Attributes:
        plan: The plan.
        directory: Where result files go; each is removed once it has been written.
        batches: What was measured so far.
    """

    plan: Plan
    directory: Path
    batches: list[Batch] = field(default_factory=list)
    _bucket: Bucket = field(default_factory=Bucket)

    def step(self, rows: Tables) -> None:
        """Run one micro-batch over rows per stream id."""
        number = len(self.batches)
        control = [encode(ControlRecord(seq=1, plan=self.plan)).decode()] if number == 0 else []
        writer = ResultWriter(self.directory, None, epoch=1)
        streams = {stream.id: stream for stream in self.plan.streams}
        wall, cpu = time.perf_counter(), time.process_time()
        payloads = [p.encode() for p in control_payloads(control, 0, number, 1)]
        for order, (stream_id, table) in enumerate(rows.items(), 1):
            packed = packer(pack_plan(self.plan, streams[stream_id], 1)).pack(table, order, number, None)
            payloads += [p.encode() for p in packed]
        output = self._bucket.process([Payload.decode(data) for data in payloads])
        store_segments(self._bucket, SegmentIds("paper", 0, number), lambda *_: None)
        encode_manifest(self._bucket)
        files = [writer.write_pairs(number, family, pairs) for family, pairs in output.results.items()]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        for file in files:
            (self.directory / file.path).unlink()
        self.batches.append(
            Batch(
                wall_s=wall,
                cpu_s=cpu,
                input_rows={stream_id: table.num_rows for stream_id, table in rows.items()},
                slices=tuple(slice_counters(self._bucket.families, self._bucket.clocks)),
                results=_results(output),
                pairs=sum(file.rows for file in files),
            )
        )


def race(plans: Mapping[str, Plan], rows: Sequence[Tables], directory: Path) -> dict[str, list[Batch]]:
    """Run several plans over the same batches, taking turns; who begins changes from batch to batch.

    Args:
        plans: Plans by name.
        rows: Rows per stream id of each batch.
        directory: Where result files go for a moment.

    Returns:
        What each plan did in each batch.

    Raises:
        RuntimeError: Two plans gave different numbers of results.
    """
    pipelines = {name: Pipeline(plan, directory) for name, plan in plans.items()}
    names = list(pipelines)
    for number, tables in enumerate(rows):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            pipelines[name].step(tables)
    totals = {name: _total(pipeline.batches) for name, pipeline in pipelines.items()}
    if len({tuple(sorted(total.items())) for total in totals.values()}) > 1:
        raise RuntimeError(f"the strategies do not agree on the results per query: {totals}")
    return {name: pipeline.batches for name, pipeline in pipelines.items()}


def _total(batches: Sequence[Batch]) -> Counter[int]:
    total: Counter[int] = Counter()
    for batch in batches:
        total.update(batch.results)
    return total


def _results(output: BatchOutput) -> dict[int, int]:
    results: Counter[int] = Counter()
    for routes in output.routes.values():
        results.update(routes.query_rows())
    return dict(results)
