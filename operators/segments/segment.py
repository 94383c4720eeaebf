"""Segments: immutable, key-sorted columnar runs of rows, the unit of a slice's state.

    _key  _ts  _pos  (_epoch)  _l0 ...  c.<column> ...
     3     ..   ..      ..      ..
     3     ..                            sorted by (_key, _pos)
     8     ..

``_epoch`` is the plan version under which a row was processed. If it is the same for all rows, it is stored
only in the metadata. ``_l<word>`` are the lineage words, with 64 bits each; ``filters`` in the metadata tells
which filter has which bit:

    filters  (4, 17, 90)      _l0 = 0b101: passes 4 and 90, fails 17; other filters are unknown

A filter's number (``PlannedFilter.bit``) is never reused, and numbers only grow. Bit positions are assigned
anew, without gaps, in every plan version, and are valid only inside their segment. So bit positions of
departed filters are reused at once. Still, no row can seem to pass a filter that was never evaluated on it,
because the words of stored, backfilled and replayed rows keep the filter numbers with which they were
written. A row needs words only for the filters in force, not for all filters that ever existed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from operators.errors import CorruptSegment
from operators.kernels.keys import Bools, Int64s, Words
from operators.segments.encoding.row_codec import KEY, POS, TS, decode_rows, encode_rows
from operators.segments.encoding.view_names import bloom_id, cut_name, stored_ids
from operators.segments.indexes.cell_index import CellIndex
from operators.segments.indexes.row_kinds import RowKinds

EPOCH = "_epoch"
LINEAGE = "_l"
#: Bits in a lineage word.
WORD_BITS = 64
COLUMN = "c."
#: Event time of rows whose ``_ts`` is a different clock (``operators.ranks.clocked_rows``).
TIME = "_time"
#: Version of the encoding, stored in every segment. In format 1, a filter's bit position was its number; in
#: format 2, keys, times and positions were 64 bits wide.
FORMAT = 3


@dataclass(frozen=True, slots=True)
class ArrivedFile:
    """A file in which rows arrived from PACK, in the stored form of a segment (``segments.files``).

    Attributes:
        name: Name of the file.
        bytes: Length of the file.
    """

    name: str
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Origin of the rows of a segment that is not stored.

    Attributes:
        segment: Stored segment, or view, from which the rows were taken.
        index: int64[n], ascending, indices of the rows in this segment; None for all of its rows.
        relabelled: True if the rows' lineage differs from the lineage that ``segment`` has for them.
    """

    segment: Segment
    index: Int64s | None
    relabelled: bool

    def picked(self, index: Int64s) -> Origin:
        """Return the origin of the rows at some indices of a segment with this origin."""
        return Origin(self.segment, index if self.index is None else self.index[index], self.relabelled)


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Rows of one side of a family, sorted by (key, position).

    Attributes:
        rows: The columns, as pictured above.
        key: int64[n], ascending, join key or its hash (``kernels.keys``).
        ts: int64[n], event time, µs UTC; in a family with windows of rows, another clock.
        times: int64[n], event time, µs UTC.
        pos: int64[n], position in the source.
        epoch: Plan version of all rows; None if each row has its own (``_epoch``).
        filters: Numbers of the filters that were evaluated on these rows, in the order of their bits in the
            words.
        t_min: Smallest event time (0 without rows).
        t_max: Largest event time (0 without rows).
        epoch_min: Smallest plan version of a row.
        epoch_max: Largest plan version of a row.
        columns: Names of the stream columns that the segment has.
        id: Stored id (``operators.segments.encoding.view_names``); empty until the segment is stored.
        values: Stored id and length of every stored value of the segment: first the value of its rows, and
            last the filter of its keys, if it has one (``operators.lazy``).
        stored_rows: Number of rows in the stored value of the rows; a view has only some of them. 0 until the
            segment is stored.
        origin: Stored rows from which these rows were taken; None if there are none, or once the segment is
            stored.
        arrived: File that already has exactly these rows; None if there is none, or once the segment is
            stored.
        alike: Kinds of the rows, as far as they have been computed.
        cells: Indexes of the rows by cell, for each number of cells that was needed.
        by_clock: ``ts`` sorted ascending; empty until it is first needed.
    """

    rows: pa.RecordBatch
    epoch: int | None
    filters: tuple[int, ...]
    id: str = ""
    values: tuple[tuple[str, int], ...] = ()
    stored_rows: int = 0
    origin: Origin | None = None
    arrived: ArrivedFile | None = None
    alike: RowKinds = field(default_factory=RowKinds, repr=False)
    cells: dict[int, CellIndex] = field(default_factory=dict, repr=False)
    by_clock: list[Int64s] = field(default_factory=list, repr=False)
    key: Int64s = field(init=False)
    ts: Int64s = field(init=False)
    times: Int64s = field(init=False)
    pos: Int64s = field(init=False)
    t_min: int = field(init=False)
    t_max: int = field(init=False)
    epoch_min: int = field(init=False)
    epoch_max: int = field(init=False)
    columns: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "key", self.rows.column(KEY).to_numpy())
        put(self, "ts", self.rows.column(TS).to_numpy())
        put(self, "pos", self.rows.column(POS).to_numpy())
        names = tuple(self.rows.schema.names)
        put(self, "times", self.rows.column(TIME).to_numpy() if TIME in names else self.ts)
        some = len(self.ts) > 0
        put(self, "t_min", int(self.ts.min()) if some else 0)
        put(self, "t_max", int(self.ts.max()) if some else 0)
        epochs = self.epochs() if self.epoch is None and some else None
        put(self, "columns", _columns(names))
        put(self, "epoch_min", int(epochs.min()) if epochs is not None else self.epoch or 0)
        put(self, "epoch_max", int(epochs.max()) if epochs is not None else self.epoch or 0)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def known_bits(self) -> frozenset[int]:
        """Lineage bits of the filters evaluated on these rows; nothing is known about other filters."""
        return frozenset(self.filters)

    @property
    def stored_bytes(self) -> int:
        """Length of the stored rows; for a view, its share of the length; 0 until the segment is stored."""
        return round(self.values[0][1] * len(self) / max(self.stored_rows, 1)) if self.values else 0

    @property
    def words(self) -> int:
        """Number of lineage words."""
        return _words(len(self.filters))

    @property
    def first_pos(self) -> int:
        """Position of the first row in the source."""
        return int(self.pos[0])

    @property
    def bloom(self) -> tuple[str, int] | None:
        """Stored id and length of the filter of the stored rows' keys, or None if there is no filter."""
        last = self.values[-1] if len(self.values) > 1 else None
        return last if last is not None and last[0] == bloom_id(self.id) else None

    def probed(self, keys: Int64s) -> Segment | None:
        """Return the rows that males must probe, or None if none of the rows can match.

        Args:
            keys: int64[n], n > 0, ascending, keys of the males.
        """
        if not len(self) or self.key[0] > keys[-1] or self.key[-1] < keys[0]:
            return None
        return self

    def epochs(self) -> Int64s:
        """Return the plan version of every row, int64[n]."""
        if self.epoch is not None:
            return np.full(len(self), self.epoch, dtype=np.int64)
        epochs: Int64s = self.rows.column(EPOCH).to_numpy()
        return epochs

    def lineage_word(self, word: int) -> Words:
        """Return bits 64*word ... 64*word+63 of every row; the word must have a filter."""
        values: Words = self.rows.column(f"{LINEAGE}{word}").to_numpy()
        return values

    def kinds(self, lives: tuple[int, ...]) -> RowKinds:
        """Return the kinds of rows, distinguished at least by the live bits; the result is kept.

        Args:
            lives: Live bits of each lineage word.
        """
        if not self.alike.tells(lives):
            epochs = self.epochs() if self.epoch is None else self.epoch
            words = {number: self.lineage_word(number) for number, live in enumerate(lives) if live}
            self.alike.tell_apart(lives, epochs, words)
        return self.alike

    def has_bit(self, bit: int) -> Bools:
        """Return which rows pass a lineage bit's filter, bool[n]; no row if the filter was not evaluated."""
        if bit not in self.filters:
            return np.zeros(len(self), dtype=np.bool_)
        word, place = divmod(self.filters.index(bit), WORD_BITS)
        passes: Bools = (self.lineage_word(word) >> np.uint64(place)) & np.uint64(1) != 0
        return passes

    def in_cells(self, cells: int) -> CellIndex:
        """Return the index of the rows for a number of cells; keep it for the next call."""
        found = self.cells.get(cells)
        if found is None:
            found = self.cells[cells] = CellIndex.of(self.key, self.ts, cells)
        return found

    def behind(self, limits: Int64s) -> Int64s:
        """Count the rows with ``ts`` up to each limit, int64[limits]; the sorted times are kept."""
        if not self.by_clock:
            self.by_clock.append(np.sort(self.ts))
        found: Int64s = np.searchsorted(self.by_clock[0], limits, side="right")
        return found

    def column(self, name: str) -> pa.Array | None:
        """Return a stream column, or None if the segment does not have the column."""
        full = COLUMN + name
        return self.rows.column(full) if full in self.rows.schema.names else None

    def filter(self, keep: Bools) -> Segment:
        """Return the rows for which ``keep`` is true, as a segment that is not stored yet."""
        return self.take(np.flatnonzero(keep))

    def cut(self, t_start: int, t_end: int) -> Segment:
        """Return the rows with ``t_start <= T < t_end``, where T is the row's ``ts``.

        The cut of a stored segment is a view of the segment. So a split at a slice boundary writes nothing,
        and the stored bytes are removed together with the last view of them.
        """
        part = self.filter((self.ts >= t_start) & (self.ts < t_end))
        return part.stored_as_view(cut_name(self.id, t_start, t_end)) if self.id else part

    def take(self, index: Int64s) -> Segment:
        """Return the rows at ascending indices, as a segment that is not stored yet."""
        rows = _taken(self.rows, index)
        if self.id:
            return Segment(rows, self.epoch, self.filters, origin=Origin(self, index, False))
        origin = None if self.origin is None else self.origin.picked(index)
        return Segment(rows, self.epoch, self.filters, origin=origin)

    def with_bit(self, bit: int, passes: Bools) -> Segment:
        """Return the same rows with one more filter evaluated, stored in the next bit."""
        number, place = divmod(len(self.filters), WORD_BITS)
        words = [self.lineage_word(word) for word in range(number)]
        added = passes.astype(np.uint64) << np.uint64(place)
        words.append(self.lineage_word(number) | added if place else added)
        return self.with_lineage((*self.filters, bit), words)

    def knowing(self, bits: Collection[int]) -> Segment:
        """Return the same rows with only the bits of these filters."""
        return self.placed(tuple(bit for bit in self.filters if bit in bits))

    def slimmed(self, live: Collection[int]) -> Segment:
        """Return the same rows without bits of filters that are not live, if that saves a lineage word."""
        known = sum(bit in live for bit in self.filters)
        return self.knowing(live) if _words(known) < _words(len(self.filters)) else self

    def placed(self, filters: tuple[int, ...]) -> Segment:
        """Return the same rows with the bits of exactly these known filters, in this order."""
        if filters == self.filters:
            return self
        places = {bit: place for place, bit in enumerate(self.filters)}
        # Bits that move between the same two words by the same distance are moved together.
        moves: dict[tuple[int, int, int], int] = {}
        for new, bit in enumerate(filters):
            (from_word, from_place), (to_word, to_place) = (divmod(p, WORD_BITS) for p in (places[bit], new))
            move = (from_word, to_word, to_place - from_place)
            moves[move] = moves.get(move, 0) | 1 << from_place
        words = [np.zeros(len(self), dtype=np.uint64) for _ in range(_words(len(filters)))]
        for (from_word, to_word, by), mask in moves.items():
            moved = self.lineage_word(from_word) & np.uint64(mask)
            words[to_word] |= moved << np.uint64(by) if by >= 0 else moved >> np.uint64(-by)
        return self.with_lineage(filters, words)

    def with_lineage(self, filters: tuple[int, ...], words: Sequence[Words]) -> Segment:
        """Return the same rows with other filters, in the order of their bits, and other lineage words."""
        names = [name for name in self.rows.schema.names if not name.startswith(LINEAGE)]
        arrays = [self.rows.column(name) for name in names]
        names += [f"{LINEAGE}{number}" for number in range(len(words))]
        rows = pa.RecordBatch.from_arrays([*arrays, *(pa.array(word) for word in words)], names=names)
        origin = self.origin
        if self.id:
            origin = Origin(self, None, True)
        elif origin is not None:
            origin = Origin(origin.segment, origin.index, True)
        return self._with(
            rows=rows,
            filters=filters,
            alike=RowKinds(),
            id="",
            values=(),
            stored_rows=0,
            origin=origin,
            arrived=None,
        )

    def stored_as(self, segment_id: str, stored_bytes: int) -> Segment:
        """Return the same segment with the id and length of its own stored value."""
        values = ((segment_id, stored_bytes),)
        return self._with(id=segment_id, values=values, stored_rows=len(self), origin=None, arrived=None)

    def stored_as_view(self, segment_id: str, patch: tuple[str, int] | None = None) -> Segment:
        """Return the same segment with the name of a view of its origin.

        Args:
            segment_id: Name of the view.
            patch: Stored id and length of the patch that the name adds; None if the name adds no patch.
        """
        assert self.origin is not None, "only stored rows can be viewed"
        lengths = dict(self.origin.segment.values)
        if patch is not None:
            lengths[patch[0]] = patch[1]
        values = tuple((stored, lengths[stored]) for stored in stored_ids(segment_id))
        if (bloom := self.origin.segment.bloom) is not None:
            values = (*values, bloom)
        return self._with(
            id=segment_id, values=values, stored_rows=self.origin.segment.stored_rows, origin=None
        )

    def with_bloom(self, length: int) -> Segment:
        """Return the same stored segment with a filter of its keys, given the filter's length in bytes."""
        return self._with(values=(*self.values, (bloom_id(self.id), length)))

    def _with(self, **given: object) -> Segment:
        """Return a segment with the same keys, times and versions, and new values of the given fields."""
        # Copied, because finding the first and last times again would cost as much as writing the state.
        other = object.__new__(Segment)
        for name in Segment.__slots__:
            object.__setattr__(other, name, given[name] if name in given else getattr(self, name))
        return other

    def encode(self) -> bytes:
        """Return the stored form: one Arrow IPC stream with format, epoch and filters as metadata."""
        return encode_rows(labelled(self.rows, self.epoch, self.filters))

    @classmethod
    def decode(cls, data: bytes | pa.Buffer, segment_id: str = "") -> Segment:
        """Read the stored form.

        Args:
            data: Bytes that were stored under ``segment_id``.
            segment_id: Stored id of the segment.

        Raises:
            CorruptSegment: The bytes are not a segment, or have an unknown format.
        """
        try:
            rows = decode_rows(data)
            facts = json.loads((rows.schema.metadata or {})[b"sluice"])
            version = facts["format"]
        except (pa.ArrowInvalid, OSError, EOFError, KeyError, ValueError) as error:
            raise CorruptSegment(f'segment "{segment_id}" cannot be read', detail=str(error)) from error
        if version != FORMAT:
            raise CorruptSegment(f'segment "{segment_id}" has format {version}, this version reads {FORMAT}')
        segment = cls(rows.replace_schema_metadata(None), facts["epoch"], tuple(facts["filters"]))
        return segment.stored_as(segment_id, len(data)) if segment_id else segment


