"""Counters of a whole batch: its streams, its CPU time and the distribution of its work over buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class StreamCounters:
    """Counters of one stream in a batch.

    Attributes:
        stream_id: The stream.
        rows: Rows read, including late rows and rows that are dropped later.
        late_rows: Rows below the watermark at the start of the batch.
        rejected_rows: Rows without an event time.
        watermark_us: Watermark at the end of the batch, µs UTC; None before the first row.
        max_event_time_us: Newest event time so far, µs UTC; None before the first row.
        scramble: Scrambling factor of the stream's order, declared or monitored; None for a stream without an
            order.
        order_passed: Value of the order column that every later row exceeds, negated if the order descends;
            None for a stream without an order, or while no such value exists.
        horizon_us: Event time below which rows have left the state before their windows ended, µs UTC; None
            if no row has left early.
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
    """Event times of one stream's rows in one bucket; only for streams with a state cap.

    Attributes:
        stream_id: The stream.
        bytes: Bytes that the rows take in the state of all families together.
        times_us: Quantiles of the event times, ascending, µs UTC, from the oldest to the newest; taken from a
            sample of the rows.
    """

    stream_id: int
    bytes: int
    times_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """CPU time that the job's Python processes took for a batch, summed over tasks, µs.

    Attributes:
        pack_us: Reading and packing.
        chain_us: Joining, storing state and writing results.
    """

    pack_us: int = 0
    chain_us: int = 0


@dataclass(frozen=True, slots=True)
class BucketCounters:
    """Distribution of a batch's work over the buckets.

    With enough cores a batch takes as long as its hottest bucket.

    Attributes:
        buckets: Number of buckets; 0 in older manifests.
        work: Number of rows that arrived (male copies) plus number of pairs made, summed over buckets.
        hottest_work: Work of the bucket with the most work, counted in the same way.
        hottest_us: CPU time of the bucket that took longest, µs.
    """

    buckets: int = 0
    work: int = 0
    hottest_work: int = 0
    hottest_us: int = 0
