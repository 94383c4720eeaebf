"""Pieces, the units of admission, and partitions, what one reader task reads.

All are plain values: partitions are pickled into Spark tasks and must give the same rows whenever read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: ``_pos`` of a file's or chunk's row is ``position << ROW_BITS | row``.
ROW_BITS: Final = 32
#: Small pieces share a reader task up to so many rows: a task costs about as much as these rows.
ROWS_PER_PARTITION: Final = 500_000


@dataclass(frozen=True, slots=True)
class Piece:
    """The unit of admission: a file, a request's events or a generator chunk.

    Attributes:
        stream_id: Its stream.
        position: First position it covers.
        rows: Rows in it; 0 for a file that was set aside.
        t_min_us: Lower bound of its event times, or None if there is none.
        t_max_us: Upper bound of its event times, or None if there is none.
        count: Positions it covers.
    """

    stream_id: int
    position: int
    rows: int
    t_min_us: int | None
    t_max_us: int | None
    count: int = 1

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
        size: Bytes as listed.
        mtime_ns: Modification time as listed.
        first_row: First row to read.
        rows: Rows to read.
    """

    position: int
    path: str
    size: int
    mtime_ns: int
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class FilesPartition:
    """Consecutive runs of rows of a ``files`` stream.

    Attributes:
        stream_id: Its stream.
        first_pos: ``_pos`` of its first row.
        t_max_us: Upper bound of its event times, or None.
        rows: Rows in it.
        files: What to read, in order.
        kind: Tells the three kinds apart.
    """

    stream_id: int
    first_pos: int
    t_max_us: int | None
    rows: int
    files: tuple[FileRows, ...]
    kind: Literal["files"] = "files"


@dataclass(frozen=True, slots=True)
class EventsPartition:
    """Offsets [start, end) of an ``http`` stream in the event log at ``path``; else as `FilesPartition`."""

    stream_id: int
    first_pos: int
    t_max_us: int | None
    rows: int
    path: str
    start: int
    end: int
    kind: Literal["http"] = "http"


@dataclass(frozen=True, slots=True)
class ChunksPartition:
    """Chunks [start, end) of a ``generator`` stream; else as `FilesPartition`."""

    stream_id: int
    first_pos: int
    t_max_us: int | None
    rows: int
    start: int
    end: int
    kind: Literal["generator"] = "generator"


InputPartition = FilesPartition | EventsPartition | ChunksPartition
