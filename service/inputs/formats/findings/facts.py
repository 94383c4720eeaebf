"""Number of rows and event-time range of a file, which the listing records, computed from parsed columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from catalog.times.durations import MAX_TIME_US, MIN_TIME_US, format_duration
from catalog.values.stream import Stream
from service.errors import UnusableFile
from service.inputs.formats.conversion.times import other_unit


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Number of rows and event-time range (µs UTC) of a file; the range is None without event times."""

    rows: int
    t_min_us: int | None
    t_max_us: int | None


def checked_facts(stream: Stream, rows: int, t_min_us: int | None, t_max_us: int | None) -> FileFacts:
    """Return the row count and event-time range of a file, after checking the range.

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
    """Return the row count and event-time range of a file from its event-time column, timestamp[us]."""
    extremes = pc.min_max(times.cast(pa.int64()))
    return checked_facts(stream, rows, extremes["min"].as_py(), extremes["max"].as_py())


def rows_ahead(stream: Stream, times: pa.Array | pa.ChunkedArray, latest_us: int | None) -> Mapping[int, str]:
    """Return index and reason of each row that is further ahead of the clock than its stream allows.

    Args:
        stream: The stream.
        times: Event times, timestamp[us].
        latest_us: Latest event time that is allowed, µs UTC; None allows any.
    """
    if latest_us is None:
        return {}
    beyond = pc.indices_nonzero(pc.greater(times, pa.scalar(latest_us, times.type)))
    ahead = (
        "the clock"
        if stream.max_ahead_us is None
        else f"{format_duration(stream.max_ahead_us)} ahead of the clock"
    )
    return {
        index: f"{times[index].as_py().isoformat()}Z is more than {ahead}; declare max_ahead: null in the "
        "stream if this is intended"
        for index in beyond.to_pylist()
    }


def match_columns(stream: Stream, present: Sequence[str]) -> dict[str, str]:
    """Map the stream's columns to the file's: by the exact name, otherwise ignoring case.

    Raises:
        UnusableFile: A column is missing or ambiguous.
    """
    exact = Counter(present)
    folded = Counter(folded_name(name) for name in present)
    names = {folded_name(name): name for name in present}
    found: dict[str, str] = {}
    for column in stream.columns:
        key = folded_name(column.name)
        if not folded[key]:
            raise UnusableFile(f'it is of another schema: column "{column.name}" is missing')
        if exact[column.name] > 1 or (not exact[column.name] and folded[key] > 1):
            alike = [f'"{name}"' for name in present if folded_name(name) == key]
            raise UnusableFile(
                f'column "{column.name}" appears {folded[key]} times in the file ({", ".join(alike)}); '
                "rename or remove all but one"
            )
        found[column.name] = column.name if exact[column.name] else names[key]
    return found


def refuse_other_unit(stream: Stream, times: Iterable[object]) -> None:
    """Refuse event times that are most likely in another unit than the stream's.

    Args:
        stream: The stream.
        times: Values of the event time in the whole file.

    Raises:
        UnusableFile: The event times are most likely in another unit; the error names the unit to declare.
    """
    found = other_unit(times, stream.time_unit)
    if found is not None:
        raise UnusableFile(
            f'column "{stream.event_time}": {found}; declare time_unit: {found.unit} in the stream, '
            "or write the times as text if these values are right"
        )


def folded_name(name: str) -> str:
    """Return a column name in the form in which names in files and streams are compared: lower case."""
    return name.lower()


def read_columns(stream: Stream, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return columns to read, in declared order: all for None, else the given names and the event time."""
    wanted = None if columns is None else {name.lower() for name in (*columns, stream.event_time)}
    return tuple(c.name for c in stream.columns if wanted is None or c.name.lower() in wanted)
