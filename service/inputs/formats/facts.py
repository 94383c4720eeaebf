"""Facts that the listing records of a file, and how they are found from parsed columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from catalog.durations import MAX_TIME_US, MIN_TIME_US
from catalog.values.stream import Stream
from service.errors import UnusableFile


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Rows and event-time range of a file, µs UTC; None without any event time."""

    rows: int
    t_min_us: int | None
    t_max_us: int | None


def checked_facts(stream: Stream, rows: int, t_min_us: int | None, t_max_us: int | None) -> FileFacts:
    """Return the facts.

    Raises:
        UnusableFile: An event time lies outside the years 1 to 9999.
    """
    for time_us in (t_min_us, t_max_us):
        if time_us is not None and not MIN_TIME_US <= time_us <= MAX_TIME_US:
            raise UnusableFile(
                f'column "{stream.event_time}" has the event time {time_us} µs, outside the years 1 to 9999'
            )
    return FileFacts(rows, t_min_us, t_max_us)


def facts_of(stream: Stream, rows: int, times: pa.Array | pa.ChunkedArray) -> FileFacts:
    """Return the facts of a file from its event-time column, timestamp[us]."""
    extremes = pc.min_max(times.cast(pa.int64()))
    return checked_facts(stream, rows, extremes["min"].as_py(), extremes["max"].as_py())


def match_columns(stream: Stream, present: list[str]) -> dict[str, str]:
    """Return the name in the file of each of the stream's columns: exact, else without regard to case.

    Raises:
        UnusableFile: A column is missing.
    """
    folded: dict[str, str] = {}
    for name in present:
        folded.setdefault(name.lower(), name)
    exact = set(present)
    found: dict[str, str] = {}
    for column in stream.columns:
        name = column.name if column.name in exact else folded.get(column.name.lower(), "")
        if not name:
            raise UnusableFile(f'it is of another schema: column "{column.name}" is missing')
        found[column.name] = name
    return found


def read_columns(stream: Stream, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names to read, in declared order: those asked for (None: all) and the event time."""
    wanted = None if columns is None else {name.lower() for name in (*columns, stream.event_time)}
    return tuple(c.name for c in stream.columns if wanted is None or c.name.lower() in wanted)
