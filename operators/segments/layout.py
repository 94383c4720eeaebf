"""Stored columns of a side's rows, and how they are read back.

Event time is stored only as the row's ``_ts``, and a single exact key column only as its ``_key``. In an
ordered family, ``_ts`` is the clock of the stream's order, and event time is an ordinary column. Key columns
that are hashed are stored in addition to the hash, to verify candidate pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.columns.arrow_types import arrow_type
from catalog.values.plan import FamilyPlan
from catalog.values.stream import Stream
from operators.kernels.keys import RECOVERABLE, Int64s, is_exact, recover_column
from operators.segments.segment import Segment, timestamps

#: Both sides of a family, in the order in which all code handles them.
SIDES = ("a", "b")


@dataclass(frozen=True, slots=True)
class SideLayout:
    """Columns of one side of a family.

    Attributes:
        types: Canonical type of each stream column.
        event_time: Event-time column.
        key: Key columns of this side.
        key_types: Common type of each key pair.
        stored: Columns that are stored as ordinary columns (``c.<column>``), sorted.
        derived_key: Key column that can be recovered from ``_key``; None if no column can.
        timed: True if ``_ts`` is the event time.
    """

    types: dict[str, str]
    event_time: str
    key: tuple[str, ...]
    key_types: tuple[str, ...]
    stored: tuple[str, ...]
    derived_key: str | None
    timed: bool = True
    _kept: dict[frozenset[str], frozenset[str]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def exact(self) -> bool:
        """Return whether equal int64 keys imply equal key columns."""
        return is_exact(self.key_types)

    def kept(self, segment: Segment) -> frozenset[str]:
        """Return the columns that can be read from a segment."""
        kept = self._kept.get(segment.columns)
        if kept is None:
            derived = ({self.event_time} if self.timed else set()) | (
                {self.derived_key} if self.derived_key else set()
            )
            kept = self._kept[segment.columns] = segment.columns | derived
        return kept

    def derived(self, name: str, ts: Callable[[], Int64s], key: Callable[[], Int64s]) -> pa.Array | None:
        """Return a column derived from event times or keys, or None for any other column.

        Args:
            name: Name of the column.
            ts: Function that returns the event times of the rows, int64[n], µs UTC.
            key: Function that returns the keys of the rows, int64[n].
        """
        if name == self.event_time and self.timed:
            return timestamps(ts())
        return recover_column(key(), self.types[name]) if name == self.derived_key else None

    def read(self, segment: Segment, name: str, index: Int64s | None = None) -> pa.Array:
        """Return a column of the rows at ``index``, or of all rows; NULLs if the segment lacks the column."""
        derived = self.derived(
            name,
            lambda: segment.times if index is None else segment.times[index],
            lambda: segment.key if index is None else segment.key[index],
        )
        if derived is not None:
            return derived
        column = segment.column(name)
        if column is None:
            count = len(segment) if index is None else len(index)
            return pa.nulls(count, arrow_type(self.types[name]))
        return column if index is None else column.take(pa.array(index))


def side_layout(family: FamilyPlan, side: str, stream: Stream) -> SideLayout:
    """Derive the layout of side ``a`` or ``b`` of a family."""
    columns = family.columns_a if side == "a" else family.columns_b
    key = tuple(pair[0] if side == "a" else pair[1] for pair in family.key)
    types = {column.name: column.type for column in stream.columns}
    exact = is_exact(family.key_types)
    derived_key = None
    if (
        exact
        and key
        and family.key_types[0] in RECOVERABLE
        and types[key[0]] in RECOVERABLE
        and key[0] != stream.event_time
    ):
        derived_key = key[0]
    timed = not family.ordered
    needed = set(columns) - {stream.event_time if timed else None, derived_key}
    if not exact:
        needed |= set(key)
    return SideLayout(
        types, stream.event_time, key, family.key_types, tuple(sorted(needed)), derived_key, timed
    )
