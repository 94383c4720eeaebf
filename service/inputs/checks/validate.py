"""Refuses invalid sources before their stream is registered."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from catalog.times.durations import MAX_TIME_US, MIN_TIME_US
from catalog.values.stream import (
    Column,
    FilesSource,
    GeneratedColumn,
    GeneratorSource,
    KafkaSource,
    Stream,
)
from catalog.wording.wording import did_you_mean, nearest
from service.errors import InvalidGenerator, SourceNotAllowed, SourceNotFound
from service.inputs.formats.conversion.values import UnfitValueError, expected, from_text
from service.inputs.messages.avro import check_registry
from service.inputs.sources.generated.distributions import uniform_range
from service.inputs.sources.listed.files import is_of_kernel
from service.inputs.sources.topics.topics import Topics

#: Largest rate of a generator: at a higher rate, even the shortest chunk would use too much memory.
MAX_RATE_PER_S: Final = 1e9
#: Largest cardinality of a generated column: a Zipf distribution function takes 8 bytes per value in every
#: reader.
MAX_CARDINALITY: Final = 100_000_000
#: Largest absolute value of a number that is drawn as int64, so that additions to it do not overflow.
_MAX_NUMBER: Final = 2.0**62
_LIMITS: Final = {
    "int": (-(2.0**31), 2.0**31),
    "date": (-300_000.0, 300_000.0),
    "timestamp": (-3e10, 3e10),
    "double": (-math.inf, math.inf),
}


def resolve_source(stream: Stream, *, base: Path, now_us: int) -> Stream:
    """Return the stream as it is registered: a path is absolute, and a generator or topic has a start.

    Args:
        stream: The stream as written.
        base: Directory that relative paths start from.
        now_us: Moment of registration, µs UTC.

    Raises:
        SourceNotFound: The path cannot be made absolute, or the topic does not exist.
        KafkaDown: Brokers do not answer.
    """
    source = stream.source
    if isinstance(source, FilesSource):
        return replace(stream, source=replace(source, path=os.path.normpath(base / _expanded(stream))))
    if isinstance(source, GeneratorSource) and source.start_us is None:
        return replace(stream, source=replace(source, start_us=now_us))
    if isinstance(source, KafkaSource) and stream.start == "latest":
        return replace(stream, source=replace(source, begins=_newest(stream)))
    return stream


def _newest(stream: Stream) -> tuple[tuple[int, int], ...]:
    """Return the end offset of each partition of a stream's topic."""
    with closing(Topics()) as topics:
        return tuple((partition, end) for partition, (_, end) in sorted(topics.ends(stream).items()))


def _expanded(stream: Stream) -> Path:
    assert isinstance(stream.source, FilesSource)
    path, where = stream.source.path, ("source", "path")
    if "\0" in path:
        raise SourceNotFound(
            f'path of stream "{stream.name}" holds a NUL character', hint="Remove it.", path=where
        )
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SourceNotFound(
            f'path "{path}" of stream "{stream.name}" names the home of a user that does not exist',
            hint="Write an absolute path.",
            path=where,
        ) from error


def validate_source(stream: Stream) -> None:
    """Refuse a source that cannot be read with its stream's declaration.

    Raises:
        SourceNotFound: The path, or the directory of the glob, does not exist or may not be read.
        InvalidGenerator: A setting is out of range or does not fit its column.
        KafkaDown: Brokers, or the registry of schemas, do not answer.
        KafkaUnsupported: The client library is not installed.
        SecretMissing: The variable of a secret is not set.
    """
    if isinstance(stream.source, FilesSource):
        _validate_path(stream.name, stream.source.path)
    elif isinstance(stream.source, GeneratorSource):
        _validate_generator(stream, stream.source)
    elif isinstance(stream.source, KafkaSource):
        if stream.source.format == "avro":
            check_registry(stream, stream.source)
        with closing(Topics()) as topics:
            topics.partitions(stream)


def check_servers(stream: Stream, allowed: Sequence[str]) -> None:
    """Refuse a topic at brokers, or schemas at a registry, that the operator has not allowed.

    A client must not use the registration of a stream to reach servers that only the service can reach.

    Args:
        stream: The stream.
        allowed: Brokers and registries, ``host:port``; ``*`` for any.

    Raises:
        SourceNotAllowed: A server of the stream is not among the allowed ones.
    """
    if not isinstance(stream.source, KafkaSource) or "*" in allowed:
        return
    for server in stream.source.cluster.servers:
        if server not in allowed:
            raise SourceNotAllowed(
                f'stream "{stream.name}" may not be read from broker "{server}"',
                hint="Have the operator name it in SLUICE_SERVERS.",
                path=("source", "bootstrap"),
            )
    registry = stream.source.registry
    for server in () if registry is None else registry.servers:
        if server not in allowed:
            raise SourceNotAllowed(
                f'schemas of stream "{stream.name}" may not be read from registry "{server}"',
                hint="Have the operator name it in SLUICE_SERVERS.",
                path=("source", "registry", "url"),
            )


def _validate_path(stream: str, path: str) -> None:
    where = ("source", "path")
    if os.path.exists(path):
        _refuse_special(stream, path)
        if not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
            raise SourceNotFound(
                f'path "{path}" of stream "{stream}" may not be read',
                hint="Give the service access.",
                path=where,
            )
        return
    missing = Path(path)
    if glob.has_magic(path):
        while glob.has_magic(str(missing)):
            missing = missing.parent
        if missing.is_dir():
            _refuse_special(stream, str(missing))
            return
    parent = missing.parent
    while not parent.is_dir():
        missing, parent = parent, parent.parent
    try:
        near = nearest(missing.name, os.listdir(parent))
    except PermissionError:
        near = None
    raise SourceNotFound(
        f'path "{path}" of stream "{stream}" does not exist',
        detail=f'"{parent}" exists, but has no "{missing.name}".',
        hint=f'Did you mean "{parent / near}"?' if near else "Create the directory first; it may be empty.",
        path=where,
    )


