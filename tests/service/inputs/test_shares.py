"""A batch is cut for the tasks that run at a time: enough work for each of them, and few pieces to merge.

Streams are generated, some 20,000 rows a chunk; nothing of them is read.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.store.store import Store
from catalog.values.stream import GeneratorSource
from service.inputs.inputs import Inputs
from service.inputs.partitions import ROWS_PER_PARTITION, ChunksPartition, Lane
from tests.service.inputs.streams import stream_of

SOURCE = GeneratorSource(100_000.0, start_us=1_356_998_400_000_000)
STREAMS = tuple(stream_of(SOURCE, stream_id=number, name=f"S{number}") for number in (1, 2, 3))


def cut(chunks: tuple[int, ...], **options: int) -> list[tuple[ChunksPartition, ...]]:
    """Return the partitions of a batch that has so many chunks of each stream."""
    ranges = [(Lane(stream), 7, 7 + count) for stream, count in zip(STREAMS, chunks, strict=False)]
    unused_store: Store = None  # type: ignore[assignment]  # generators need no catalog
    return Inputs(unused_store, None, **options).partitions(ranges)  # type: ignore[return-value]  # generated


@pytest.mark.parametrize(
    ("chunks", "tasks", "pieces"),
    [
        ((100, 100), 2, [1, 1]),  # two million rows each: a stream for each core
        ((100, 100), 1, [1, 1]),
        ((100, 100), 4, [2, 2]),
        ((190, 10), 2, [2, 1]),  # the larger one is two cores' work
        ((100, 100), 1000, [5, 5]),  # a task takes half a million, or the chunks that fit
        ((25, 25), 2, [1, 1]),
        ((1, 0), 2, [1, 0]),
    ],
)
def test_streams_are_cut_by_what_a_task_should_take(
    chunks: tuple[int, ...], tasks: int, pieces: list[int]
) -> None:
    assert [len(parts) for parts in cut(chunks, tasks=tasks)] == pieces


def test_a_size_that_is_set_holds_however_few_tasks_there_are() -> None:
    parts = cut((100, 100), tasks=1, rows_per_partition=200_000)
    assert all(part.rows <= 200_000 for stream in parts for part in stream)
    assert [len(stream) for stream in parts] == [11, 11]


@given(chunks=st.tuples(*[st.integers(0, 400)] * 3), tasks=st.integers(1, 64))
def test_pieces_follow_each_other_and_are_about_as_large_as_shares(
    chunks: tuple[int, ...], tasks: int
) -> None:
    parts = cut(chunks, tasks=tasks)
    rows = sum(part.rows for stream in parts for part in stream)
    for stream, count in zip(parts, chunks, strict=True):
        assert sum(part.end - part.start for part in stream) == count
        assert all(one.end == other.start for one, other in pairwise(stream))
        if count:
            assert (stream[0].start, stream[-1].end) == (7, 7 + count)
        # A stream of less than one and a half shares is one piece.
        assert all(part.rows <= max(1.6 * rows / tasks, ROWS_PER_PARTITION) for part in stream)
        assert len(stream) <= 1 + sum(part.rows for part in stream) / ROWS_PER_PARTITION * 1.2
