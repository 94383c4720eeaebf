"""Reads the rows of one partition, in a worker. A partition always gives the same rows, or an error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from catalog.columns.arrow_types import POSITION_COLUMN, arrow_schema
from catalog.errors import SluiceError
from catalog.times.durations import MIN_TIME_US
from catalog.values.stream import FilesSource, GeneratorSource, Stream
from service.errors import CorruptInput, InputChanged, UnusableFile
from service.inputs.formats.file_readers import READERS
from service.inputs.formats.findings.facts import read_columns
from service.inputs.formats.text_input import first_line
from service.inputs.partitions import (
    ROW_BITS,
    EventsPartition,
    FileRows,
    FilesPartition,
    InputPartition,
    TopicPartition,
)
from service.inputs.sources.generated.generator import generate
from service.inputs.sources.listed.opened_file import PASSING, change_of, opened_file
from service.inputs.sources.posted.event_reader import read_events
from service.inputs.sources.topics.topic_reader import read_topic


def read_partition(
    stream: Stream,
    partition: InputPartition,
    columns: Sequence[str] | None = None,
    *,
    punctuations: bool = False,
) -> pa.Table:
    """Return the rows of a partition in source order.

    Args:
        stream: The partition's stream.
        partition: From ``Inputs.partitions``.
        columns: Columns to return, None for all; the event time is always included.
        punctuations: Whether to return posted punctuations as well, marked in ``PUNCTUATION_COLUMN``.

    Returns:
        The columns in declared order and canonical Arrow types, then ``_pos`` (int64, ascending).

    Raises:
        InputChanged: A file was changed after it was listed.
        CorruptInput: A file's body cannot be read; the error names the position of the file to set aside.
        EventLogDown: The event log cannot be read.
        MessagesLost: A topic no longer has the messages.
        MessageRejected: A message is not an event, and the stream refuses such messages.
        KafkaDown: Brokers do not answer.
    """
    names = read_columns(stream, columns)
    if isinstance(partition, EventsPartition):
        start, end = partition.start, partition.end
        return read_events(partition.url, stream, start, end, names, punctuations=punctuations)
    if isinstance(partition, FilesPartition):
        return _read_files(stream, partition, names)
    if isinstance(partition, TopicPartition):
        return read_topic(stream, partition, names)
    assert isinstance(stream.source, GeneratorSource)
    return generate(stream, stream.source, partition.start, partition.end, names)


def _read_files(stream: Stream, partition: FilesPartition, names: tuple[str, ...]) -> pa.Table:
    tables = [_read_file(stream, file, names) for file in partition.files if file.rows]
    if not tables:
        declared = arrow_schema(stream)
        schema = pa.schema([*(declared.field(name) for name in names), pa.field(POSITION_COLUMN, pa.int64())])
        return schema.empty_table()
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def _read_file(stream: Stream, file: FileRows, names: tuple[str, ...]) -> pa.Table:
    assert isinstance(stream.source, FilesSource)
    _check_unchanged(stream, file)
    try:
        with opened_file(stream.source, file.path) as path:
            read = READERS[stream.source.format]
            skips = file.skipped > 0
            latest_us = _latest_us(stream, file) if skips else None
            table = read(stream, path, names, file.first_row, file.rows, skips=skips, latest_us=latest_us)
    except Exception as error:
        # Any error concerns only this file, unless the machine is short of a resource.
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in PASSING):
            raise
        if isinstance(error, SluiceError) and not isinstance(error, UnusableFile):
            raise
        _check_unchanged(stream, file)
        reason = f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, UnusableFile):
            reason = error.primary
        raise CorruptInput(stream.name, stream.id, file.position, file.path, reason) from error
    _check_unchanged(stream, file)  # it may have been overwritten while it was read
    first_pos = (file.position << ROW_BITS) + file.first_row
    positions = np.arange(first_pos, first_pos + file.rows, dtype=np.int64)
    return table.append_column(POSITION_COLUMN, pa.array(positions))


def _latest_us(stream: Stream, file: FileRows) -> int | None:
    """Return the event time after which rows are skipped: the newest event time that the listing kept.

    Rows too far ahead of the clock are found only once, when the file is listed. They are all later than the
    rows that the listing kept, so the newest kept event time separates kept rows from skipped rows.
    """
    if stream.max_ahead_us is None:
        return None
    return MIN_TIME_US - 1 if file.t_max_us is None else file.t_max_us


def _check_unchanged(stream: Stream, file: FileRows) -> None:
    change = change_of(file.path, file.size, file.mtime_ns)
    if change is not None:
        raise InputChanged(stream.name, stream.id, file.position, file.path, change)