def labelled(rows: pa.RecordBatch, epoch: int | None, filters: tuple[int, ...]) -> pa.RecordBatch:
    """Return rows in the stored form of a segment, with format, epoch and filters as metadata."""
    return rows.replace_schema_metadata(_label(epoch, filters))


def unlabelled(rows: pa.RecordBatch, name: str, epoch: int, filters: tuple[int, ...]) -> pa.RecordBatch:
    """Return the rows of a file, after checking that they were ``labelled`` with this epoch and filters.

    Raises:
        CorruptSegment: The label is different. If the rows were stored in a slice, their bits would be read
            as answers of other filters.
    """
    if rows.schema.metadata != {key.encode(): text.encode() for key, text in _label(epoch, filters).items()}:
        raise CorruptSegment(
            f'file "{name}" was packed for another plan version or other filters',
            detail=f"Its label is {rows.schema.metadata}, but should be {_label(epoch, filters)}.",
        )
    return rows.replace_schema_metadata(None)


def _label(epoch: int | None, filters: tuple[int, ...]) -> dict[str, str]:
    return {"sluice": json.dumps({"format": FORMAT, "epoch": epoch, "filters": filters})}


def _taken(rows: pa.RecordBatch, index: Int64s) -> pa.RecordBatch:
    """Return the rows at ascending indices; numpy takes 64-bit numbers twice as fast as Arrow.

    For unsorted indices, Arrow is faster.
    """
    where = pa.array(index)
    columns = [
        column.take(where) if name.startswith(COLUMN) else pa.array(np.take(column.to_numpy(), index))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


# Cached, because segments have few distinct sets of columns. Equal sets share one object, so the hash of each
# set is computed only once.
@lru_cache(maxsize=1 << 10)
def _columns(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name[len(COLUMN) :] for name in names if name.startswith(COLUMN))


def _words(filters: int) -> int:
    """Return the number of lineage words for this many filters."""
    return -(-filters // WORD_BITS)


def timestamps(ts: Int64s) -> pa.Array:
    """Return event times in µs as an Arrow timestamp array."""
    return pa.array(ts).view(pa.timestamp("us"))
