"""Listed inputs: the files of a stream in reading order, with facts about their contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "set-aside", "stops"]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a stream, listed durably before an offset names it.

    Attributes:
        position: Ordinal in its stream, from 0 without gaps; the catalog assigns it.
        path: Absolute path.
        size: Bytes when it was listed.
        mtime_ns: Modification time when it was listed, ns since 1970.
        rows: Rows in the file without skipped rows; 0 if the file was set aside.
        t_min_us: Oldest event time in the file, µs UTC, or None.
        t_max_us: Newest event time in the file, µs UTC, or None.
        verdict: ``ok``: the file is read. ``set-aside``: it is counted and reported, but never read.
            ``stops``: it is not read, and no batch reads a later file of the stream.
        reason: Why the file is not read, or None.
        skipped: Number of bad rows that are skipped.
    """

    position: int
    path: str
    size: int
    mtime_ns: int
    rows: int
    t_min_us: int | None
    t_max_us: int | None
    verdict: Verdict = "ok"
    reason: str | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Numbers of files and rows of a stream that were left out.

    Attributes:
        stream_id: The stream.
        files: Files that were set aside.
        rows: Rows that were skipped in other files.
    """

    stream_id: int
    files: int
    rows: int
