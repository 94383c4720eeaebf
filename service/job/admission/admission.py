"""Admission: decides how far each stream advances in the next batch.

Streams are aligned by event time, so that no stream fills the state far ahead of another. The pieces of all
streams are merged by their newest event time and taken in this order, up to the batch's limit of rows. A
stream with an explicit ``max_files_per_batch`` advances by this number of files instead; their rows do not
count towards the limit. A lane is a stream without partitions or one partition of a topic; all lanes are
aligned alike. A piece that may have been seen before older pieces of other partitions (`Piece.is_fresh`)
waits for a later batch.

    A  |--0--|--1--|--2--|      order: A0 B0 A1 B1 A2; the piece that ends first in event time goes first
    B    |---0---|---1---|
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.values.stream import FilesSource
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane, Piece

#: Number of pieces in the first look-up, and the maximum. Each look-up doubles the number, so that thousands
#: of posts of one event need few look-ups.
_FIRST_PAGE: Final = 32
_LAST_PAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class Admission:
    """Input of the next batch.

    Attributes:
        positions: Position of every lane after the batch, by key; unchanged if the batch takes nothing from
            the lane.
        rows: Number of rows of aligned lanes in the batch.
        full: Whether aligned lanes have further rows that did not fit into the batch.
    """

    positions: dict[str, int]
    rows: int
    full: bool


def admit(
    lanes: Sequence[Lane],
    positions: Mapping[str, int],
    inputs: Inputs,
    *,
    max_rows: int,
) -> Admission:
    """Return how far every lane advances in the next batch.

    Args:
        lanes: Lanes from which the batch may take input.
        positions: Position of each lane, by key. A lane that is missing here is at its beginning.
        inputs: The available input.
        max_rows: Maximum number of rows of all aligned lanes together; a batch of a single piece may exceed
            it.

    Returns:
        Input of the batch. If any lane has input, at least one lane advances.
    """
    admitted = {lane.key: positions.get(lane.key, lane.begin) for lane in lanes}
    aligned: list[Lane] = []
    for lane in lanes:
        files = _files_per_batch(lane)
        if files is None:
            aligned.append(lane)
        elif pieces := inputs.pending(lane, admitted[lane.key], files):
            admitted[lane.key] = pieces[-1].end

    upcoming = [pieces_from(lane, admitted[lane.key], inputs) for lane in aligned]
    heap: list[tuple[int, int, int, Piece]] = []
    for index, lane_pieces in enumerate(upcoming):
        _push(heap, index, lane_pieces)
    rows, full = 0, False
    while heap:
        *_, index, piece = heapq.heappop(heap)
        if piece.is_fresh and not any(_is_settled(other, piece.stream_id) for *_, other in heap):
            continue  # the batch takes no more input from the piece's lane
        if rows and (rows + piece.rows > max_rows or piece.lost):
            full = True
            break
        rows += piece.rows
        admitted[aligned[index].key] = piece.end
        if piece.lost:
            full = bool(heap)
            break
        _push(heap, index, upcoming[index])
    return Admission(admitted, rows, full)


def _files_per_batch(lane: Lane) -> int | None:
    source = lane.stream.source
    return source.max_files_per_batch if isinstance(source, FilesSource) else None


def _push(heap: list[tuple[int, int, int, Piece]], index: int, pieces: Iterator[Piece]) -> None:
    piece = next(pieces, None)
    if piece is not None:
        # A piece without event times cannot be aligned and goes first. The order of lanes breaks ties.
        order = (0, 0) if piece.t_max_us is None else (1, piece.t_max_us)
        heapq.heappush(heap, (*order, index, piece))


def _is_settled(piece: Piece, stream_id: int) -> bool:
    return piece.stream_id == stream_id and not piece.is_fresh


def pieces_from(lane: Lane, position: int, inputs: Inputs) -> Iterator[Piece]:
    """Yield all available pieces of a lane from a position on, in order."""
    page = _FIRST_PAGE
    while pieces := inputs.pending(lane, position, page):
        yield from pieces
        position = pieces[-1].end
        page = min(page * 2, _LAST_PAGE)
