"""Segments: immutable, key-sorted columnar runs of rows, the unit of a slice's state.

    _key  _ts  _pos  (_epoch)  _l0 ...  c.<column> ...
     3     ..   ..      ..      ..
     3     ..                            sorted by (_key, _pos)
     8     ..

``_epoch`` is the plan version under which a row was processed; while it is the same for all rows it stays in
the metadata. ``_l<word>`` are the lineage words (64 distinct filters each); ``known bits`` in the metadata
are the filters that were evaluated on these rows, so that a missing bit is not mistaken for a failed one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.errors import InternalError
from operators.keys import Bools, Int64s

KEY, TS, POS, EPOCH = "_key", "_ts", "_pos", "_epoch"
LINEAGE = "_l"
COLUMN = "c."
#: Stands between a stored id and the time bounds of a cut.
CUT = "@"
#: Version of the encoding, kept in every segment so that a later one can still read it.
FORMAT = 1


class CorruptSegment(InternalError):
    """Stored bytes are not a segment of a known format."""

    code = "corrupt-segment"


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Rows of one side of a family, sorted by (key, position).

    Attributes:
        rows: The columns, as pictured above.
        key: int64[n], ascending.
        ts: int64[n], event time, µs UTC.
        pos: int64[n], position in the source.
        epoch: Plan version of all rows, or None where rows carry their own (``_epoch``).
        known_bits: Lineage bits that were evaluated on these rows.
        t_min: Smallest event time (0 without rows).
        t_max: Largest event time (0 without rows).
        epoch_min: Smallest plan version of a row.
        epoch_max: Largest plan version of a row.
        id: Name in the state store; empty until it is stored.
        stored_bytes: Length of the stored form, of a cut its share; 0 until it is stored.
    """

    rows: pa.RecordBatch
    epoch: int | None
    known_bits: frozenset[int]
    id: str = ""
    stored_bytes: int = 0
    key: Int64s = field(init=False)
    ts: Int64s = field(init=False)
    pos: Int64s = field(init=False)
    t_min: int = field(init=False)
    t_max: int = field(init=False)
    epoch_min: int = field(init=False)
    epoch_max: int = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "key", self.rows.column(KEY).to_numpy())
        put(self, "ts", self.rows.column(TS).to_numpy())
        put(self, "pos", self.rows.column(POS).to_numpy())
        some = len(self.ts) > 0
        put(self, "t_min", int(self.ts.min()) if some else 0)
        put(self, "t_max", int(self.ts.max()) if some else 0)
        epochs = self.epochs() if self.epoch is None and some else None
        put(self, "epoch_min", int(epochs.min()) if epochs is not None else self.epoch or 0)
        put(self, "epoch_max", int(epochs.max()) if epochs is not None else self.epoch or 0)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def columns(self) -> frozenset[str]:
        """Names of the stream columns kept."""
        return frozenset(n[len(COLUMN) :] for n in self.rows.schema.names if n.startswith(COLUMN))

    def epochs(self) -> Int64s:
        """Return the plan version of every row, int64[n]."""
        if self.epoch is not None:
            return np.full(len(self), self.epoch, dtype=np.int64)
        epochs: Int64s = self.rows.column(EPOCH).to_numpy()
        return epochs

    def lineage_word(self, word: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]] | None:
        """Return lineage bits 64*word ... 64*word+63 of every row, or None where none was evaluated."""
        name = f"{LINEAGE}{word}"
        return self.rows.column(name).to_numpy() if name in self.rows.schema.names else None

    def has_bit(self, bit: int) -> Bools:
        """Tell which rows pass the filter of that lineage bit, bool[n]."""
        word = self.lineage_word(bit // 64)
        if word is None:
            return np.zeros(len(self), dtype=np.bool_)
        passes: Bools = (word >> np.uint64(bit % 64)) & np.uint64(1) != 0
        return passes

    def column(self, name: str) -> pa.Array | None:
        """Return a kept stream column, or None where it was not kept."""
        full = COLUMN + name
        return self.rows.column(full) if full in self.rows.schema.names else None

    def filter(self, keep: Bools) -> Segment:
        """Return the rows where ``keep`` holds, as a segment not stored yet."""
        return self.take(np.flatnonzero(keep))

    def cut(self, t_start: int, t_end: int) -> Segment:
        """Return the rows with ``t_start <= T < t_end``.

        The cut of a stored segment is a view of it, named ``<stored id>@<t_start>:<t_end>``: a split at a
        slice boundary writes nothing, and the stored bytes go when the last view of them has gone.
        """
        part = self.filter((self.ts >= t_start) & (self.ts < t_end))
        if not self.id:
            return part
        base, _, bounds = self.id.partition(CUT)
        if bounds:
            former = [int(bound) for bound in bounds.split(":")]
            t_start, t_end = max(t_start, former[0]), min(t_end, former[1])
        share = len(part) / max(len(self), 1)
        return part.stored_as(f"{base}{CUT}{t_start}:{t_end}", round(self.stored_bytes * share))

    def take(self, index: Int64s) -> Segment:
        """Return the rows at an ascending index, as a segment not stored yet."""
        return Segment(self.rows.take(pa.array(index)), self.epoch, self.known_bits)

    def with_bit(self, bit: int, passes: Bools) -> Segment:
        """Return the same rows with one more filter evaluated."""
        number, name = bit // 64, f"{LINEAGE}{bit // 64}"
        old = self.lineage_word(number)
        word = np.zeros(len(self), dtype=np.uint64) if old is None else old.copy()
        word |= passes.astype(np.uint64) << np.uint64(bit % 64)
        names, arrays = list(self.rows.schema.names), list(self.rows.columns)
        if old is None:
            names.append(name)
            arrays.append(pa.array(word))
        else:
            arrays[names.index(name)] = pa.array(word)
        rows = pa.RecordBatch.from_arrays(arrays, names=names)
        return Segment(rows, self.epoch, self.known_bits | {bit})

    def stored_as(self, segment_id: str, stored_bytes: int) -> Segment:
        """Return the same segment under its name in the state store."""
        return replace(self, id=segment_id, stored_bytes=stored_bytes)

    def encode(self) -> bytes:
        """Return the stored form: one Arrow IPC stream with format, epoch and known bits as metadata."""
        facts = {"format": FORMAT, "epoch": self.epoch, "bits": sorted(self.known_bits)}
        schema = self.rows.schema.with_metadata({"sluice": json.dumps(facts)})
        return encode_rows(self.rows.replace_schema_metadata(schema.metadata))

    @classmethod
    def decode(cls, data: bytes | pa.Buffer, segment_id: str = "") -> Segment:
        """Read the stored form; numeric columns stay views of ``data``.

        Args:
            data: Bytes under the stored id.
            segment_id: The segment's name; that of a cut gives the cut.

        Raises:
            CorruptSegment: If it is not a segment, or of an unknown format.
        """
        try:
            rows = decode_rows(data)
            facts = json.loads((rows.schema.metadata or {})[b"sluice"])
            version, epoch, bits = facts["format"], facts["epoch"], facts["bits"]
        except (pa.ArrowInvalid, OSError, EOFError, KeyError, ValueError) as error:
            raise CorruptSegment(f'segment "{segment_id}" cannot be read', detail=str(error)) from error
        if version != FORMAT:
            raise CorruptSegment(f'segment "{segment_id}" has format {version}, this version reads {FORMAT}')
        known_bits = frozenset(int(bit) for bit in bits)
        base, _, bounds = segment_id.partition(CUT)
        stored = cls(rows.replace_schema_metadata(None), epoch, known_bits, base, len(data))
        return stored if not bounds else stored.cut(*(int(bound) for bound in bounds.split(":")))


def stored_id(segment_id: str) -> str:
    """Return the id under which a segment's bytes are stored: its own, or that of what it is cut from.

    >>> stored_id("c.0.7.1@100:200")
    'c.0.7.1'
    """
    return segment_id.partition(CUT)[0]


def concat(segments: Iterable[Segment]) -> Segment:
    """Merge segments with the same columns and known bits into one, sorted by (key, position)."""
    parts = list(segments)
    if len(parts) == 1:
        return parts[0]
    epochs = {part.epoch for part in parts}
    epoch = epochs.pop() if len(epochs) == 1 else None
    batches = [part.rows if epoch is not None else _with_epochs(part) for part in parts]
    names = batches[0].schema.names
    rows = pa.concat_batches([batch.select(names) for batch in batches])
    order = np.lexsort((rows.column(POS).to_numpy(), rows.column(KEY).to_numpy()))
    return Segment(rows.take(pa.array(order)), epoch, parts[0].known_bits)


def mergeable(one: Segment, other: Segment) -> bool:
    """Tell whether two segments keep the same columns and know the same filters."""
    return one.known_bits == other.known_bits and set(one.rows.schema.names) - {EPOCH} == set(
        other.rows.schema.names
    ) - {EPOCH}


def encode_rows(rows: pa.RecordBatch) -> bytes:
    """Write one record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_rows(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Read one record batch from an Arrow IPC stream without copying."""
    with pa.ipc.open_stream(data) as reader:
        try:
            return reader.read_next_batch()
        except StopIteration as end:
            # Left alone it would end the generator around us without a word.
            raise EOFError("the stream ends before its record batch") from end


def timestamps(ts: Int64s) -> pa.Array:
    """Return event times in µs as an Arrow timestamp array."""
    return pc.cast(pa.array(ts), pa.timestamp("us"))


def _with_epochs(segment: Segment) -> pa.RecordBatch:
    if segment.epoch is None:
        return segment.rows
    arrays = [*segment.rows.columns, pa.array(segment.epochs())]
    return pa.RecordBatch.from_arrays(arrays, names=[*segment.rows.schema.names, EPOCH])
