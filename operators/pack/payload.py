"""Payloads: the data that PACK sends to one bucket from one partition of the input.

    | length of header | header (JSON) | Arrow IPC of family side | Arrow IPC of ... | Arrow IPC of suspects |

Rows of a family side may be in a file that the header names (``operators.segments.files.segment_files``).

The header is sent to every bucket, even to buckets that get no rows. So every bucket learns of each stream's
newest event time, and of every control record, in the same batch. Data that must be counted only once are
sent to one bucket only. These data are PACK's counters and the suspects, which are the rows of each stream
that may be late, with all columns.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catalog.values.counters.batch_counters import StreamPunctuations
from catalog.values.counters.family_counters import FilterCounters
from operators.errors import CorruptPayload
from operators.orders.order_progress import OrderedRows
from operators.segments.encoding.row_codec import TS, decode_rows, encode_rows
from operators.segments.segment import ArrivedFile

_LENGTH = struct.Struct("<I")
#: Rows begin at a multiple of this many bytes, as in Arrow's buffers. Their columns are views of the payload,
#: and numpy gathers from unaligned columns so much more slowly that a batch costs 13-28% more.
ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """Summary of a stream's rows in one partition.

    Attributes:
        stream_id: The stream.
        rows: Number of rows read, including rows dropped later.
        rejected_rows: Number of rows without an event time.
        max_event_time_us: Newest event time, µs; None if there are no rows.
        order: Summary of the rows with regard to the stream's order; None if the stream has no order.
    """

    stream_id: int
    rows: int
    rejected_rows: int
    max_event_time_us: int | None
    order: OrderedRows | None = None


#: Errors on reading bytes that are not a payload (ArrowInvalid and JSON errors are ValueErrors).
_MALFORMED = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    EOFError,
    ArithmeticError,
    RecursionError,
    OSError,
    MemoryError,
    pa.ArrowException,
)

#: Writes rows to a file, given family id, side and rows; returns None to leave the rows in the payload.
WriteRows = Callable[[str, str, pa.RecordBatch], ArrivedFile | None]


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """The part of one partition that is sent to one bucket.

    Attributes:
        order: Number of the partition; payloads are sorted by it.
        batch: Batch number.
        streams: Headers of the streams that the partition read.
        control: Encoded control records, in order; only one partition of a batch has them.
        rows: Packed rows per (family id, side), sorted by key.
        keyless: Packed rows without a key per (family id, side), if such rows can be results.
        suspects: Rows that may be late, per stream id, with all columns, ``_ts`` and ``_pos``; only one of
            the partition's payloads has them.
        filters: Counters per distinct filter of the partition; only one of its payloads has them.
        pack_us: CPU time of the partition, µs; only one of its payloads has it.
        began_us: Start time of the partition's task, µs UTC; only the payload with ``pack_us`` has it.
        place: Number of the bucket, and number of buckets; None if PACK did not make the payload.
        files: Files in which rows arrived, by family id and side; all other rows are in the payload.
        closings: Closed keys per (family id, side), sorted by key (``operators.closings.closing_rows``).
        edges: First and last row of clustered sides per (family id, side) (``closing_rows``).
        received: Counts of the partition's punctuations; only one of its payloads has them.
        senders: Numbers of the buckets that sent pairs to other buckets in the previous batch
            (``operators.steps.exchange``); only payloads with the control records have them.
        counted: All rows that windows of rows must count, per (family id, side)
            (``operators.ranks.ranking``).
    """

    order: int
    batch: int
    streams: tuple[StreamHeader, ...] = ()
    control: tuple[str, ...] = ()
    rows: Mapping[tuple[str, str], pa.RecordBatch] = field(default_factory=dict)
    suspects: Mapping[int, pa.RecordBatch] = field(default_factory=dict)
    filters: tuple[FilterCounters, ...] = ()
    pack_us: int = 0
    began_us: int | None = None
    place: tuple[int, int] | None = None
    files: Mapping[tuple[str, str], ArrivedFile] = field(default_factory=dict)
    keyless: Mapping[tuple[str, str], pa.RecordBatch] = field(default_factory=dict)
    closings: Mapping[tuple[str, str], pa.RecordBatch] = field(default_factory=dict)
    received: StreamPunctuations | None = None
    counted: Mapping[tuple[str, str], pa.RecordBatch] = field(default_factory=dict)
    edges: Mapping[tuple[str, str], pa.RecordBatch] = field(default_factory=dict)
    senders: tuple[int, ...] = ()

    def encode(self, write: WriteRows | None = None) -> bytes:
        """Return the payload as bytes.

        Args:
            write: Writes rows to files that the decoding process can read; None if rows stay in the payload.
        """
        bodies: list[bytes] = []
        parts: list[list[object]] = []
        for (family, side), rows in self.rows.items():
            file = write(family, side, rows) if write is not None else None
            if file is not None:
                parts.append([family, side, file.bytes, file.name])
                continue
            bodies.append(encode_rows(rows))
            parts.append([family, side, len(bodies[-1]), ""])
        keyless: list[list[object]] = []
        for (family, side), rows in self.keyless.items():
            bodies.append(encode_rows(rows))
            keyless.append([family, side, len(bodies[-1])])
        suspects: list[list[int]] = []
        for stream_id, rows in self.suspects.items():
            bodies.append(encode_rows(rows))
            suspects.append([stream_id, len(bodies[-1])])
        header: dict[str, object] = {
            "order": self.order,
            "batch": self.batch,
            "streams": [_header(stream) for stream in self.streams],
            "control": list(self.control),
            "rows": parts,
            "keyless": keyless,
            "suspects": suspects,
            # dataclasses.astuple would copy each number: 1 ms for a small batch with 40 filters.
            "filters": [[c.family, c.side, c.bit, c.rows, c.passed] for c in self.filters],
            "pack_us": self.pack_us,
            "began_us": self.began_us,
            "place": self.place,
        }
        for name, of in (("closings", self.closings), ("counted", self.counted), ("edges", self.edges)):
            if of:
                lengths: list[list[object]] = []
                for (family, side), rows in of.items():
                    bodies.append(encode_rows(rows))
                    lengths.append([family, side, len(bodies[-1])])
                header[name] = lengths
        if self.senders:
            header["senders"] = list(self.senders)
        if self.received is not None:
            header["received"] = [self.received.stream_id, self.received.received, self.received.ignored]
        text = json.dumps(header, separators=(",", ":")).encode()
        text = text.ljust(-(len(text) + _LENGTH.size) % ALIGNMENT + len(text))
        return b"".join([_LENGTH.pack(len(text)), text, *bodies])

    @classmethod
    def decode(cls, data: bytes, read: Callable[[str], pa.Buffer] | None = None) -> Payload:
        """Read a payload; columns of its rows may be views of ``data``.

        Args:
            data: Result of ``encode``.
            read: Returns the content of a file; needed only if rows arrived in a file.

        Raises:
            CorruptPayload: The bytes are not a payload.
        """
        try:
            (length,) = _LENGTH.unpack_from(data)
            start = _LENGTH.size + length
            header = json.loads(data[_LENGTH.size : start])
            return cls._decoded(header, pa.py_buffer(data), start, read)
        except (*_MALFORMED, struct.error) as error:
            raise CorruptPayload(
                f"{len(data)} bytes are not a payload",
                detail=f"{type(error).__name__}: {error}.",
                hint="If the batch fails in the same way when it is repeated, check memory and network.",
            ) from error

    @classmethod
    def _decoded(
        cls,
        header: dict[str, Any],
        buffer: pa.Buffer,
        start: int,
        read: Callable[[str], pa.Buffer] | None,
    ) -> Payload:
        """Read the data that follows the header, from byte ``start`` of the buffer on."""

        def taken(size: int) -> pa.RecordBatch:
            nonlocal start
            if not 0 <= size <= buffer.size - start:
                raise ValueError(f"rows of {size} bytes begin at {start} of {buffer.size}")
            start += size
            return _valid(decode_rows(buffer.slice(start - size, size)))

        rows: dict[tuple[str, str], pa.RecordBatch] = {}
        files: dict[tuple[str, str], ArrivedFile] = {}
        for family, side, size, name in header["rows"]:
            if name:
                if read is None:
                    raise ValueError(f'rows are in file "{name}", which this machine cannot read')
                rows[family, side] = decode_rows(read(name))
                files[family, side] = ArrivedFile(name, size)
            else:
                rows[family, side] = taken(size)
        keyless = {(family, side): taken(size) for family, side, size in header["keyless"]}
        suspects = {stream_id: taken(size) for stream_id, size in header["suspects"]}
        closings = {(family, side): taken(size) for family, side, size in header.get("closings", ())}
        counted = {(family, side): taken(size) for family, side, size in header.get("counted", ())}
        edges = {(family, side): taken(size) for family, side, size in header.get("edges", ())}
        return cls(
            order=header["order"],
            batch=header["batch"],
            streams=tuple(
                StreamHeader(stream, rows, rejected, newest, OrderedRows(*order) if order else None)
                for stream, rows, rejected, newest, *order in header["streams"]
            ),
            control=tuple(header["control"]),
            rows=rows,
            suspects=suspects,
            filters=tuple(FilterCounters(*facts) for facts in header["filters"]),
            pack_us=header["pack_us"],
            began_us=header["began_us"],
            place=tuple(header["place"]) if header["place"] else None,
            files=files,
            keyless=keyless,
            closings=closings,
            received=StreamPunctuations(*header["received"]) if "received" in header else None,
            counted=counted,
            edges=edges,
            senders=tuple(header.get("senders", ())),
        )


def _header(stream: StreamHeader) -> list[object]:
    facts: list[object] = [stream.stream_id, stream.rows, stream.rejected_rows, stream.max_event_time_us]
    return facts if stream.order is None else [*facts, stream.order.blocks, stream.order.factor]


def _valid(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Check that the rows' buffers are long enough, because reading short buffers could crash the process."""
    rows.validate()
    return rows


def arrivals(
    payloads: Sequence[Payload], family: str, side: str
) -> list[tuple[pa.RecordBatch, ArrivedFile | None]]:
    """Return a family side's rows and their file, if any, per payload that has some, in partition order."""
    part = family, side
    ordered = sorted(payloads, key=lambda p: p.order)
    return [(p.rows[part], p.files.get(part)) for p in ordered if part in p.rows]


def counted_rows(
    payloads: Sequence[Payload], family: str, side: str, late_limit_us: int | None
) -> list[pa.RecordBatch]:
    """Return a side's rows that windows of rows count, from all payloads, except late rows."""
    found = [p.counted[family, side] for p in payloads if (family, side) in p.counted]
    if late_limit_us is not None:
        found = [rows.filter(pa.array(rows.column(TS).to_numpy() >= late_limit_us)) for rows in found]
    return found
