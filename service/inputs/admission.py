"""Admission: how far each stream advances in the next batch.

Streams are aligned by event time, so that one does not fill its state far ahead of the other: pieces are
taken in the order of their newest event time, a merge of all streams, up to the batch's rows. A stream with
an explicit ``max_files_per_batch`` advances by that many files instead and takes nothing from the others.

    A  |--0--|--1--|--2--|      order: A0 B0 A1 B1 A2; whoever is behind goes first
    B    |---0---|---1---|
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.values.stream import FilesSource, Stream
from service.inputs.inputs import Inputs
from service.inputs.partitions import Piece

#: Pieces asked for at once; it doubles, so that thousands of one-event requests cost few look-ups.
_FIRST_PAGE: Final = 32
_LAST_PAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class Admission:
    """Input of the next batch.

    Attributes:
        positions: Every stream's position after it, by stream id; the old one where nothing is admitted.
        rows: Rows of aligned streams in it.
        full: Whether more of them wait that did not fit.
    """

    positions: dict[int, int]
    rows: int
    full: bool


def admit(
    streams: Sequence[Stream],
    positions: Mapping[int, int],
    inputs: Inputs,
    *,
    max_rows: int,
) -> Admission:
    """Return how far every stream advances in the next batch.

    Args:
        streams: Streams that take part.
        positions: Where each stands, by stream id; absent is its initial position.
        inputs: What is available.
        max_rows: Rows of the batch, over all aligned streams; exceeded only by a batch of one piece.

    Returns:
        The batch. If any stream has something to read, at least one advances.
    """
    admitted = {stream.id: positions.get(stream.id, stream.initial_position) for stream in streams}
    aligned: list[Stream] = []
    for stream in streams:
        files = _files_per_batch(stream)
        if files is None:
            aligned.append(stream)
        elif pieces := inputs.pending(stream, admitted[stream.id], files):
            admitted[stream.id] = pieces[-1].end

    upcoming = [pieces_from(stream, admitted[stream.id], inputs) for stream in aligned]
    heap: list[tuple[int, int, int, Piece]] = []
    for index, stream_pieces in enumerate(upcoming):
        _push(heap, index, stream_pieces)
    rows, full = 0, False
    while heap:
        *_, index, piece = heapq.heappop(heap)
        if rows and rows + piece.rows > max_rows:
            full = True
            break
        rows += piece.rows
        admitted[piece.stream_id] = piece.end
        _push(heap, index, upcoming[index])
    return Admission(admitted, rows, full)


def _files_per_batch(stream: Stream) -> int | None:
    return stream.source.max_files_per_batch if isinstance(stream.source, FilesSource) else None


def _push(heap: list[tuple[int, int, int, Piece]], index: int, pieces: Iterator[Piece]) -> None:
    piece = next(pieces, None)
    if piece is not None:
        # Nothing to align in a piece without event times: it goes first. The stream id breaks ties.
        order = (0, 0) if piece.t_max_us is None else (1, piece.t_max_us)
        heapq.heappush(heap, (*order, index, piece))


def pieces_from(stream: Stream, position: int, inputs: Inputs) -> Iterator[Piece]:
    """Yield all pieces of a stream from a position on, in order."""
    page = _FIRST_PAGE
    while pieces := inputs.pending(stream, position, page):
        yield from pieces
        position = pieces[-1].end
        page = min(page * 2, _LAST_PAGE)
