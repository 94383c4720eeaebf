"""Counters of a batch itself: its streams, its CPU time and how its work lay on the buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class StreamCounters:
    """Counters of one stream in a batch.

    Attributes:
        stream_id: The stream.
        rows: Rows read, late and pruned ones included.
        late_rows: Rows below the watermark at the start of the batch.
        rejected_rows: Rows without an event time.
        watermark_us: Watermark at the end of the batch, µs UTC; None before the first row.
        max_event_time_us: Newest event time so far, or None.
        scramble: Scrambling factor of its order, declared or monitored; None for a stream without an order.
        order_passed: Value of its order, negated if it descends, that no later row stands at or before; None
            likewise, and before there is one.
        horizon_us: Event time below which rows have left the state before their windows ended, µs UTC; None
            if none have.
    """

    stream_id: int
    rows: int
    late_rows: int
    rejected_rows: int
    watermark_us: int | None
    max_event_time_us: int | None
    scramble: int | None = None
    order_passed: int | None = None
    horizon_us: int | None = None


@dataclass(frozen=True, slots=True)
class StreamPunctuations:
    """Punctuations of one stream in a batch.

    Attributes:
        stream_id: The stream.
        received: Number of punctuations.
        ignored: Number of punctuations that no family uses.
    """

    KEY: ClassVar[tuple[str, ...]] = ("stream_id",)

    stream_id: int
    received: int
    ignored: int


@dataclass(frozen=True, slots=True)
class HeldTimes:
    """Event times of the rows of a stream that one bucket holds; only of streams with a cap.

    Attributes:
        stream_id: The stream.
        bytes: Bytes that the rows take, in all families together.
        times_us: Event times that cut the rows into parts of equal number, ascending, µs UTC: the oldest one
            first, the newest one last. Taken from a sample of the rows.
    """

    stream_id: int
    bytes: int
    times_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """CPU time that the job's Python took for a batch, all tasks together, µs.

    Attributes:
        pack_us: Reading and packing.
        chain_us: Joining, storing state and writing results.
    """

    pack_us: int = 0
    chain_us: int = 0


@dataclass(frozen=True, slots=True)
class BucketCounters:
    """Distribution of a batch's work over the buckets. On enough cores it takes as long as the hottest one.

    Attributes:
        buckets: Number of buckets; 0 in older manifests.
        work: Rows that came (a male copy each) and pairs made, all buckets together.
        hottest_work: The same of the bucket that had most.
        hottest_us: CPU time of the bucket that took longest, µs.
    """

    buckets: int = 0
    work: int = 0
    hottest_work: int = 0
    hottest_us: int = 0
