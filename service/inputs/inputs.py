"""What is there to read, for Spark's source process: pieces to admit, partitions to hand out.

Nothing here has side effects, and `Inputs.partitions` of a range gives the same partitions whenever it is
asked, also on replay: it reads only what the catalog and the event log hold durably.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from catalog.clock import wall_clock_us
from catalog.errors import InternalError
from catalog.values.stream import FilesSource, GeneratorSource, HttpSource, Stream
from service.inputs.generator import chunks_available, generator_pieces
from service.inputs.http_log import EventLog
from service.inputs.partitions import (
    ROW_BITS,
    ROWS_PER_PARTITION,
    ChunksPartition,
    EventsPartition,
    FileRows,
    FilesPartition,
    InputPartition,
    Piece,
)

if TYPE_CHECKING:
    from catalog.store import Store  # not at run time: readers must not load SQLAlchemy

#: A Parquet file of more rows is read by several tasks; pyarrow's row groups have at most so many.
ROWS_PER_FILE_PARTITION: Final = 1 << 20

_PAGE: Final = 1000


class Inputs:
    """The sources of all streams, seen from Spark's source process.

    Args:
        store: Catalog with the listed files.
        events: Event log of ``http`` streams; None if there are none.
        clock_us: Wall clock that endless generators keep in step with, µs UTC.
        rows_per_partition: Rows up to which small pieces share a partition.
        rows_per_file_partition: Rows above which a Parquet file is cut.
    """

    def __init__(
        self,
        store: Store,
        events: EventLog | None,
        *,
        clock_us: Callable[[], int] = wall_clock_us,
        rows_per_partition: int = ROWS_PER_PARTITION,
        rows_per_file_partition: int = ROWS_PER_FILE_PARTITION,
    ) -> None:
        self._store = store
        self._events = events
        self._clock_us = clock_us
        self._rows_per_partition = rows_per_partition
        self._rows_per_file_partition = rows_per_file_partition

    def end(self, stream: Stream) -> int:
        """Return the position after everything that is available now."""
        if isinstance(stream.source, FilesSource):
            return self._store.input_count(stream.id)
        if isinstance(stream.source, HttpSource):
            return self._log(stream).end(stream.id)
        return chunks_available(stream.source, self._clock_us())

    def pending(self, stream: Stream, position: int, limit: int) -> tuple[Piece, ...]:
        """Return up to ``limit`` pieces from a position on, in order."""
        if isinstance(stream.source, HttpSource):
            return self._log(stream).pieces(stream.id, position, limit)
        if isinstance(stream.source, GeneratorSource):
            end = min(self.end(stream), position + limit)
            return generator_pieces(stream, stream.source, position, end)
        return tuple(
            Piece(stream.id, f.position, f.rows, f.t_min_us, f.t_max_us)
            for f in self._store.inputs(stream.id, position, limit)
        )

    def partitions(self, stream: Stream, start: int, end: int) -> tuple[InputPartition, ...]:
        """Return what reader tasks read of positions [start, end); none for an empty range.

        Files set aside are left out.
        """
        if isinstance(stream.source, FilesSource):
            return tuple(self._files(stream, stream.source, start, end))
        return tuple(self._ranges(stream, start, end))

    def _files(self, stream: Stream, source: FilesSource, start: int, end: int) -> Iterator[FilesPartition]:
        group: list[FileRows] = []
        newest: int | None = None
        for runs, t_max_us in self._file_runs(stream, source, start, end):
            if group and sum(f.rows for f in group) + runs.rows > self._rows_per_partition:
                yield _files_partition(stream, group, newest)
                group, newest = [], None
            group.append(runs)
            newest = _newest(newest, t_max_us)
        if group:
            yield _files_partition(stream, group, newest)

    def _file_runs(
        self, stream: Stream, source: FilesSource, start: int, end: int
    ) -> Iterator[tuple[FileRows, int | None]]:
        position = start
        while position < end:
            listed = self._store.inputs(stream.id, position, min(_PAGE, end - position))
            if not listed:
                raise InternalError(
                    f'file {position} of stream "{stream.name}" was never listed',
                    detail=f"The batch asks for positions {start} to {end}.",
                    hint="Restore the data directory as a whole: its parts belong together.",
                )
            for f in listed:
                if f.verdict != "ok":
                    continue
                # Only Parquet can start in the middle without reading what comes before.
                step = self._rows_per_file_partition if source.format == "parquet" else max(f.rows, 1)
                for first in range(0, f.rows, step):
                    rows = min(step, f.rows - first)
                    yield FileRows(f.position, f.path, f.size, f.mtime_ns, first, rows), f.t_max_us
            position = listed[-1].position + 1

    def _ranges(self, stream: Stream, start: int, end: int) -> Iterator[InputPartition]:
        group: list[Piece] = []
        position = start
        while position < end:
            pieces = self._between(stream, position, min(end, position + _PAGE))
            for piece in pieces:
                if group and sum(p.rows for p in group) + piece.rows > self._rows_per_partition:
                    yield self._range_partition(stream, group)
                    group = []
                group.append(piece)
            position = pieces[-1].end
        if group:
            yield self._range_partition(stream, group)

    def _between(self, stream: Stream, start: int, end: int) -> tuple[Piece, ...]:
        """Pieces that cover [start, end), the last one cut there; whatever the clock says now."""
        if isinstance(stream.source, GeneratorSource):
            return generator_pieces(stream, stream.source, start, end)
        pieces = self._log(stream).pieces(stream.id, start, end - start)
        inside = [p for p in pieces if p.position < end]
        if not inside:
            raise InternalError(
                f'event {start} of stream "{stream.name}" is not in the event log',
                hint="Restore the data directory as a whole: its parts belong together.",
            )
        last = inside[-1]
        count = min(last.end, end) - last.position
        return (
            *inside[:-1],
            Piece(last.stream_id, last.position, count, last.t_min_us, last.t_max_us, count),
        )

    def _range_partition(self, stream: Stream, group: list[Piece]) -> InputPartition:
        start, end = group[0].position, group[-1].end
        rows = sum(p.rows for p in group)
        newest: int | None = None
        for piece in group:
            newest = _newest(newest, piece.t_max_us)
        if isinstance(stream.source, GeneratorSource):
            return ChunksPartition(stream.id, start << ROW_BITS, newest, rows, start, end)
        return EventsPartition(stream.id, start, newest, rows, self._log(stream).path, start, end)

    def _log(self, stream: Stream) -> EventLog:
        if self._events is None:
            raise InternalError(f'stream "{stream.name}" takes events, but no event log is open')
        return self._events


def _files_partition(stream: Stream, group: list[FileRows], newest: int | None) -> FilesPartition:
    first_pos = (group[0].position << ROW_BITS) + group[0].first_row
    return FilesPartition(stream.id, first_pos, newest, sum(f.rows for f in group), tuple(group))


def _newest(one: int | None, other: int | None) -> int | None:
    return max((t for t in (one, other) if t is not None), default=None)
