"""Closings of keys in one batch, in one family of a bucket: their effects before and after the joins.

    before the joins   a row that follows a closing of its key breaks a promise and is removed from the batch
                       a row whose key the other side closed in an earlier batch probes, but is not stored
    after the joins    the closings that arrived with the batch are remembered, old closings are forgotten,
                       and stored rows of closed keys are purged from time to time

The closings that arrive with a batch take effect after its joins, because the rows of the two streams have no
order relative to each other: a row of the other side may be before or after the closing.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa

from catalog.columns.arrow_types import BELOW_COLUMN as BELOW
from catalog.columns.arrow_types import arrow_type
from catalog.values.control import Promises
from operators.bucket.finishing import wait_for_keys
from operators.closings.closed_keys import first_closings
from operators.closings.closing_rows import (
    BEHIND_ALL,
    between_edges,
    closing_rows,
    closings_of,
    ends,
    matching,
)
from operators.errors import PromiseBroken
from operators.join.family_joins import FamilyJoins
from operators.kernels.keys import Bools
from operators.pack.payload import Payload
from operators.segments.encoding.row_codec import KEY
from operators.segments.layout import SIDES, SideLayout
from operators.segments.segment import Segment

#: Rows that arrive in a file are stored by a link to the file. If some of the rows are dropped, the remaining
#: rows must be written. This pays if at least one row in this many is dropped. Otherwise the rows that could
#: be dropped are stored, too, and purged later.
WORTH_A_WRITE = 8


@dataclass(slots=True, eq=False)
class BatchClosings:
    """Closings of a batch.

    Attributes:
        joins: Joins of the family.
        arrived: Closings per side that arrived with the batch, or None for a side without closings.
        extended: Closings per side that must be remembered longer because rows of the other side arrived.
        finished: Keys that are finished at the end of the batch (``WaitingKeys.finish``), or None if no key
            is finished.
        ended: New rows per side that this bucket would store, but whose key the other side closed before the
            batch.
        pulled: Whether a control record requests the result punctuations that are ready.
    """

    joins: FamilyJoins
    arrived: Mapping[str, pa.RecordBatch | None]
    extended: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: {side: [] for side in SIDES})
    finished: pa.Table | None = None
    ended: dict[str, Segment] = field(default_factory=dict)
    pulled: bool = False

    @classmethod
    def of(
        cls,
        joins: FamilyJoins,
        payloads: Sequence[Payload],
        late_limits: Mapping[str, int | None],
        promises: Sequence[Promises],
        place: tuple[int, int],
    ) -> Self | None:
        """Return the closings of a batch, or None if neither side can close a key.

        Args:
            joins: Joins of the family.
            payloads: Payloads of the batch.
            late_limits: Watermark per side at the end of the previous batch.
            promises: Punctuations of control records; each takes effect after all rows of the batch.
            place: Number of this bucket, and the number of buckets.
        """
        if not joins.closed:
            return None
        family_id = joins.family.plan.id
        arrived = {}
        for side, closed in joins.closed.items():
            closed.begin_batch()
            parts = [p.closings[family_id, side] for p in payloads if (family_id, side) in p.closings]
            parts += [_closings(joins, side, each, place) for each in promises]
            edges = [p.edges[family_id, side] for p in payloads if (family_id, side) in p.edges]
            ended, closed.last = between_edges(closed.last, edges, closed.layout.key_types)
            if ended is not None:
                keys = ended.column(KEY).to_numpy()
                order = np.argsort(keys, kind="stable")
                comes = joins.family.fragments.comes_to(keys[order], *place)
                parts.append(ended.take(pa.array(order[comes])))
            arrived[side] = first_closings(parts, late_limits[side])
        return cls(joins, arrived)

    def without_violating(
        self, side: str, came: Segment, place: tuple[int, int]
    ) -> tuple[Segment | None, pa.RecordBatch | None]:
        """Separate new rows that break no promise from violating rows, of which some columns are returned.

        Args:
            side: ``a`` or ``b``.
            came: New rows that are not late.
            place: Number of this bucket, and the number of buckets.

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
            closed.males += len(came)
            return came, None
        rows = came.filter(broken)
        if closed.contract.stops:
            raise PromiseBroken(closed.contract.stream, self._shown_key(side, rows), int(rows.pos[0]))
        # A row is sent to all buckets of its key, but is counted in only one of them.
        own = self.joins.family.fragments.place(rows.key, rows.pos, *place).female
        if own is not None:
            rows = rows.filter(own)
        closed.violating = len(rows)
        remaining = came.filter(~broken)
        closed.males += len(remaining)
        return (remaining if len(remaining) else None), (kept_columns(layout, rows) if len(rows) else None)

    def resting(self, side: str, came: Segment, females: Segment | None) -> Segment | None:
        """Return the new rows of a side to store in this bucket, without rows whose key is closed.

        Args:
            side: ``a`` or ``b``.
            came: New rows that break no promise.
            females: Rows of ``came`` that are stored in this bucket if their key is not closed.
        """
        other = "b" if side == "a" else "a"
        closed = self.joins.closed.get(other)
        if closed is None or not closed.segments:
            return females
        layout = self.joins.family.layouts[side]
        meets_nobody = closed.closed(came, layout)
        if not meets_nobody.any():
            return females
        if not closed.lasts:
            # Use all new rows, even those that another bucket stores, so that all buckets of a key forget
            # the closing of the key at the same time.
            self.extended[other].append(closings_of(came, layout, meets_nobody))
        if females is None or not len(females):
            return females
        dead: Bools = meets_nobody if females is came else closed.closed(females, layout)
        count = int(np.count_nonzero(dead))
        if not count:
            return females
        self.ended[side] = females.filter(dead)
        if females.arrived is not None and count * WORTH_A_WRITE < len(females):
            return females
        closed.discarded = count
        return females.filter(~dead)

    def close(
        self,
        before: Mapping[str, int | None],
        watermarks: Mapping[str, int | None],
        newest_us: Mapping[str, int | None],
        place: tuple[int, int],
        *,
        finish: bool = True,
    ) -> None:
        """Apply the batch's closings, after its joins.

        Args:
            before: Watermark per side at the end of the previous batch.
            watermarks: Watermark per side at the end of the batch.
            newest_us: Newest event time per side so far.
            place: Number of this bucket, and the number of buckets.
            finish: Whether finished keys may be emitted in this batch; if False, a later batch emits them.
        """
        wait_for_keys(self.joins, self.arrived, newest_us, place)
        finish = finish and self._propagates(before, watermarks)
        if self.joins.waiting is not None and finish:
            together = self.joins.groups is not None
            self.finished = self.joins.waiting.finish(watermarks, together=together)
            self.joins.waiting.closings = 0
        newest = max((time for time in newest_us.values() if time is not None), default=None)
        plan = self.joins.family.plan
        for side, closed in self.joins.closed.items():
            other = "b" if side == "a" else "a"
            slices = [state for chain in self.joins.chains.values() for state in chain.slices[other]]
            closed.count_open([s for state in slices for s in state.segments], self.arrived[side])
            # The closing of a finished key is remembered until the key is emitted. Otherwise a second closing
            # of the key would make the key wait and finish again.
            if self.joins.waiting is None or finish:
                # Forget before remembering, so that forgotten closings are not merged with remembered ones.
                closed.forget(self._forgotten_until(side, watermarks))
            closed.remember(self.arrived[side], closed.see(newest), self.extended[side])
            if other in self.ended:
                for chain in self.joins.chains.values():
                    rows = chain.admitted(other, self.ended[other])
                    ended = 0 if rows is None else len(rows)
                    chain.slices[other][0].counts.discarded = ended if closed.discarded else 0
                    closed.died += ended
            held, segments = sum(s.rows for s in slices), sum(len(s.segments) for s in slices)
            purge_after = plan.punctuations.purge_after
            if closed.is_search_due(held, segments, plan.purge_prices, purge_after):
                self.joins.purge_closed(other, all_rows=purge_after is not None)

    def _propagates(self, before: Mapping[str, int | None], watermarks: Mapping[str, int | None]) -> bool:
        """Return whether finished keys are emitted in this batch; groups are always emitted immediately."""
        waiting, policy = self.joins.waiting, self.joins.family.plan.punctuations
        if waiting is None or self.joins.groups is not None or self.pulled:
            return True
        waiting.closings += sum(part.num_rows for part in self.arrived.values() if part is not None)
        if policy.every_closings is not None:
            return waiting.closings >= policy.every_closings
        if policy.every_us is not None:
            then, now = (_least(each) for each in (before, watermarks))
            return now is not None and (then is None or now // policy.every_us > then // policy.every_us)
        if policy.propagate == "matched":
            return waiting.has_match()
        return policy.propagate == "push"

    def _forgotten_until(self, side: str, watermarks: Mapping[str, int | None]) -> int | None:
        """Return the watermark up to which closings of a side are forgotten."""
        if self.joins.waiting is None:
            return watermarks[side]
        return _least(watermarks)

    def _shown_key(self, side: str, rows: Segment) -> str:
        """Return the key of the first row as text."""
        layout = self.joins.family.layouts[side]
        first = np.zeros(1, dtype=np.int64)
        return ", ".join(f"{name} = {layout.read(rows, name, first)[0].as_py()}" for name in layout.key)


def _least(watermarks: Mapping[str, int | None]) -> int | None:
    """Return the lower watermark, or None if the watermark of one side is unknown."""
    known = [time for time in watermarks.values() if time is not None]
    return min(known) if len(known) == len(watermarks) else None


def kept_columns(layout: SideLayout, rows: Segment) -> pa.RecordBatch:
    """Return rows with the columns that the family's queries or key read, their position and event time."""
    names = [name for name in layout.types if name in layout.kept(rows) or name in layout.key]
    columns = [*(layout.read(rows, name) for name in names), pa.array(rows.pos)]
    columns.append(layout.read(rows, layout.event_time))
    return pa.RecordBatch.from_arrays(columns, names=[*names, "_pos", "_event_time"])


def decoded_promise(promises: Promises) -> pa.Table:
    """Return the key values of the punctuations in a control record."""
    with pa.ipc.open_stream(b64decode(promises.rows)) as reader:
        return reader.read_all()


def _closings(joins: FamilyJoins, side: str, promises: Promises, place: tuple[int, int]) -> pa.RecordBatch:
    """Return the closings of one side that a control record contains, for the keys of this bucket."""
    family, layout = joins.family, joins.family.layouts[side]
    table = decoded_promise(promises)
    own = promises.stream_id == (family.plan.stream_a if side == "a" else family.plan.stream_b)
    if not own or frozenset(promises.on) != family.contracts[side].on:
        # These punctuations close no key of this side. So use an empty table with the columns of the key.
        table = pa.table({name: pa.array([], arrow_type(layout.types[name])) for name in layout.key})
    below = table.column(BELOW).combine_chunks() if BELOW in table.column_names else None
    pos = np.full(table.num_rows, BEHIND_ALL, dtype=np.int64)
    found, valid = closing_rows(layout, table, None, pos, below)
    key = found.column(KEY).to_numpy()
    order = np.argsort(key, kind="stable")
    comes = family.fragments.comes_to(key[order], *place) | (ends(found) != key)[order]
    return found.take(pa.array(order[comes & valid[order]]))
