"""Number of rows and event-time range of Parquet files, from the footer if it has statistics of event times.

Statistics are read through DuckDB because pyarrow's accessors crash the process on a damaged footer (version
26; the C++ exception has no handler). A damaged file must not stop the service.
"""

from __future__ import annotations

import glob
import re
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pat

from catalog.values.stream import FilesSource, Stream, TimeUnit
from service.errors import UnusableFile
from service.inputs.formats.conversion.times import are_plausible, number_us
from service.inputs.formats.conversion.values import UnfitValueError, from_text
from service.inputs.formats.findings.bad_rows import BadRow
from service.inputs.formats.findings.facts import (
    FileFacts,
    checked_facts,
    facts_of,
    match_columns,
    refuse_other_unit,
    rows_ahead,
)
from service.inputs.formats.parquet import conform, is_lossless, opened_parquet, sound_rows

_STATISTICS: Final = """
SELECT coalesce(stats_min_value, stats_min), coalesce(stats_max_value, stats_max), type = 'INT64',
       coalesce(stats_null_count = num_values, false)
FROM parquet_metadata(?) WHERE path_in_schema = ?
"""
#: Bytes of a value of most types in memory.
_VALUE_BYTES: Final = 8
_BELOW_US: Final = re.compile(r"(\.\d{6})\d+")


def inspect_parquet(
    connection: duckdb.DuckDBPyConnection,
    stream: Stream,
    path: str,
    bad: list[BadRow] | None = None,
    latest_us: int | None = None,
) -> FileFacts:
    """Return the row count and event-time range of a Parquet file, from its footer if it has the statistics.

    Args:
        connection: DuckDB connection that reads the statistics.
        stream: The file's stream.
        path: The file.
        bad: List to which bad rows are appended; if it is given, the whole file is read. If it is None, at
            most the event-time column is read.
        latest_us: Latest event time that is allowed, µs UTC; None allows any.

    Raises:
        UnusableFile: The file is not a Parquet file, is truncated, has another schema, has an event time that
            is not allowed (the first is named), or its event times are most likely in another unit.
    """
    with opened_parquet(path) as file:
        names = match_columns(stream, file.schema_arrow.names)
        for column in stream.columns:
            found = file.schema_arrow.field(names[column.name]).type
            if not is_lossless(found, column.type, stream.time_unit):
                problem = f'column "{column.name}" is {found}, declared {column.type}'
                if column.type == "timestamp" and is_lossless(found, "timestamp", "us"):
                    problem += "; declare time_unit, the unit that it counts since 1970: s, ms, us or ns"
                raise UnusableFile(f"it is of another schema: {problem}")
        _refuse_large_groups(stream, file)
        if stream.time_unit is not None:
            _refuse_other_unit(stream, stream.time_unit, file, names[stream.event_time])
        if bad is not None:
            table = sound_rows(stream, file, names, bad, latest_us)
            return facts_of(stream, table.num_rows, table.column(stream.event_time))
        known = _time_range(connection, path, names[stream.event_time])
        if known is not None:
            facts = checked_facts(stream, file.metadata.num_rows, *known)
            if latest_us is None or facts.t_max_us is None or facts.t_max_us <= latest_us:
                return facts
        column = file.read([names[stream.event_time]], use_threads=False).column(0)
        times = conform(column, "timestamp", stream.time_unit)
        facts = facts_of(stream, file.metadata.num_rows, times)
        for index, reason in rows_ahead(stream, times, latest_us).items():
            raise UnusableFile(f'row {index + 1}, column "{stream.event_time}": {reason}')
        return facts


def _refuse_large_groups(stream: Stream, file: pq.ParquetFile) -> None:
    """Refuse a row group that takes too much memory when it is read; runs of one value need few bytes."""
    assert isinstance(stream.source, FilesSource)
    most = stream.source.max_decompressed_mb << 20
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        if max(group.total_byte_size, group.num_rows * len(stream.columns) * _VALUE_BYTES) > most:
            raise UnusableFile(
                f"row group {number + 1} of {group.num_rows} rows has more than "
                f"{stream.source.max_decompressed_mb} MB when decompressed; write smaller row groups, or "
                "declare a larger max_decompressed_mb"
            )


def _refuse_other_unit(stream: Stream, unit: TimeUnit, file: pq.ParquetFile, name: str) -> None:
    """Refuse a file whose integer event times are most likely in another unit."""
    found = file.schema_arrow.field(name).type
    if not pat.is_integer(found.value_type if pat.is_dictionary(found) else found):
        return
    times = file.read([name], use_threads=False).column(0)
    if pat.is_dictionary(found):
        times = times.cast(found.value_type)
    extremes = pc.min_max(times)
    least, most = extremes["min"].as_py(), extremes["max"].as_py()
    if least is not None and not are_plausible(number_us(least, unit), number_us(most, unit)):
        refuse_other_unit(stream, times.to_pylist())


def _time_range(
    connection: duckdb.DuckDBPyConnection, path: str, name: str
) -> tuple[int | None, int | None] | None:
    """Return the oldest and newest event time from row-group statistics, µs, or None if some are missing."""
    try:
        groups = connection.execute(_STATISTICS, [glob.escape(path), name]).fetchall()
    except duckdb.Error:
        return None  # the caller then reads the column, which shows whether the file is sound
    texts: list[str] = []
    for low, high, is_int64, is_all_null in groups:
        if is_all_null:
            continue
        if low is None or high is None or not is_int64:
            return None
        # Cutting the digits below µs rounds down, also for times before 1970.
        texts += [_BELOW_US.sub(r"\1", low), _BELOW_US.sub(r"\1", high)]
    try:
        times = from_text(pa.array(texts, pa.string()), "timestamp")
    except UnfitValueError:
        return None
    extremes = pc.min_max(times.cast(pa.int64()))
    return extremes["min"].as_py(), extremes["max"].as_py()
