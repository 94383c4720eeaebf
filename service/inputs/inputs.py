"""Available input of all streams, for Spark's source process: pieces to admit and partitions to read.

This module has no side effects. `Inputs.partitions` always returns the same partitions for the same ranges,
also on replay, since it reads only durable data of the catalog and the event log.

A batch is cut into about as many partitions, over all its streams, as tasks run at once. Rows that a bucket
receives from a single task are sorted and can be stored unchanged; rows from several tasks must be merged and
written again. Measured with the many-keys benchmark, batches of four million rows and two cores: 8.5 s with
tasks of half a million rows, 6.5 s with one task per stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Final

from catalog.errors import InternalError
from catalog.times.clock import wall_clock_us
from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, GeneratorSource, HttpSource, KafkaSource, Stream
from operators.storage.folder import Folder
from service.errors import FileRefused
from service.inputs.partitions import (
    ROW_BITS,
    ROWS_PER_PARTITION,
    ChunksPartition,
    EventsPartition,
    FileRows,
    FilesPartition,
    InputPartition,
    Lane,
    Piece,
    TopicPartition,
    TopicRange,
    lanes_named,
)
from service.inputs.sources.generated.generator import chunks_available, generator_pieces
from service.inputs.sources.topics.topics import Topics

if TYPE_CHECKING:
    # Not at run time: readers must not load SQLAlchemy.
    from catalog.store.store import Store
    from service.inputs.sources.posted.http_log import EventLog

#: Maximum number of rows of a Parquet file that are read as one run; pyarrow writes no larger row groups.
ROWS_PER_FILE_PARTITION: Final = 1 << 20

_PAGE: Final = 1000

#: A lane and its positions [start, end).
Range = tuple[Lane, int, int]


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows of a file and the newest event time that they may have."""

    file: FileRows
    t_max_us: int | None

    @property
    def rows(self) -> int:
        return self.file.rows


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages of a topic's partition, with unknown event times; nearly every offset has a message."""

    range: TopicRange
    t_max_us: None = None

    @property
    def rows(self) -> int:
        return self.range.end - self.range.start


#: Units of input that are not cut any further.
_Unit = _Run | Piece | _Messages


