"""Lanes (with positions in Spark's offsets), pieces (units of admission), partitions (inputs of tasks).

All are plain values, because partitions are pickled into Spark tasks. A partition must give the same rows
whenever it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from catalog.values.stream import KafkaSource, Stream
from operators.storage.folder import Folder

#: ``_pos`` of a file's or chunk's row is ``position << ROW_BITS | row``.
ROW_BITS: Final = 32
#: Maximum number of rows of small pieces that share a reader task. The fixed cost of a task is about the cost
#: of reading this many rows.
ROWS_PER_PARTITION: Final = 500_000


@dataclass(frozen=True, slots=True)
class Lane:
    """Input that is read in the order of its positions: a stream, or one partition of a stream's topic.

    >>> from catalog.values.stream import KafkaCluster
    >>> clicks = Stream(7, "clicks", (), "ts", 0, KafkaSource(KafkaCluster("broker:9092"), "clicks"))
    >>> Lane(clicks, 3).key
    '7/3'

    Attributes:
        stream: The stream.
        partition: Partition of the topic, or None for a stream that is read as a whole.
    """

    stream: Stream
    partition: int | None = None

    @property
    def key(self) -> str:
        """Key of the lane's position in Spark's offsets."""
        return str(self.stream.id) if self.partition is None else f"{self.stream.id}/{self.partition}"

    @property
    def begin(self) -> int:
        """Position at which the lane starts if an offset does not contain the lane."""
        if isinstance(self.stream.source, KafkaSource):
            return dict(self.stream.source.begins).get(self.partition or 0, 0)
        return self.stream.initial_position


def lanes_named(streams: Iterable[Stream], offset: Mapping[str, int]) -> list[Lane]:
    """Return the lanes of streams in a Spark offset; for a topic, the partitions that the offset names."""
    found: list[Lane] = []
    for stream in streams:
        if isinstance(stream.source, KafkaSource):
            named = sorted(int(key.partition("/")[2]) for key in offset if key.startswith(f"{stream.id}/"))
            found += [Lane(stream, partition) for partition in named]
        else:
            found.append(Lane(stream))
    return found


@dataclass(frozen=True, slots=True)
class Piece:
    """The unit of admission: a file, a request's events, a generator chunk or a run of messages.

    Attributes:
        stream_id: Id of the piece's stream.
        position: First position that the piece covers.
        rows: Number of rows; 0 for a file that was set aside.
        t_min_us: Lower bound of the piece's event times, µs UTC, or None if there is no bound.
        t_max_us: Upper bound of the piece's event times, µs UTC, or None if there is no bound.
        count: Number of positions that the piece covers.
        lost: Whether the rows of the piece no longer exist. A batch with such a piece has no other rows, and
            fails until the piece is skipped.
        is_fresh: Whether other lanes may have older rows that were written before this piece but have not
            been seen yet. A fresh piece is admitted only while a newer piece of the same stream that is not
            fresh can still be admitted after it.
    """

    stream_id: int
    position: int
    rows: int
    t_min_us: int | None
    t_max_us: int | None
    count: int = 1
    lost: bool = False
    is_fresh: bool = False

    @property
    def end(self) -> int:
        """Position after the piece."""
        return self.position + self.count


@dataclass(frozen=True, slots=True)
class FileRows:
    """A run of rows of one listed file.

    Attributes:
        position: The file's position.
        path: Absolute path.
        size: Size of the file when it was listed, bytes.
        mtime_ns: Modification time of the file when it was listed, ns.
        first_row: Number of the first row to read, from 0.
        rows: Number of rows to read.
        skipped: Number of bad rows of the file; they are skipped and not counted as rows.
        t_max_us: Newest event time of the rows that are not skipped, µs UTC, or None.
    """

    position: int
    path: str
    size: int
    mtime_ns: int
    first_row: int
    rows: int
    skipped: int = 0
    t_max_us: int | None = None


@dataclass(frozen=True, slots=True)
class FilesPartition:
    """Consecutive runs of rows of a ``files`` stream.

    Attributes:
        stream_id: Id of the partition's stream.
        first_pos: ``_pos`` of the partition's first row.
        t_max_us: Upper bound of the partition's event times, µs UTC, or None if there is no bound.
        rows: Number of rows in the partition.
        files: Runs of rows to read, in order.
        kind: Kind of the partition.
    """

    stream_id: int
    first_pos: int
    t_max_us: int | None
    rows: int
    files: tuple[FileRows, ...]
    kind: Literal["files"] = "files"


@dataclass(frozen=True, slots=True)
class EventsPartition:
    """Offsets [start, end) of an ``http`` stream in the log at ``url``; attributes as in `FilesPartition`."""

    stream_id: int
    first_pos: int
    t_max_us: int | None
    rows: int
    url: str
    start: int
    end: int
    kind: Literal["http"] = "http"


@dataclass(frozen=True, slots=True)
class ChunksPartition:
    """Chunks [start, end) of a ``generator`` stream; attributes as in `FilesPartition`."""

    stream_id: int
    first_pos: int
    t_max_us: int | None
    rows: int
    start: int
    end: int
    kind: Literal["generator"] = "generator"


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Messages of one partition of a topic, offsets [start, end).

    Attributes:
        partition: The partition.
        start: First offset.
        end: Offset after the last.
        begins: Whether no message of the partition was read before; if so, reading may begin after ``start``.
    """

    partition: int
    start: int
    end: int
    begins: bool


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """Messages of a ``kafka`` stream, in order of partition and offset; attributes as in `FilesPartition`.

    Attributes:
        ranges: Messages to read.
        dead_letters: Folder for messages that are not events, if the stream keeps them as dead letters; None
            drops them.
    """

    stream_id: int
    first_pos: int
    t_max_us: int | None
    rows: int
    ranges: tuple[TopicRange, ...]
    dead_letters: Folder | None
    kind: Literal["kafka"] = "kafka"


InputPartition = FilesPartition | EventsPartition | ChunksPartition | TopicPartition
