"""Measurement of plans in this process, without Spark: CPU time and counters of the code that workers run.

Spark's share of the cost (planning a batch, the shuffle, the JVM's side of the state store) does not depend
on the plan, so neither the measurements nor the constants include it.
"""

from __future__ import annotations

import gc
import itertools
import random
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import Plan, Strategy
from service.calibrate.workload import Batch, SyntheticWorkload
from service.commit.reporting.bucket_report import BucketReport
from service.job.in_process.in_process_job import ROWS_FILE_BYTES, InProcessJob

#: Number of batches that a plan processes before the next plan has its turn. With turns of a single batch,
#: every batch would start with cold caches.
_TURN = 4


@dataclass(slots=True)
class Measured:
    """Cost of a plan on a workload, measured after the workload's windows were full.

    Attributes:
        batches: Number of measured batches.
        pack_turns_s: CPU seconds of reading and packing, per turn (a few batches in sequence).
        chain_turns_s: CPU seconds of joining, storing and writing, per turn.
        stored_segments: Number of new segments in all measured batches.
        stored_bytes: Bytes of the new segments in all measured batches.
        slices: Counters by join, side and slice number, summed over buckets and batches. This includes
            ``rows``, ``bytes`` and ``segments``, although they describe the state at the end of a batch.
    """

    batches: int = 0
    pack_turns_s: list[float] = field(default_factory=list)
    chain_turns_s: list[float] = field(default_factory=list)
    stored_segments: int = 0
    stored_bytes: int = 0
    slices: dict[tuple[str, str, int], SliceCounters] = field(default_factory=dict)

    @property
    def pack_s(self) -> float:
        """CPU seconds of reading and packing in all measured batches."""
        return _undisturbed(self.pack_turns_s)

    @property
    def chain_s(self) -> float:
        """CPU seconds of joining, storing and writing in all measured batches."""
        return _undisturbed(self.chain_turns_s)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all measured batches."""
        return self.pack_s + self.chain_s

    def begin_turn(self) -> None:
        """Start a new turn, to which the CPU times of the next batches are added."""
        self.pack_turns_s.append(0.0)
        self.chain_turns_s.append(0.0)

    def count(self, reports: list[BucketReport]) -> None:
        """Add the counters in the reports of a batch's buckets."""
        for report in reports:
            for counters in report.slices.counters():
                key = counters.join, counters.side, counters.slice
                known = self.slices.get(key)
                self.slices[key] = counters if known is None else _sum(known, counters)


def measure(
    workload: SyntheticWorkload,
    plans: Mapping[Strategy, Plan],
    *,
    batches: int,
    rows_file_bytes: int = ROWS_FILE_BYTES,
) -> dict[Strategy, Measured]:
    """Run several plans in turn on the same rows, a few batches per turn, and measure their CPU times.

    Plans take turns so that other work on the machine slows all of them alike. The order of the plans is
    shuffled in each turn, so that no plan always runs on the caches and the heap left by the same other plan.

    Args:
        workload: Streams and queries.
        plans: The plan of each strategy.
        batches: Number of batches to measure once the windows are full, rounded up to whole turns.
        rows_file_bytes: Bytes from which a family side's rows are passed to their bucket in a file.

    Returns:
        The measured cost by strategy.
    """
    with tempfile.TemporaryDirectory(prefix="sluice-calibrate-") as directory:
        jobs = {
            name: InProcessJob(plan, workload.buckets, Path(directory), rows_file_bytes)
            for name, plan in plans.items()
        }
        measured = {name: Measured() for name in plans}
        fill, turns = (-(-n // _TURN) for n in (workload.batches_to_fill, batches))
        names, order = list(plans), random.Random(len(plans))
        for turn, some in enumerate(
            itertools.islice(workload.batches(Path(directory), at_once=_TURN), fill + turns)
        ):
            if turn == fill:
                gc.collect()
            order.shuffle(names)
            for name in names:
                if turn >= fill:
                    measured[name].begin_turn()
                for batch in some:
                    bound_us = _late_bound_us(workload, batch.number)
                    _process(jobs[name], batch, bound_us, measured[name] if turn >= fill else None)
        for job in jobs.values():
            job.close()
        return measured


def _undisturbed(turns_s: list[float]) -> float:
    """Return the CPU time of all turns, estimated as the mean of the middle half times their number.

    With full windows all turns cost the same, unless another process uses the core's caches for a second.
    """
    ordered = sorted(turns_s)
    cut = len(ordered) // 4
    middle = ordered[cut : len(ordered) - cut]
    return sum(middle) / len(middle) * len(ordered) if middle else 0.0


def _sum(one: SliceCounters, other: SliceCounters) -> SliceCounters:
    counted = [f.name for f in fields(SliceCounters) if f.type == "int" and f.name != "slice"]
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in counted})


def _process(job: InProcessJob, batch: Batch, late_bound_us: int | None, into: Measured | None) -> None:
    """Pack and join one batch; add its cost to ``into`` unless that is None."""
    before = job.segments.sizes()
    started_s = time.process_time()
    packets = job.pack(batch.number, batch.pieces, late_bound_us)
    packed_s = time.process_time()
    reports = [job.join(bucket, packets[bucket]) for bucket in packets]
    joined_s = time.process_time()
    if into is not None:
        into.batches += 1
        into.pack_turns_s[-1] += packed_s - started_s
        into.chain_turns_s[-1] += joined_s - packed_s
        written = [size for name, size in job.segments.sizes().items() if name not in before]
        into.stored_segments += len(written)
        into.stored_bytes += sum(written)
        into.count(reports)
    job.discard_results(reports)


def _late_bound_us(workload: SyntheticWorkload, batch: int) -> int | None:
    """Return the watermark at the start of a batch: the event time at which the previous batch began."""
    return None if batch == 0 else round((batch - 1) * workload.batch_s * 1_000_000)