class Inputs:
    """The sources of all streams, seen from Spark's source process.

    Args:
        store: Catalog with the listed files.
        events: Event log of ``http`` streams, or None if there are no such streams.
        clock_us: Wall clock, µs UTC; endless generators have rows up to its time.
        rows_per_partition: Maximum number of rows of a partition that combines small pieces; None for the
            larger of a task's share and ``ROWS_PER_PARTITION``.
        tasks: Number of tasks that run at a time.
        rows_per_file_partition: Number of rows above which a Parquet file is split into runs of rows.
        dead_letters: Folder for messages that are not events, or None to drop these messages.
        bounded: Whether reading of a topic stops after the messages that exist when the topic is first looked
            up.
    """

    def __init__(
        self,
        store: Store,
        events: EventLog | None,
        *,
        clock_us: Callable[[], int] = wall_clock_us,
        rows_per_partition: int | None = None,
        tasks: int = 1,
        rows_per_file_partition: int = ROWS_PER_FILE_PARTITION,
        dead_letters: Folder | None = None,
        bounded: bool = False,
    ) -> None:
        self._store = store
        self._events = events
        self._clock_us = clock_us
        self._rows_per_partition = rows_per_partition
        self._tasks = tasks
        self._rows_per_file_partition = rows_per_file_partition
        self._dead_letters = dead_letters
        self._bounded = bounded
        self._topics = Topics()

    def close(self) -> None:
        """Close the connections to brokers."""
        self._topics.close()

    def lanes(self, stream: Stream, offset: Mapping[str, int]) -> list[Lane]:
        """Return the lanes of a stream; for a topic, first ask its brokers for messages after an offset.

        Raises:
            KafkaDown: The brokers do not answer.
            MessagesLost: A position of the offset is beyond the topic's end.
        """
        if not isinstance(stream.source, KafkaSource):
            return [Lane(stream)]
        if self._bounded:
            self._topics.hold(stream)
        return self._topics.look(stream, offset)

    def is_read(self, stream: Stream, offset: Mapping[str, int]) -> bool:
        """Return whether a stream has no input after an offset.

        Raises:
            KafkaDown: The brokers do not answer.
        """
        if isinstance(stream.source, KafkaSource):
            ends = self._topics.ends(stream)
            lanes = {partition: Lane(stream, partition) for partition in ends}
            return all(
                following <= max(offset.get(lanes[p].key, lanes[p].begin), oldest)
                for p, (oldest, following) in ends.items()
            )
        return self.end(stream) <= offset.get(str(stream.id), stream.initial_position)

    def end(self, stream: Stream) -> int:
        """Return the position after all available input of a stream with a single lane."""
        if isinstance(stream.source, FilesSource):
            return self._store.source_files.count(stream.id)
        if isinstance(stream.source, HttpSource):
            return self._log(stream).end(stream.id)
        if isinstance(stream.source, GeneratorSource):
            return chunks_available(stream.source, self._clock_us())
        raise InternalError(f'stream "{stream.name}" has a position for each partition, not one')

    def pending(self, lane: Lane, position: int, limit: int) -> tuple[Piece, ...]:
        """Return up to ``limit`` pieces from a position on, in order; for a topic, pieces that `lanes` found.

        Raises:
            FileRefused: A bounded run reaches a bad file of a stream with ``on_error: stop``. In a service,
                the stream stops before the file, and other streams go on.
        """
        stream = lane.stream
        if isinstance(stream.source, KafkaSource):
            return self._topics.pending(lane, position, limit)
        if isinstance(stream.source, HttpSource):
            return self._log(stream).pieces(stream.id, position, limit)
        if isinstance(stream.source, GeneratorSource):
            end = min(self.end(stream), position + limit)
            return generator_pieces(stream, stream.source, position, end)
        files = takewhile(self._is_passed(stream), self._listed(stream, position, limit))
        return tuple(Piece(stream.id, f.position, f.rows, f.t_min_us, f.t_max_us) for f in files)

    def partitions(self, ranges: Sequence[Range]) -> list[tuple[InputPartition, ...]]:
        """Return the partitions to read for ranges of positions; an empty range has no partition.

        Args:
            ranges: Ranges of positions; the ranges of one stream are adjacent.

        Returns:
            Partitions by stream, in the order of the ranges. Files set aside are left out.
        """
        streams = [(s, list(of)) for s, of in groupby(ranges, key=lambda found: found[0].stream)]
        found = [list(self._units(stream, of)) for stream, of in streams]
        rows = sum(unit.rows for units in found for unit in units)
        share = rows / self._tasks if self._rows_per_partition is None else 0.0
        return [
            tuple(self._partition(stream, group) for group in self._groups(units, share))
            for (stream, _), units in zip(streams, found, strict=True)
        ]

    def between(
        self, streams: Iterable[Stream], start: Mapping[str, int], end: Mapping[str, int]
    ) -> dict[Stream, tuple[InputPartition, ...]]:
        """Return the partitions of the input between two offsets, by stream; omit topics without lanes."""
        lanes = lanes_named(streams, end)
        ranges = [(lane, start.get(lane.key, lane.begin), end.get(lane.key, lane.begin)) for lane in lanes]
        return dict(zip(dict.fromkeys(lane.stream for lane in lanes), self.partitions(ranges), strict=True))

    def _units(self, stream: Stream, ranges: Sequence[Range]) -> Iterator[_Unit]:
        for lane, start, end in ranges:
            if isinstance(stream.source, FilesSource):
                yield from self._runs(stream, stream.source, start, end)
            elif isinstance(stream.source, KafkaSource):
                step = self._rows_per_partition or ROWS_PER_PARTITION
                for first in range(start, end, step):
                    last = min(first + step, end)
                    yield _Messages(TopicRange(lane.partition or 0, first, last, start == lane.begin))
            else:
                yield from self._pieces(stream, start, end)

    def _groups(self, units: Sequence[_Unit], share: float) -> Iterator[Sequence[_Unit]]:
        """Group a stream's units, each group with about ``share`` rows if that is above the usual limit."""
        rows = sum(unit.rows for unit in units)
        most = self._rows_per_partition or ROWS_PER_PARTITION
        if rows > most and share > most:
            count = max(1, round(rows / share))
            # Half of the largest unit is added to the limit, so that units of uneven size seldom need an
            # extra group.
            most = -(-rows // count) + max(unit.rows for unit in units) // 2
        group: list[_Unit] = []
        held = 0
        for unit in units:
            if group and held + unit.rows > most:
                yield group
                group, held = [], 0
            group.append(unit)
            held += unit.rows
        if group:
            yield group

    def _partition(self, stream: Stream, group: Sequence[_Unit]) -> InputPartition:
        newest = max((unit.t_max_us for unit in group if unit.t_max_us is not None), default=None)
        rows = sum(unit.rows for unit in group)
        files = tuple(unit.file for unit in group if isinstance(unit, _Run))
        if files:
            first_pos = (files[0].position << ROW_BITS) + files[0].first_row
            return FilesPartition(stream.id, first_pos, newest, rows, files)
        ranges = _joined([unit.range for unit in group if isinstance(unit, _Messages)])
        if ranges:
            return TopicPartition(stream.id, ranges[0].start, None, rows, ranges, self._dead_letters)
        pieces = [unit for unit in group if isinstance(unit, Piece)]
        start, end = pieces[0].position, pieces[-1].end
        if isinstance(stream.source, GeneratorSource):
            return ChunksPartition(stream.id, start << ROW_BITS, newest, rows, start, end)
        return EventsPartition(stream.id, start, newest, rows, self._log(stream).url, start, end)

    def _runs(self, stream: Stream, source: FilesSource, start: int, end: int) -> Iterator[_Run]:
        position = start
        while position < end:
            listed = self._listed(stream, position, min(_PAGE, end - position))
            if not listed:
                raise _not_listed(stream, position)
            for f in listed:
                if f.verdict == "stops":
                    raise FileRefused(stream.name, f.path, f.reason or "")
                if f.verdict != "ok":
                    continue
                # Only Parquet can be read from the middle without the rows before.
                is_cut = source.format == "parquet" and not f.skipped
                step = self._rows_per_file_partition if is_cut else max(f.rows, 1)
                for first in range(0, f.rows, step):
                    rows = min(step, f.rows - first)
                    run = FileRows(f.position, f.path, f.size, f.mtime_ns, first, rows, f.skipped, f.t_max_us)
                    yield _Run(run, f.t_max_us)
            position = listed[-1].position + 1

    def _is_passed(self, stream: Stream) -> Callable[[SourceFile], bool]:
        def is_passed(file: SourceFile) -> bool:
            if file.verdict == "stops" and self._bounded:
                raise FileRefused(stream.name, file.path, file.reason or "")
            return file.verdict != "stops"

        return is_passed

    def _listed(self, stream: Stream, position: int, limit: int) -> tuple[SourceFile, ...]:
        """Return files from a position on, which is that of a listed file or the listing's end."""
        listed = self._store.source_files.page(stream.id, position, limit)
        if listed and listed[0].position != position:
            raise _not_listed(stream, position)
        return listed

    def _pieces(self, stream: Stream, start: int, end: int) -> Iterator[Piece]:
        position = start
        while position < end:
            pieces = self._between(stream, position, min(end, position + _PAGE))
            yield from pieces
            position = pieces[-1].end

    def _between(self, stream: Stream, start: int, end: int) -> tuple[Piece, ...]:
        """Return pieces that cover [start, end), the last cut at ``end``, independent of the clock."""
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

    def _log(self, stream: Stream) -> EventLog:
        if self._events is None:
            raise InternalError(f'stream "{stream.name}" takes events, but no event log is open')
        return self._events


def _joined(ranges: Sequence[TopicRange]) -> tuple[TopicRange, ...]:
    """Join adjacent ranges of the same partition: a reader reads each partition once."""
    joined: list[TopicRange] = []
    for each in ranges:
        if joined and joined[-1].partition == each.partition:
            each = replace(joined.pop(), end=each.end)
        joined.append(each)
    return tuple(joined)


def _not_listed(stream: Stream, position: int) -> InternalError:
    return InternalError(
        f'file {position} of stream "{stream.name}" is not in the listing',
        detail="It was never listed, or its entry was removed because no batch can read the file again.",
        hint="Restore the data directory as a whole: its parts belong together.",
    )