def _refuse_special(stream: str, path: str) -> None:
    """Refuse a path that is neither a directory nor a regular file on a disk."""
    where = ("source", "path")
    if not (os.path.isdir(path) or os.path.isfile(path)):
        raise SourceNotFound(
            f'path "{path}" of stream "{stream}" is a pipe, a socket or a device',
            detail="It has no end, and reading it may wait forever.",
            hint="Name a directory, or a regular file.",
            path=where,
        )
    if is_of_kernel(os.path.realpath(path)):
        raise SourceNotFound(
            f'path "{path}" of stream "{stream}" is in a file system of the kernel',
            detail="Files there have no length, and reading some of them may wait forever.",
            hint="Name a directory on a disk.",
            path=where,
        )


def _validate_generator(stream: Stream, source: GeneratorSource) -> None:
    if not 0 < source.rate_per_s <= MAX_RATE_PER_S:
        raise _invalid(
            stream,
            f"rate {source.rate_per_s:g} is out of range",
            "Give more than 0 rows per second.",
            "rate_per_s",
        )
    if source.rows is not None and source.rows < 0:
        raise _invalid(stream, f"{source.rows} rows cannot be generated", "Give 0 or more rows.", "rows")
    start_us = source.start_us or 0
    last_us = start_us + (source.rows or 0) * 1e6 / source.rate_per_s
    if start_us < MIN_TIME_US or last_us > MAX_TIME_US:
        raise _invalid(
            stream,
            "event times would lie outside the years 1 to 9999",
            "Choose an earlier start or fewer rows.",
            "start",
        )
    seen: set[str] = set()
    for spec in source.columns:
        column = _known_column(stream, spec)
        if column.name in seen:
            raise _invalid(stream, f'column "{spec.name}" is given twice', "Keep one.", "columns", spec.name)
        seen.add(column.name)
        _validate_column(stream, spec, column)


def _known_column(stream: Stream, spec: GeneratedColumn) -> Column:
    column = stream.column(spec.name)
    if column is None:
        names = [c.name for c in stream.columns if c.name != stream.event_time]
        hint = did_you_mean(spec.name, names) or f"Columns to fill: {', '.join(names)}."
        raise _invalid(stream, f'column "{spec.name}" does not exist', hint, "columns", spec.name)
    if column.name == stream.event_time:
        hint = "Leave it out: event times follow from the rate."
        raise _invalid(stream, f'column "{spec.name}" is the event time', hint, "columns", spec.name)
    return column


def _validate_column(stream: Stream, spec: GeneratedColumn, column: Column) -> None:
    problem = _column_problem(spec, column.type)
    if problem is not None:
        raise _invalid(stream, f'column "{spec.name}": {problem[0]}', problem[1], "columns", spec.name)


def _column_problem(spec: GeneratedColumn, column_type: str) -> tuple[str, str] | None:
    """Return the fault in a column's settings and a hint, or None if there is no fault."""
    kind = spec.distribution
    if kind == "choice":
        return _choice_problem(spec, column_type)
    if column_type == "boolean" and kind != "uniform":
        return f"{kind} cannot fill a boolean", 'Use "uniform" or "choice".'
    if column_type == "string" and kind == "normal":
        return "normal cannot fill a string", 'Use "uniform", "zipf", "sequence" or "choice".'
    low, high = uniform_range(spec, column_type) if kind == "uniform" else (spec.low, spec.high)
    if not (math.isfinite(low) and math.isfinite(high)):
        return "low and high must be finite", "Give numbers."
    if kind == "uniform" and not (
        low < high if column_type == "double" else math.floor(low) < math.floor(high)
    ):
        return f"uniform from {low:g} to {high:g} is empty", "low must be less than high."
    if kind == "normal" and high < 0:
        return f"the deviation {high:g} is negative", "high is the standard deviation: 0 or more."
    if kind == "zipf" and not (1 <= spec.cardinality <= MAX_CARDINALITY and 0 <= spec.skew < math.inf):
        return (
            "cardinality or skew is out of range",
            f"Use 1 to {MAX_CARDINALITY} values and a skew of 0 or more.",
        )
    bottom, top = _limits(column_type)
    last = {"uniform": high, "normal": low, "zipf": low + spec.cardinality, "sequence": low}[kind]
    if low < bottom or last > top:
        return f"its values leave the range of {column_type}", f"Stay between {bottom:g} and {top:g}."
    return None


def _choice_problem(spec: GeneratedColumn, column_type: str) -> tuple[str, str] | None:
    if not spec.values:
        return "choice has no values", "List them under values."
    for value in spec.values:
        try:
            from_text(pa.array([value], pa.string()), column_type)
        except UnfitValueError:
            return f'value "{value}" is not of type {column_type}', f"Write {expected(column_type)}."
    return None


def _limits(column_type: str) -> tuple[float, float]:
    if column_type.startswith("decimal"):
        precision, scale = (int(part) for part in column_type[len("decimal(") : -1].split(","))
        top = min(10.0 ** (precision - scale), _MAX_NUMBER / 10.0**scale)
        return -top, top
    return _LIMITS.get(column_type, (-_MAX_NUMBER, _MAX_NUMBER))


def _invalid(stream: Stream, problem: str, hint: str, *where: str) -> InvalidGenerator:
    return InvalidGenerator(
        f'generator of stream "{stream.name}": {problem}', hint=hint, path=("source", *where)
    )
