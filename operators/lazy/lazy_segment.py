"""Lazy segments: stored segments whose rows are read only if a male may match one of them.

    manifest    summary (facts): number of rows, least and greatest key, times, filters, columns
    <id>.bloom  filter of the keys                        (``bloom_filter``)
    <id>        the rows, sorted by key

    males' keys ── between the least and the greatest? ── in the filter? ── in the column of keys? ── rows
                        facts                               <id>.bloom        <id>, binary search

Most segments of an unbounded window have no match for the few keys of a batch. These segments are not read,
so they take neither time nor memory. If only a few males may match, only the rows with the keys of these
males are read from the mapped file, and the males probe these rows instead of the segment. If many males may
match, or if other code needs the rows, the segment is *opened*: it is decoded, like all small segments.

Invariant: a lazy segment gives the same answers as the decoded segment. So results do not depend on which
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
from operators.segments.encoding.row_codec import KEY, rows_with, widened
from operators.segments.encoding.view_names import CUT, bloom_id, cut_bounds, steps, stored_id
from operators.segments.segment import Segment

#: Segments with fewer rows are not lazy, because decoding them costs less than a summary and a filter.
LEAST_ROWS: Final = 1 << 16
#: A segment is opened if it has more than one possibly matching male per this many rows, or if more than one
#: row in this many may match.
_OPENED_FROM: Final = 8
#: Number of intervals into which the event times of a lazy segment are divided (``SegmentFacts.cuts``).
_PARTS: Final = 16
#: Approximate maximum number of rows whose event times are read for these intervals.
_SAMPLE: Final = 4096

#: Attributes of a segment for which its rows must be read.
_OF_ROWS: Final = ("rows", "key", "ts", "times", "pos", "alike", "cells", "by_clock")
#: Attributes of a segment that ``SegmentFacts`` contains.
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
    """Summary of a stored segment that is read from the manifest, without reading the segment's rows.

    Attributes:
        filters: Numbers of the filters evaluated on the rows, by bit (``Segment.filters``).
        columns: Sorted names of the stream columns that the segment has.
        values: Stored id and length in bytes of each stored value that the segment uses (``Segment.values``).
        rows: Number of rows.
        stored_rows: Number of rows in the stored value that contains the rows (``Segment.stored_rows``).
        first_pos: Position of the first row in the source.
        key_min: Least key.
        key_max: Greatest key.
        t_min: Least clock value.
        t_max: Greatest clock value.
        epoch: Plan version under which all rows were processed, or None if the rows have several versions.
        epoch_min: Least plan version of a row.
        epoch_max: Greatest plan version of a row.
        cuts: Ascending event times that divide the rows into intervals with about equal numbers of rows.
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
        """Return the summary of a stored segment that has rows."""
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
    """Reads lazy segments, or parts of them, on demand.

    Attributes:
        load: Returns a decoded segment by its name.
        stored: Returns memory-mapped rows in stored form, by their stored id.
        bloom: Returns a Bloom filter of keys by its stored id.
    """

    load: Callable[[str], Segment]
    stored: Callable[[str], pa.RecordBatch]
    bloom: Callable[[str], Words]


class LazySegment(Segment):
    """A stored segment that is read only when its rows are needed.

    Args:
        name: Name of the segment (``operators.segments.encoding.view_names``).
        facts: Summary of the segment.
        reader: Reads the segment's rows.
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
        """Open the segment if the attribute requires its rows.

        Python calls this method only for attributes that are not set yet.
        """
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
        """Return the rows that males must probe: all rows, or only rows with the males' keys.

        Args:
            keys: int64[n], ascending, keys of the males.

        Returns:
            The rows, or None if no row can match.
        """
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
    """Store a Bloom filter of a segment's keys, if the segment is large and has no filter yet.

    No filter is stored for a view, because other views may use the same stored rows. A view uses the filter
    of the stored segment if it has one.

    Args:
        segment: A stored segment.
        put: Stores a value. Arguments: the id and the bytes of the new filter, and None.

    Returns:
        The segment with the new filter, or the given segment if no filter was stored.
    """
    if len(segment) < LEAST_ROWS or segment.bloom is not None or steps(segment.id):
        return segment
    data = bloom_filter(np.ascontiguousarray(segment.key)).astype("<u8").tobytes()
    put(bloom_id(segment.id), data, None)
    return segment.with_bloom(len(data))


def encode_facts(segments: Mapping[str, SegmentFacts]) -> dict[str, object]:
    """Return the summaries of segments as JSON, given by name; equal filters and columns are stored once."""
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
    """Return a Bloom filter of keys, read from its stored form."""
    return np.frombuffer(data, dtype="<u8")
