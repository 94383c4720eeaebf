"""Segments and families built by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from catalog.values.plan import FamilyPlan, Plan
from catalog.values.query import Query
from catalog.values.stream import Stream
from operators.cache.views import opened
from operators.kernels.keys import Bools, Words
from operators.lazy.lazy_segment import SegmentReader, read_bloom
from operators.segments.encoding.patch import Patch
from operators.segments.encoding.row_codec import KEY, POS, TS, narrow_rows
from operators.segments.segment import COLUMN, EPOCH, LINEAGE, WORD_BITS, Segment
from planner.build.build_plan import build_plan
from tests.builders import a_stream

STREAMS = {1: a_stream(1), 2: a_stream(2), 3: a_stream(3)}


def a_segment(
    rows: Sequence[tuple[int, int]],
    *,
    epoch: int | None = 1,
    epochs: Sequence[int] = (),
    bits: Mapping[int, Sequence[bool]] | None = None,
    columns: Mapping[str, pa.Array] | None = None,
    first_pos: int = 0,
) -> Segment:
    """Return a segment.

    Args:
        rows: (key, event time) by key.
        epoch: Plan version of all rows; None with ``epochs``.
        epochs: Plan version per row.
        bits: Filter answers per lineage bit, in the order of their places.
        columns: Kept stream columns.
        first_pos: Position of the first row; the others follow.
    """
    passes = {bit: np.array(answers, dtype=np.bool_) for bit, answers in (bits or {}).items()}
    words = lineage_words(len(rows), list(passes.values()))
    arrays: dict[str, pa.Array] = {
        KEY: pa.array([key for key, _ in rows], pa.int64()),
        TS: pa.array([ts for _, ts in rows], pa.int64()),
        POS: pa.array(range(first_pos, first_pos + len(rows)), pa.int64()),
    }
    arrays |= {f"{LINEAGE}{number}": pa.array(word) for number, word in enumerate(words)}
    arrays |= {COLUMN + name: values for name, values in (columns or {}).items()}
    if epochs:
        arrays[EPOCH] = pa.array(epochs, pa.int64())
        epoch = None
    return Segment(pa.RecordBatch.from_pydict(arrays), epoch, tuple(passes))


def words_of(column: pa.Array) -> Words:
    """Return a column of lineage as PACK makes it, numbered or not, as words."""
    words: Words = column.cast(pa.uint64()).to_numpy()
    return words


def lineage_words(rows: int, passes: Sequence[Bools]) -> list[Words]:
    """Pack the answers of filters, by place, into words: what PACK does, said once more."""
    words = [np.zeros(rows, dtype=np.uint64) for _ in range(-(-len(passes) // WORD_BITS))]
    for place, passed in enumerate(passes):
        words[place // WORD_BITS] |= passed.astype(np.uint64) << np.uint64(place % WORD_BITS)
    return words


def a_plan(*queries: Query, previous: Plan | None = None, streams: Mapping[int, Stream] = STREAMS) -> Plan:
    """Return the plan of queries, without lateness if no other streams are given."""
    return build_plan(queries, streams, previous)


def a_family(*queries: Query) -> FamilyPlan:
    """Return the one family of queries."""
    (family,) = a_plan(*queries).families
    return family


def read_segment(segment_id: str, read: Callable[[str], bytes | pa.Buffer]) -> Segment:
    """Return the segment of a name, with nothing at hand but the stored bytes.

    Args:
        segment_id: Name of a stored segment or of a view.
        read: Returns the bytes under a stored id.

    Raises:
        CorruptSegment: A stored value cannot be read, or does not fit the name.
    """
    return opened(
        segment_id,
        lambda stored: Segment.decode(read(stored), stored),
        lambda stored: Patch.decode(read(stored), stored),
    )


def segment_reader(read: Callable[[str], bytes | pa.Buffer]) -> SegmentReader:
    """Return what reads lazy segments, with nothing at hand but the stored bytes.

    Args:
        read: Returns the bytes under a stored id.
    """
    return SegmentReader(
        lambda name: read_segment(name, read),
        lambda stored: narrow_rows(read(stored)),
        lambda stored: read_bloom(read(stored)),
    )
