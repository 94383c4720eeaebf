"""Closings of one batch in one family of a bucket, around its joins.

    before the joins   rows behind a closing that they match break a promise: they are taken out
                       rows of a key that the other side closed in an earlier batch probe, and do not rest
    after the joins    the batch's own closings are remembered, old ones forgotten, and rows at rest that they
                       kill are purged now and then

A batch's own closings wait until it has joined: rows of the two streams have no order among each other, so a
row of the other side may stand before the closing or behind it.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa

from catalog.arrow_types import arrow_type
from catalog.values.plan import Promises
from operators.closings.closed_keys import first_closings
from operators.closings.closing_rows import BEHIND_ALL, closing_rows, closings_of, matching
from operators.errors import PromiseBroken
from operators.join.family_joins import FamilyJoins
from operators.kernels.keys import Bools
from operators.pack.payload import Payload
from operators.segments.layout import SIDES
from operators.segments.row_codec import KEY
from operators.segments.segment import Segment, timestamps

#: Rows that came in a file are linked where they are; leaving some out writes all others, which pays if one
#: of so many stays away. The others are purged later.
WORTH_A_WRITE = 8


@dataclass(slots=True, eq=False)
class BatchClosings:
    """Closings of a batch.

    Attributes:
        joins: Joins of the family.
        arrived: Closings per side that came with the batch, or None.
        extended: Closings per side that must be remembered longer, for rows of the other side that came.
    """

    joins: FamilyJoins
    arrived: Mapping[str, pa.RecordBatch | None]
    extended: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: {side: [] for side in SIDES})

    @classmethod
    def of(
        cls,
        joins: FamilyJoins,
        payloads: Sequence[Payload],
        late_limits: Mapping[str, int | None],
        promises: Sequence[Promises],
        place: tuple[int, int],
    ) -> Self | None:
        """Return the closings of a batch, None where neither side can close a key.

        Args:
            joins: Joins of the family.
            payloads: Payloads of the batch.
            late_limits: Watermark per side at the end of the batch before.
            promises: Punctuations of control records: behind all rows of the batch.
            place: Number of the bucket, and of all buckets.
        """
        if not joins.closed:
            return None
        family_id = joins.family.plan.id
        arrived = {}
        for side, closed in joins.closed.items():
            closed.begin_batch()
            parts = [p.closings[family_id, side] for p in payloads if (family_id, side) in p.closings]
            parts += [_closings(joins, side, each, place) for each in promises]
            arrived[side] = first_closings(parts, late_limits[side])
        return cls(joins, arrived)

    def without_violating(
        self, side: str, came: Segment, place: tuple[int, int]
    ) -> tuple[Segment | None, pa.RecordBatch | None]:
        """Return the rows of a side that break no promise, and what is kept of the others.

        Args:
            side: ``a`` or ``b``.
            came: New rows that are not late.
            place: Number of the bucket, and of all buckets.

        Raises:
            PromiseBroken: A row breaks a promise, and the stream's contract says to stop.
        """
        closed = self.joins.closed.get(side)
        if closed is None:
            return came, None
        layout, arrived = self.joins.family.layouts[side], self.arrived[side]
        broken = closed.closed(came, layout)
        if arrived is not None:
            broken |= matching(came, layout, arrived, behind=True)
        if not broken.any():
            return came, None
        rows = came.filter(broken)
        if closed.contract.stops:
            raise PromiseBroken(closed.contract.stream, self._shown_key(side, rows), int(rows.pos[0]))
        # A row comes to all buckets of its key, and is counted in one.
        own = self.joins.family.fragments.place(rows.key, rows.pos, *place).female
        if own is not None:
            rows = rows.filter(own)
        closed.violating = len(rows)
        remaining = came.filter(~broken)
        return (remaining if len(remaining) else None), (self._kept(side, rows) if len(rows) else None)

    def resting(self, side: str, came: Segment, females: Segment | None) -> Segment | None:
        """Return those of a side's new rows that rest, given those that would rest in this bucket.

        Args:
            side: ``a`` or ``b``.
            came: New rows that take part.
            females: Those of them that would rest here.
        """
        other = "b" if side == "a" else "a"
        closed = self.joins.closed.get(other)
        if closed is None or not closed.segments:
            return females
        layout = self.joins.family.layouts[side]
        meets_nobody = closed.closed(came, layout)
        if not meets_nobody.any():
            return females
        # Of all that came, wherever they would rest: all buckets of a key forget its closing at once.
        self.extended[other].append(closings_of(came, layout, meets_nobody))
        if females is None or not len(females):
            return females
        dead: Bools = meets_nobody if females is came else closed.closed(females, layout)
        count = int(np.count_nonzero(dead))
        if not count or (females.arrived is not None and count * WORTH_A_WRITE < len(females)):
            return females
        closed.discarded = count
        return females.filter(~dead)

    def close(self, watermarks: Mapping[str, int | None], newest_us: Mapping[str, int | None]) -> None:
        """Let the batch's closings act; after its joins.

        Args:
            watermarks: Watermark per side at the end of the batch.
            newest_us: Newest event time per side so far.
        """
        newest = max((time for time in newest_us.values() if time is not None), default=None)
        for side, closed in self.joins.closed.items():
            closed.remember(self.arrived[side], closed.see(newest), self.extended[side])
            other = "b" if side == "a" else "a"
            held = sum(state.rows for chain in self.joins.chains.values() for state in chain.slices[other])
            if closed.is_look_due(held):
                self.joins.purge_closed(other)
            closed.forget(watermarks[side])

    def _kept(self, side: str, rows: Segment) -> pa.RecordBatch:
        """Return what the family keeps of rows: all columns that its queries or its key read."""
        layout = self.joins.family.layouts[side]
        names = [name for name in layout.types if name in layout.kept(rows) or name in layout.key]
        columns = [layout.read(rows, name) for name in names]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.array(rows.pos), timestamps(rows.ts)], names=[*names, "_pos", "_event_time"]
        )

    def _shown_key(self, side: str, rows: Segment) -> str:
        """Return the key of the first row as text."""
        layout = self.joins.family.layouts[side]
        first = np.zeros(1, dtype=np.int64)
        return ", ".join(f"{name} = {layout.read(rows, name, first)[0].as_py()}" for name in layout.key)


def decoded_promise(promises: Promises) -> pa.Table:
    """Return the values that punctuations of a control record fix."""
    with pa.ipc.open_stream(b64decode(promises.rows)) as reader:
        return reader.read_all()


def _closings(joins: FamilyJoins, side: str, promises: Promises, place: tuple[int, int]) -> pa.RecordBatch:
    """Return the keys of a bucket that a control record closes on one side."""
    family, layout = joins.family, joins.family.layouts[side]
    table = decoded_promise(promises)
    own = promises.stream_id == (family.plan.stream_a if side == "a" else family.plan.stream_b)
    if not own or frozenset(promises.on) != family.contracts[side].on:
        # Closings of none: of the same columns as those of some.
        table = pa.table({name: pa.array([], arrow_type(layout.types[name])) for name in layout.key})
    found, valid = closing_rows(layout, table, None, np.full(table.num_rows, BEHIND_ALL, dtype=np.int64))
    key = found.column(KEY).to_numpy()
    order = np.argsort(key, kind="stable")
    comes = family.fragments.comes_to(key[order], *place) & valid[order]
    return found.take(pa.array(order[comes]))
