"""PACK: filters the rows of one partition, and distributes them over one payload per bucket.

Every distinct filter is evaluated once per row; the answers are the row's lineage. Keys are normalised and
hashed to a bucket, and rows are sorted by key. A row is dropped if it has no key, or if no query of a family
can use it. The buckets, not PACK, decide which rows are late. PACK is given the stream's watermark at the
start of the batch. Rows with an earlier event time may be late, so they are sent a second time, with all
columns, as *suspects*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.columns.punctuation_marks import Promise
from catalog.values.counters.batch_counters import StreamPunctuations
from catalog.values.counters.family_counters import FilterCounters
from catalog.values.plan import PlannedFilter
from catalog.values.query import Clock
from catalog.values.stream import Stream
from operators.closings.closing_rows import ends
from operators.closings.contract import SideContract
from operators.kernels.fragments import Fragments
from operators.kernels.keys import Bools, Int64s, bucket_of, join_key, unpacked
from operators.kernels.sort import sort_into_buckets
from operators.orders.order_clock import order_clock
from operators.orders.order_progress import OrderedRows, ordered_rows
from operators.pack.lineage_words import count_passing, evaluate_lineage, passing_some
from operators.pack.pack_plan import PackPlan, SidePlan
from operators.pack.payload import Payload, StreamHeader
from operators.pack.punctuations import Parted, closings_of_side, parted
from operators.ranks.ranking import rank_rows
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.layout import SideLayout, side_layout
from operators.segments.segment import COLUMN, LINEAGE


@dataclass(frozen=True, slots=True, eq=False)
class PackedSide:
    """One side of a family as PACK uses it: with its distinct filters, regardless of the number of queries.

    Attributes:
        family: Id of the family.
        side: ``a`` or ``b``.
        layout: Columns of the side.
        filters: Filters in the order of their bits in the lineage words, as in the plan.
        takes_all: True if some query or join uses every row of this side (no filter, or selection pull-up).
        fragments: Rule that gives the buckets to which the rows of a key are sent.
        keyless: True if rows without a key are also sent, each to one bucket, which can be any.
        contract: Rules by which the keys of the side are closed; None if keys are never closed.
        clock: Clock that measures the windows on the side.
    """

    family: str
    side: str
    layout: SideLayout
    filters: tuple[PlannedFilter, ...]
    takes_all: bool
    fragments: Fragments
    keyless: bool
    contract: SideContract | None = None
    clock: Clock = "time"


@dataclass(frozen=True, slots=True, eq=False)
class Packer:
    """Packs the rows of one stream under one plan version.

    Attributes:
        stream: The stream.
        sides: The family sides that read the stream.
        buckets: Number of buckets.
    """

    stream: Stream
    sides: tuple[PackedSide, ...]
    buckets: int

    def columns(self) -> frozenset[str]:
        """Return the columns that must be read from the input."""
        names = {self.stream.event_time}
        for part in self.sides:
            names |= {name for f in part.filters for name in f.columns}
            names |= {*part.layout.key, *part.layout.stored}
        promised = self.stream.punctuations
        if promised is not None:
            # The key columns of punctuations that a family uses are included above.
            names |= set() if promised.column is None else {promised.column}
        if self.stream.order is not None:
            names.add(self.stream.order.column)
        return frozenset(names)

    def may_have_late_rows(self, table: pa.Table, late_bound_us: int) -> bool:
        """Return whether any row's event time is below the bound."""
        oldest = pc.min(table.column(self.stream.event_time)).cast(pa.int64()).as_py()
        return oldest is not None and oldest < late_bound_us

    def pack(self, table: pa.Table, order: int, batch: int, late_bound_us: int | None) -> list[Payload]:
        """Pack one partition.

        Args:
            table: Rows of the stream in canonical Arrow types, with the column ``_pos``.
            order: Number of the partition in its batch.
            batch: Batch number.
            late_bound_us: This stream's watermark at the start of the batch; None if there is none yet.

        Returns:
            Payloads, one per bucket, in bucket order.
        """
        table = table.combine_chunks()
        found = Parted(table)
        if self.stream.punctuations is not None:
            used = {part.contract.on for part in self.sides if part.contract is not None and part.contract.on}
            found = parted(self.stream, self.stream.punctuations, table, used)
        rows_read = table.num_rows - found.received
        table, ts, taken = self._timed(found)
        times = table.column(self.stream.event_time)
        rows = table.num_rows - times.null_count
        newest = int(ts.max()) if rows else None
        clock, placed, in_order = self._order(table)
        header = StreamHeader(self.stream.id, rows_read, rows_read - rows, newest, in_order)
        suspects: dict[int, pa.RecordBatch] = {}
        below = _below(ts, late_bound_us, taken) if rows and late_bound_us is not None else ts[:0]
        if len(below):
            arrays = [*(_chunk(table.column(name)).take(pa.array(below)) for name in table.column_names)]
            arrays.append(pa.array(ts[below]))
            suspects[self.stream.id] = pa.RecordBatch.from_arrays(arrays, names=[*table.column_names, TS])
        packed_rows: list[dict[tuple[str, str], pa.RecordBatch]] = [{} for _ in range(self.buckets)]
        lineages = evaluate_lineage(table, [part.filters for part in self.sides])
        keyless: list[dict[tuple[str, str], pa.RecordBatch]] = [{} for _ in range(self.buckets)]
        for part, lineage in zip(self.sides, lineages, strict=True):
            if part.clock == "order":
                with_key, without = self._pack_side(part, table, clock, lineage, placed)
            else:
                with_key, without = self._pack_side(part, table, ts, lineage, taken)
            for bucket, packed in enumerate(with_key):
                if packed.num_rows:
                    packed_rows[bucket][part.family, part.side] = packed
            for bucket, packed in enumerate(without):
                if packed.num_rows:
                    keyless[bucket][part.family, part.side] = packed
        payloads = [
            Payload(order, batch, (header,), (), packed_rows[b], place=(b, self.buckets), keyless=keyless[b])
            for b in range(self.buckets)
        ]
        counting = self.stream.id % self.buckets
        filters = self._count(len(ts), lineages)
        payloads[counting] = replace(payloads[counting], suspects=suspects, filters=filters)
        if any(part.clock in ("rows", "key rows") for part in self.sides):
            counted = self._counted(table, ts)
            payloads = [replace(p, counted=c) for p, c in zip(payloads, counted, strict=True)]
        if self.stream.has_contract:
            closings, edges = self._closings(table, ts, found.promises)
            payloads = [replace(p, closings=c, edges=edges) for p, c in zip(payloads, closings, strict=True)]
            if found.received:
                received = StreamPunctuations(self.stream.id, found.received, found.ignored)
                payloads[counting] = replace(payloads[counting], received=received)
        return payloads

    def _timed(self, found: Parted) -> tuple[pa.Table, Int64s, Bools | None]:
        """Return a partition, its event times, and which of its entries are packed, or None if all are.

        Rows without an event time, and punctuations, are not packed. They are removed here if PACK reads
        more of the rows than keys and times, or if a punctuation has a time. Otherwise they stay, with the
        least possible time, because removing them would cost more than all other work for punctuations that
        no family uses.
        """
        table, taken = found.table, found.rows
        times = table.column(self.stream.event_time)
        if times.null_count:
            valid = unpacked(_chunk(pc.is_valid(times)))
            taken = valid if taken is None else taken & valid
        if taken is None:
            return table, _int64(times), None
        if self._looks_at_rows or np.count_nonzero(taken) < len(taken) - times.null_count:
            table = table.filter(pa.array(taken)).combine_chunks()
            return table, _int64(table.column(self.stream.event_time)), None
        ts = _int64(times).copy()
        ts[np.flatnonzero(~taken)] = np.iinfo(np.int64).min
        return table, ts, taken

    @property
    def _looks_at_rows(self) -> bool:
        """Return whether rows are filtered, counted or ordered, or themselves close keys."""
        return self.stream.order is not None or any(
            part.filters
            or part.clock in ("rows", "key rows")
            or (part.contract is not None and part.contract.derives)
            for part in self.sides
        )

    def _order(self, table: pa.Table) -> tuple[Int64s, Bools | None, OrderedRows | None]:
        """Return each row's clock in the stream's order, which rows have a clock, and a summary of all."""
        if self.stream.order is None:
            return np.zeros(0, dtype=np.int64), None, None
        clock, placed = order_clock(self.stream, table)
        return clock, placed, ordered_rows(clock[placed], self.stream.order.scramble)

    def _counted(self, table: pa.Table, ts: Int64s) -> list[dict[tuple[str, str], pa.RecordBatch]]:
        """Return the rows that windows of rows count, per bucket, including rows that pass no filter.

        If rows of all keys are counted together, every bucket gets all rows. If rows are counted by key, each
        row goes to the bucket of its key.
        """
        counted: list[dict[tuple[str, str], pa.RecordBatch]] = [{} for _ in range(self.buckets)]
        pos = np.ascontiguousarray(_chunk(table.column("_pos")).to_numpy())
        for part in self.sides if len(ts) else ():
            if part.clock == "rows":
                rows = rank_rows(None, ts, pos)
                for of_bucket in counted:
                    of_bucket[part.family, part.side] = rows
            elif part.clock == "key rows":
                key, valid = join_key(table, part.layout.key, part.layout.key_types)
                order, starts = self._into_buckets(part, key, valid)
                ordered = rank_rows(key[order], ts[order], pos[order])
                for bucket, (start, end) in enumerate(pairwise(starts.tolist())):
                    counted[bucket][part.family, part.side] = ordered.slice(start, end - start)
        return counted

    def _closings(
        self, table: pa.Table, ts: Int64s, promises: Sequence[Promise]
    ) -> tuple[list[dict[tuple[str, str], pa.RecordBatch]], dict[tuple[str, str], pa.RecordBatch]]:
        """Return the closings per bucket, by the bucket of their key, and the edges for all buckets."""
        edges: dict[tuple[str, str], pa.RecordBatch] = {}
        closings: list[dict[tuple[str, str], pa.RecordBatch]] = [{} for _ in range(self.buckets)]
        for part in self.sides:
            if part.contract is None:
                continue
            used = any(promise.on == part.contract.on for promise in promises)
            if not used and not part.contract.derives:
                continue
            found, valid, edge = closings_of_side(part.layout, part.contract, table, ts, promises)
            if edge is not None:
                edges[part.family, part.side] = edge
            key = found.column(KEY).to_numpy()
            wide = valid & (ends(found) != key)
            order, starts = self._into_buckets(part, key, valid & ~wide)
            ordered = found.take(pa.array(order))
            everywhere = found.filter(pa.array(wide)) if wide.any() else None
            for bucket, (start, end) in enumerate(pairwise(starts.tolist())):
                own = ordered.slice(start, end - start)
                if everywhere is not None:
                    own = pa.concat_batches([own, everywhere])
                if own.num_rows:
                    closings[bucket][part.family, part.side] = own
        return closings, edges

    def _into_buckets(self, part: PackedSide, key: Int64s, valid: Bools) -> tuple[Int64s, Int64s]:
        """Sort rows by (bucket, key, row), with a copy for each bucket of their key."""
        if part.fragments.replicates:
            return part.fragments.sort_into_buckets(key, valid, self.buckets)
        return sort_into_buckets(key, bucket_of(key, self.buckets), valid, self.buckets)

    def _count(self, rows: int, lineages: Sequence[Sequence[pa.Array]]) -> tuple[FilterCounters, ...]:
        """Count the rows that pass each filter; return no counts if there are no rows."""
        if not rows:
            return ()
        return tuple(
            FilterCounters(part.family, part.side, f.bit, rows, passed)
            for part, lineage in zip(self.sides, lineages, strict=True)
            for f, passed in zip(part.filters, count_passing(lineage, len(part.filters)), strict=True)
        )

    def _pack_side(
        self,
        part: PackedSide,
        table: pa.Table,
        ts: Int64s,
        lineage: Sequence[pa.Array],
        placed: Bools | None = None,
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """Return the rows of each bucket, and the rows without a key if they are needed."""
        key, valid = join_key(table, part.layout.key, part.layout.key_types)
        null = ~valid if part.keyless and not valid.all() else None
        if placed is not None:
            valid &= placed
            null = null if null is None else null & placed
        if not part.takes_all:
            passing = passing_some(lineage, len(ts))
            valid &= passing
            null = null if null is None else null & passing
        names = [
            KEY,
            TS,
            POS,
            *(f"{LINEAGE}{w}" for w in range(len(lineage))),
            *(COLUMN + n for n in part.layout.stored),
        ]
        columns = [pa.array(key), pa.array(ts), _chunk(table.column("_pos"))]
        columns += lineage
        columns += [_chunk(table.column(name)) for name in part.layout.stored]
        whole = pa.RecordBatch.from_arrays(columns, names=names)
        # Positions ascend in the table, so rows sorted by (key, row) are also sorted by (key, position).
        order, starts = self._into_buckets(part, key, valid)
        ordered = whole.take(pa.array(order))
        with_key = [ordered.slice(start, end - start) for start, end in pairwise(starts.tolist())]
        if null is None:
            return with_key, []
        # The ``_key`` of a row with a NULL key is undefined. It is set to 0, so that the rows, which are in
        # the order of positions, are also sorted by (key, position).
        apart = whole.set_column(0, KEY, pa.array(np.zeros(len(ts), dtype=np.int64)))
        bucket = table.column("_pos").to_numpy() % self.buckets
        return with_key, [apart.filter(pa.array(null & (bucket == b))) for b in range(self.buckets)]


def packer(asked: PackPlan) -> Packer:
    """Compile the packer of a stream for a plan version."""
    sides = tuple(_packed_side(side, asked.stream) for side in asked.sides)
    return Packer(asked.stream, sides, asked.buckets)


def _packed_side(asked: SidePlan, stream: Stream) -> PackedSide:
    family = asked.family
    layout = side_layout(family, asked.side, stream)
    fragments = Fragments.of(family.replication)
    return PackedSide(
        family.id,
        asked.side,
        layout,
        asked.filters,
        asked.takes_all,
        fragments,
        asked.keyless,
        asked.contract,
        family.clock(asked.side),
    )


def control_payloads(
    texts: Sequence[str], order: int, batch: int, buckets: int, senders: tuple[int, ...] = ()
) -> list[Payload]:
    """Return one payload per bucket with the batch's control records.

    Args:
        texts: The records.
        order: Number of the partition in the batch.
        batch: Batch number.
        buckets: Number of buckets.
        senders: Numbers of the buckets that sent pairs to other buckets in the previous batch.
    """
    return [
        Payload(order, batch, control=tuple(texts), place=(b, buckets), senders=senders)
        for b in range(buckets)
    ]


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _below(ts: Int64s, bound_us: int, taken: Bools | None) -> Int64s:
    """Return the indices of the packed rows whose event time is below a bound."""
    if taken is not None:
        return np.flatnonzero((ts < bound_us) & taken)
    return np.flatnonzero(ts < bound_us) if int(ts.min()) < bound_us else ts[:0]


def _int64(column: pa.ChunkedArray) -> Int64s:
    """Return event times, µs, undefined for rows without an event time."""
    chunk = _chunk(column).cast(pa.timestamp("us")).cast(pa.int64())
    values = pa.Array.from_buffers(pa.int64(), len(chunk), [None, chunk.buffers()[1]], offset=chunk.offset)
    return np.ascontiguousarray(values.to_numpy())
