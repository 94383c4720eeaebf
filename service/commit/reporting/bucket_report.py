"""Report of a bucket on its work in one batch; the engine commits the batch with all buckets' reports.

    CHAIN ── BucketReport ── encode ──> socket ──> decode ── the engine adds up the buckets' reports

A report's counters are the bucket's share of the manifest's counters (``catalog.values.counters``). A report
contains only the routes that the engine asks for (``reports``), because the engine knows most routes already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from catalog.values.batch import ResultFile
from catalog.values.counters.batch_counters import CpuCounters, HeldTimes, StreamCounters, StreamPunctuations
from catalog.values.counters.family_counters import (
    AbsenceCounters,
    ExchangeCounters,
    FilterCounters,
    GroupCounters,
    KeyCounters,
    MemoryCounters,
    ProbeCounters,
    PunctuationCounters,
    UnmatchedCounters,
)
from catalog.values.counters.slice_table import SliceTable
from catalog.values.routes.counts.query_rows import QueryRows
from catalog.values.routes.query_sets import Int64s

if TYPE_CHECKING:
    from catalog.values.routes.route_table import RouteTable  # not at run time, because it loads Arrow


@dataclass(frozen=True, slots=True)
class BucketReport:
    """Report of one bucket on its work in one batch.

    Attributes:
        bucket: Number of the bucket.
        batch: Batch number.
        plan_version: Plan version in force; 0 means that no plan is in force.
        began_us: When the first reader of the batch began, wall clock, µs UTC; None if nothing was read.
        files: Result files that the bucket wrote.
        late_files: Files of late rows that the bucket wrote. Their ``family`` is the stream's id; for rows
            that violate the contract of their stream, it is ``<stream id>.<family>.<side>``.
        etags: ETags that the store assigned to result files and late files, by path.
        streams: Counters of all streams. Every bucket gets the headers of all input, so all buckets report
            the same numbers of rows and the same watermarks. Each late row is counted in only one bucket.
        slices: Counters of the bucket's slices.
        filters: Numbers of rows that pass each filter. Each input partition sends its numbers to one bucket.
        keys: Counters of the keys of new rows; each key is counted in only one bucket.
        absence: Counters of the families that look for rows without a partner (``AbsenceCounters``).
        unmatched: Counters of outer joins.
        cpu: CPU time of packing the bucket's input, and of its chains.
        query_rows: Numbers of pairs per query, one entry per family. Queries without pairs are left out; a
            query may be in several families.
        punctuations: Counters of the family sides whose stream has a contract.
        received: Numbers of received punctuations. Each input partition sends its numbers to one bucket.
        exchanged: Numbers of pairs that the bucket wrote for other buckets to read in the next batch.
        groups: Counters of the families whose results are groups.
        probes: Counters of the family sides whose rows are kept in rings.
        held: Bytes and event times of the stored rows of streams with a cap.
        memory: Counters of the family sides whose rows wait outside the slices.
        routes: Those of the batch's routes that the engine asked for; one encoded ``RouteTable`` per family.
    """

    bucket: int
    batch: int
    plan_version: int = 0
    began_us: int | None = None
    files: tuple[ResultFile, ...] = ()
    late_files: tuple[ResultFile, ...] = ()
    etags: dict[str, str] = field(default_factory=dict)
    streams: tuple[StreamCounters, ...] = ()
    slices: SliceTable = field(default_factory=SliceTable)
    filters: tuple[FilterCounters, ...] = ()
    keys: tuple[KeyCounters, ...] = ()
    absence: tuple[AbsenceCounters, ...] = ()
    cpu: CpuCounters = field(default_factory=CpuCounters)
    query_rows: tuple[QueryRows, ...] = ()
    routes: tuple[bytes, ...] = ()
    punctuations: tuple[PunctuationCounters, ...] = ()
    received: tuple[StreamPunctuations, ...] = ()
    groups: tuple[GroupCounters, ...] = ()
    exchanged: tuple[ExchangeCounters, ...] = ()
    probes: tuple[ProbeCounters, ...] = ()
    held: tuple[HeldTimes, ...] = ()
    memory: tuple[MemoryCounters, ...] = ()
    unmatched: tuple[UnmatchedCounters, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BucketReport)


class Routes(Protocol):
    """Routes of one family in a batch: a ``RouteTable``, or the ``RouteCounts`` of the family's pairs."""

    @property
    def numbers(self) -> Int64s:
        """Numbers of the routes."""

    def among(self, numbers: Int64s) -> RouteTable:
        """Return those of the routes whose numbers are given."""


def telling(report: BucketReport, routes: Iterable[Routes], wanted: Int64s) -> BucketReport:
    """Return a report with the routes that the engine asked for.

    Args:
        report: The report without routes.
        routes: Routes that occur in the batch.
        wanted: int64[n], numbers of the routes that the engine asked for.
    """
    taken = (each.among(wanted) for each in routes)
    return replace(report, routes=tuple(table.encode() for table in taken if len(table)))


def encode_report(report: BucketReport) -> bytes:
    """Return a report as bytes (MessagePack)."""
    return _encoder.encode(report)


def decode_report(data: bytes) -> BucketReport:
    """Return the report that ``encode_report`` encoded.

    Raises:
        msgspec.ValidationError: The bytes are not an encoded report.
    """
    return _decoder.decode(data)
