"""Lazy segments: stored segments whose rows are read only if a male may match one.

    manifest    facts: number of rows, least and greatest key, times, filters, columns
    <id>.bloom  filter of the keys                        (``bloom_filter``)
    <id>        the rows, sorted by key

    males' keys ── between the least and the greatest? ── in the filter? ── in the column of keys? ── rows
                        facts                               <id>.bloom        <id>, binary search

Most segments of an unbounded window have no match for the few keys of a batch, so they stay closed: they take
neither time nor memory. If a few males may have a partner, only the rows of their keys are read from the
mapped file, and are probed in place of the segment. If many males may, or if other code needs the rows, the
segment is *opened*: it is decoded, as all small segments are.

Invariant: a lazy segment gives the same answers as the decoded one. So results do not depend on which
segments are lazy or opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from operators.kernels.keys import Int64s, Words
from operators.lazy.bloom_filter import bloom_filter, rows_in_filter
from operators.segments.row_codec import KEY, rows_with, widened
from operators.segments.segment import Segment
from operators.segments.view_names import CUT, bloom_id, cut_bounds, steps, stored_id

#: Segments with fewer rows are decoded faster than their facts and filter pay off.
LEAST_ROWS: Final = 1 << 16
#: A segment is opened if the number of males that may have a partner there, or of its rows that may be one,
#: is more than one for this many of its rows.
_OPENED_FROM: Final = 8
#: Number of parts into which the times of a lazy segment are divided.
_PARTS: Final = 16
#: Approximate maximum of rows that are read for these parts.
_SAMPLE: Final = 4096

#: Attributes of a segment for which its rows are read.
_OF_ROWS: Final = ("rows", "key", "ts", "times", "pos", "alike", "cells", "by_clock")
#: Attributes that the facts contain.
_OF_FACTS: Final = (
    "filters",
    "values",
    "stored_rows",
    "t_min",
    "t_max",
    "epoch",
    "epoch_min",
    "epoch_max",
)


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Facts about a stored segment that are known without its rows.

    Attributes:
        filters: As in the segment.
        columns: Names of the stream columns kept, sorted.
        values: As in the segment.
        rows: Number of rows.
        stored_rows: As in the segment.
        first_pos: Position of the first row.
        key_min: Least key.
        key_max: Greatest key.
        t_min: Least clock.
        t_max: Greatest clock.
        epoch: Plan version of all rows, or None.
        epoch_min: Least plan version of a row.
        epoch_max: Greatest plan version of a row.
        cuts: Event times that divide the rows into parts of about the same number, ascending.
    """

    filters: tuple[int, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[str, int], ...]
    rows: int
    stored_rows: int
    first_pos: int
    key_min: int
    key_max: int
    t_min: int
    t_max: int
    epoch: int | None
    epoch_min: int
    epoch_max: int
    cuts: tuple[int, ...]

    @classmethod
    def of(cls, segment: Segment) -> SegmentFacts:
        """Return the facts about a stored segment with rows."""
        if isinstance(segment, LazySegment):
            return segment.facts
        times = segment.times[:: len(segment) // _SAMPLE + 1]
        cuts = np.quantile(times, np.linspace(0, 1, _PARTS + 1), method="lower")
        return cls(
            filters=segment.filters,
            columns=tuple(sorted(segment.columns)),
            values=segment.values,
            rows=len(segment),
            stored_rows=segment.stored_rows,
            first_pos=segment.first_pos,
            key_min=int(segment.key[0]),
            key_max=int(segment.key[-1]),
            t_min=segment.t_min,
            t_max=segment.t_max,
            epoch=segment.epoch,
            epoch_min=segment.epoch_min,
            epoch_max=segment.epoch_max,
            cuts=tuple(cuts.tolist()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SegmentReader:
    """Reads parts of lazy segments on demand.

    Attributes:
        load: Returns a decoded segment by its name.
        stored: Returns rows in stored form, mapped, by their stored id.
        bloom: Returns the filter of keys under a stored id.
    """

    load: Callable[[str], Segment]
    stored: Callable[[str], pa.RecordBatch]
    bloom: Callable[[str], Words]


class LazySegment(Segment):
    """A stored segment that is read when its rows are needed.

    Args:
        name: Its name (``operators.segments.view_names``).
        facts: Facts about it.
        reader: Reads its rows.
    """

    __slots__ = ("_reader", "facts", "opened", "rows_read")

    facts: SegmentFacts
    opened: bool
    rows_read: int
    _reader: SegmentReader

    def __init__(self, name: str, facts: SegmentFacts, reader: SegmentReader) -> None:
        known = {
            "facts": facts,
            "opened": False,
            "rows_read": 0,
            "_reader": reader,
            "id": name,
            "origin": None,
            "arrived": None,
            "columns": frozenset(facts.columns),
        }
        for field in _OF_FACTS:
            known[field] = getattr(facts, field)
        for field, value in known.items():
            object.__setattr__(self, field, value)

    def __getattr__(self, name: str) -> object:
        """Open the segment when its rows are needed; called only for unset attributes."""
        if name not in _OF_ROWS:
            raise AttributeError(f"a segment has no {name}")
        whole = self._reader.load(self.id)
        for field in _OF_ROWS:
            object.__setattr__(self, field, getattr(whole, field))
        object.__setattr__(self, "opened", True)
        object.__setattr__(self, "rows_read", len(whole))
        return getattr(self, name)

    def __len__(self) -> int:
        return self.facts.rows

    @property
    def first_pos(self) -> int:
        """Position of the first row in the source."""
        return self.facts.first_pos

    def probed(self, keys: Int64s) -> Segment | None:
        """Return the rows that males search: all, or only those with their keys; None if there are none."""
        facts = self.facts
        start, end = np.searchsorted(keys, facts.key_min), np.searchsorted(keys, facts.key_max, "right")
        if start >= end:
            return None
        possible = keys[start:end]
        if (bloom := self.bloom) is not None:
            possible = possible[rows_in_filter(possible, self._reader.bloom(bloom[0]))]
        if not len(possible):
            return None
        views = steps(self.id)
        if len(possible) * _OPENED_FROM > facts.rows or any(kind != CUT for kind, _ in views):
            return self
        narrow = self._reader.stored(stored_id(self.id))
        rows = rows_with(narrow, KEY, possible)
        if not len(rows):
            return None
        if len(rows) * _OPENED_FROM > facts.rows:
            return self
        read = widened(narrow.take(pa.array(rows))).replace_schema_metadata(None)
        found = Segment(read, self.epoch, self.filters)
        if not self.opened:
            object.__setattr__(self, "rows_read", self.rows_read + len(found))
        for _, bounds in views:
            found = found.cut(*cut_bounds(bounds))
        return found if len(found) else None


def with_filter(segment: Segment, put: Callable[[str, bytes, Segment | None], None]) -> Segment:
    """Store the filter of the keys of a segment if it is large enough to be lazy and has no filter yet.

    A view has the filter of its origin, or none, because other views may be made of the same rows.

    Args:
        segment: A stored segment.
        put: Called with the id and the bytes of the filter.

    Returns:
        The segment, with the filter if there is one now.
    """
    if len(segment) < LEAST_ROWS or segment.bloom is not None or steps(segment.id):
        return segment
    data = bloom_filter(np.ascontiguousarray(segment.key)).astype("<u8").tobytes()
    put(bloom_id(segment.id), data, None)
    return segment.with_bloom(len(data))


def encode_facts(segments: Mapping[str, SegmentFacts]) -> dict[str, object]:
    """Return facts about segments, by name, as JSON; values that most segments share are stored once."""
    forms: dict[tuple[tuple[int, ...], tuple[str, ...]], int] = {}
    encoded = {}
    for name, facts in segments.items():
        filters, columns, *others = (getattr(facts, field.name) for field in fields(facts))
        encoded[name] = [forms.setdefault((filters, columns), len(forms)), *others]
    return {"forms": list(forms), "segments": encoded}


def decode_facts(document: Mapping[str, Any]) -> dict[str, SegmentFacts]:  # Any: JSON of a known form
    """Read the result of ``encode_facts``."""
    found = {}
    for name, (form, values, *numbers, cuts) in document["segments"].items():
        filters, columns = document["forms"][form]
        pairs = tuple((stored, length) for stored, length in values)
        given: list[Any] = [tuple(filters), tuple(columns), pairs, *numbers, tuple(cuts)]
        found[name] = SegmentFacts(*given)
    return found


def read_bloom(data: pa.Buffer | bytes) -> Words:
    """Return a filter of keys from its stored form."""
    return np.frombuffer(data, dtype="<u8")
