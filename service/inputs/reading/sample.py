"""Samples of streams for the planner: a bounded number of rows, spread over the available input.

    catalog     listed files, posted events and generators of a service or a run
    workload    unlisted files, and generators, if there is no catalog
    topics      their newest messages, in either case

The cost of a sample does not grow with the input: at most ``SAMPLE_ROWS`` rows are decoded, from at most
``MAX_RUNS`` places. Files that cannot be read are left out, because listing and reading report them.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from catalog.times.clock import wall_clock_us
from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, GeneratorSource, HttpSource, KafkaSource, Stream
from service.errors import CorruptInput, InputChanged, KafkaDown, MessagesLost, SecretMissing, SourceNotFound
from service.inputs.formats.findings.facts import read_columns
from service.inputs.messages.messages import messages_to_table
from service.inputs.partitions import FileRows, FilesPartition, TopicRange
from service.inputs.reading.read import read_partition
from service.inputs.sources.generated.generator import chunks_available, generate, generator_pieces
from service.inputs.sources.listed.files import candidates, in_words, judged_files, source_warnings
from service.inputs.sources.posted.http_log import EventLog
from service.inputs.sources.topics.topic_reader import read_messages
from service.inputs.sources.topics.topics import Topics
from service.log import fields

if TYPE_CHECKING:
    from catalog.store.store import Store

log = logging.getLogger(__name__)

#: Maximum number of rows of a sample: enough to estimate a selectivity of 1 in 1,000 within 7 percent. These
#: rows are decoded and counted in a tenth of a second.
SAMPLE_ROWS: Final = 200_000
#: Smallest and largest number of runs of rows, if a sample does not take all rows. A row group must be
#: decoded for each run. The smallest number still covers the beginning, middle and end of a stream.
MIN_RUNS: Final = 8
MAX_RUNS: Final = 256
#: Number of files at each end of a listing from which the rate is computed; the files between them are not
#: used.
EDGE_FILES: Final = 256
#: Maximum number of bytes of CSV or JSON lines that a sample parses, which takes 1 to 2 s. These files must
#: be parsed from their start.
MAX_TEXT_BYTES: Final = 64 << 20
#: Maximum number of messages of a sample. They arrive over the network, and each is parsed as a whole.
MAX_MESSAGES: Final = 20_000
#: Seconds that a sample waits for brokers; after this time, the plan is made without the sample.
_BROKERS_WAIT_S: Final = 5.0
#: Maximum number of chunks of a generator in a sample; if chunks have more than 200 rows, fewer are enough.
_MAX_CHUNKS: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class RowSample:
    """Sampled rows of a stream, with the rate of the stream and the extent of its files.

    Attributes:
        table: The requested columns and the event time, without rows that lack an event time.
        rate_per_s: Rows per second of event time, or None if the rows span no time.
        file_s: Mean event time that a file covers, seconds, or None if it is unknown.
        files: Number of files; 0 if the source has no files.
    """

    table: pa.Table
    rate_per_s: float | None
    file_s: float | None = None
    files: int = 0


class SampleSource(Protocol):
    """Source of samples."""

    def amount(self, stream: Stream) -> int:
        """Return a number that grows with the input of a stream and is cheap to compute."""
        ...

    def sample(self, stream: Stream, columns: Sequence[str], limit: int = SAMPLE_ROWS) -> RowSample | None:
        """Return about ``limit`` rows of a stream, or None if it has no rows."""
        ...


@dataclass(frozen=True, slots=True)
class CatalogRows:
    """Samples the input that a catalog has listed.

    Attributes:
        store: The catalog.
        events: Event log of ``http`` streams, or None if there are no such streams.
        clock_us: Wall clock, µs UTC; endless generators have rows up to its time.
    """

    store: Store
    events: EventLog | None = None
    clock_us: Callable[[], int] = wall_clock_us

    def amount(self, stream: Stream) -> int:
        """See `SampleSource`."""
        if isinstance(stream.source, FilesSource):
            return self.store.source_files.count(stream.id)
        if isinstance(stream.source, HttpSource):
            return 0 if self.events is None else self.events.end(stream.id)
        return 1  # constant: chunks are alike, and topics are not queried here

    def sample(self, stream: Stream, columns: Sequence[str], limit: int = SAMPLE_ROWS) -> RowSample | None:
        """See `SampleSource`."""
        if isinstance(stream.source, FilesSource):
            count = self.store.source_files.count(stream.id)
            return _of_files(stream, self._edges(stream, count), count, columns, limit)
        if isinstance(stream.source, HttpSource):
            return None if self.events is None else _of_events(self.events, stream, columns, limit)
        if isinstance(stream.source, KafkaSource):
            return _of_topic(stream, stream.source, columns, limit)
        return _of_generator(stream, stream.source, columns, limit, self.clock_us())

    def _edges(self, stream: Stream, count: int) -> list[Sequence[SourceFile]]:
        if count <= 2 * EDGE_FILES:
            return [self.store.source_files.page(stream.id, 0, count)]
        first = self.store.source_files.page(stream.id, 0, EDGE_FILES)
        return [first, self.store.source_files.page(stream.id, count - EDGE_FILES, EDGE_FILES)]


@dataclass(frozen=True, slots=True)
class WorkloadRows:
    """Samples the streams of a workload without a catalog: unlisted files, generators and topics.

    Attributes:
        tell: Function that shows the user a warning about files; it may get the same warning repeatedly.
            None drops warnings.
        clock_us: Wall clock, µs UTC; endless generators have rows up to its time.
    """

    clock_us: Callable[[], int] = wall_clock_us
    tell: Callable[[str], None] | None = None

    def amount(self, stream: Stream) -> int:
        """See `SampleSource`."""
        return 1  # files that arrive meanwhile do not matter: a plan is made once

    def sample(self, stream: Stream, columns: Sequence[str], limit: int = SAMPLE_ROWS) -> RowSample | None:
        """See `SampleSource`."""
        if isinstance(stream.source, FilesSource):
            return self._of_unlisted(stream, stream.source, columns, limit)
        if isinstance(stream.source, HttpSource):
            return None  # only a service has posted events
        if isinstance(stream.source, KafkaSource):
            return _of_topic(stream, stream.source, columns, limit)
        return _of_generator(stream, stream.source, columns, limit, self.clock_us())

    def _of_unlisted(
        self, stream: Stream, source: FilesSource, columns: Sequence[str], limit: int
    ) -> RowSample | None:
        try:
            paths = sorted(set(candidates(source.path)))
            edges = _unlisted_edges(stream, source, paths)
            warnings = source_warnings(stream, source)
        except OSError as error:  # a run would be refused, but a plan can be made without these files
            paths, edges = [], []
            warnings = (f'files of stream "{stream.name}" cannot be read: {error}',)
        if self.tell is not None:
            for file in chain.from_iterable(edges):
                if file.verdict != "ok" or file.skipped:
                    self.tell(in_words(stream, file))
            for warning in warnings:
                self.tell(warning)
        return _of_files(stream, edges, len(paths), columns, limit)


def _unlisted_edges(stream: Stream, source: FilesSource, paths: Sequence[str]) -> list[Sequence[SourceFile]]:
    if source.format != "parquet":
        paths = list(_affordable(paths))  # checking a text file means parsing it
    runs = [paths] if len(paths) <= 2 * EDGE_FILES else [paths[:EDGE_FILES], paths[-EDGE_FILES:]]
    judged = (judged_files(stream, run, settled=False) for run in runs)
    return [[replace(file, position=i) for i, file in enumerate(files)] for files in judged]


def _affordable(paths: Iterable[str]) -> Iterator[str]:
    left = MAX_TEXT_BYTES
    for path in paths:
        left -= os.stat(path).st_size
        if left < 0:
            return
        yield path


def _of_files(
    stream: Stream, edges: Sequence[Sequence[SourceFile]], count: int, columns: Sequence[str], limit: int
) -> RowSample | None:
    """Read runs of rows, spread evenly over the rows of the ``count`` files."""
    assert isinstance(stream.source, FilesSource)
    sound = [[f for f in edge if f.verdict == "ok" and f.rows] for edge in edges]
    files = [f for edge in sound for f in edge]
    if stream.source.format == "parquet":
        runs = list(_runs(files, limit))
    else:
        runs = list(_heads(files, limit))
    tables = [table for run in runs if (table := _read(stream, run, columns)) is not None]
    if not tables:
        return None
    rate_per_s, file_s = _listed_rate(sound)
    unsound = sum(map(len, edges)) - len(files)
    return RowSample(_timed(stream, pa.concat_tables(tables)), rate_per_s, file_s, count - unsound)


def _runs(files: Sequence[SourceFile], limit: int) -> Iterator[FileRows]:
    total = sum(f.rows for f in files)
    if total <= limit and len(files) <= MAX_RUNS:
        yield from (_file_rows(f, 0, f.rows) for f in files)
        return
    count = min(max(-(-limit * len(files) // total), MIN_RUNS), MAX_RUNS)
    ends = list(accumulate(f.rows for f in files))
    for number in range(count):
        row = total * number // count
        file = files[bisect_right(ends, row)]
        first = row - (ends[bisect_right(ends, row)] - file.rows)
        yield _file_rows(file, first, min(limit // count, file.rows - first))


def _heads(files: Sequence[SourceFile], limit: int) -> Iterator[FileRows]:
    """Yield the first rows of files, from both ends inwards, up to ``MAX_TEXT_BYTES`` of whole files."""
    count = min(len(files), MAX_RUNS)
    chosen = [files[len(files) * number // count] for number in range(count)]
    total = sum(f.rows for f in chosen)
    left = MAX_TEXT_BYTES
    for number, file in sorted(enumerate(chosen), key=lambda f: min(f[0], count - 1 - f[0])):
        left -= file.size
        if left < 0:
            return
        rows = file.rows if total <= limit else min(file.rows, max(limit // count, 1))
        yield replace(_file_rows(file, 0, rows), position=number)


def _file_rows(file: SourceFile, first_row: int, rows: int) -> FileRows:
    return FileRows(
        file.position, file.path, file.size, file.mtime_ns, first_row, rows, file.skipped, file.t_max_us
    )


def _read(stream: Stream, run: FileRows, columns: Sequence[str]) -> pa.Table | None:
    partition = FilesPartition(stream.id, 0, None, run.rows, (run,))
    try:
        return read_partition(stream, partition, columns)
    except (CorruptInput, InputChanged) as error:
        log.info("file not sampled", extra=fields(stream=stream.name, path=run.path, reason=error.primary))
        return None


def _listed_rate(edges: Sequence[Sequence[SourceFile]]) -> tuple[float | None, float | None]:
    """Return rows per second and seconds per file, from the event times at both ends of a listing."""
    rows, files, span_us = 0, 0, 0
    for edge in edges:
        starts = [f.t_min_us for f in edge if f.t_min_us is not None]
        ends = [f.t_max_us for f in edge if f.t_max_us is not None]
        if starts and ends:
            # n rows have n - 1 gaps between them.
            rows += sum(f.rows for f in edge) - 1
            files += len(edge)
            span_us += max(ends) - min(starts)
    if rows <= 0 or span_us <= 0:
        return None, None
    return rows / (span_us / 1e6), span_us / 1e6 / files


def _of_events(events: EventLog, stream: Stream, columns: Sequence[str], limit: int) -> RowSample | None:
    """Read the newest events."""
    end = events.end(stream.id)
    if events.begin(stream.id) == end:
        return None
    first = max(end - limit, events.begin(stream.id))
    found = events.read(stream, first, end, read_columns(stream, columns))
    table = _timed(stream, found)
    return RowSample(table, _rate(stream, table))


def _of_topic(stream: Stream, source: KafkaSource, columns: Sequence[str], limit: int) -> RowSample | None:
    """Read the newest messages of each partition, the same number of offsets from each."""
    topics = Topics(wait_s=_BROKERS_WAIT_S)
    try:
        ends = topics.ends(stream)
        share = -(-min(limit, MAX_MESSAGES) // max(len(ends), 1))
        ranges = [
            TopicRange(p, max(oldest, following - share), following, begins=True)
            for p, (oldest, following) in sorted(ends.items())
            if oldest < following
        ]
        table, *_ = messages_to_table(stream, source, read_messages(stream, ranges, wait_s=_BROKERS_WAIT_S))
    except (KafkaDown, MessagesLost, SourceNotFound, SecretMissing) as error:
        log.info("topic not sampled", extra=fields(stream=stream.name, reason=error.primary))
        return None
    finally:
        topics.close()
    table = table.select(list(read_columns(stream, columns)))
    return RowSample(table, _rate(stream, table)) if table.num_rows else None


def _of_generator(
    stream: Stream, source: GeneratorSource, columns: Sequence[str], limit: int, now_us: int
) -> RowSample | None:
    """Generate the first chunks, even if they lie in the future; the rate is the declared one."""
    if source.start_us is None:
        source = replace(source, start_us=now_us)
    chunks = _MAX_CHUNKS if source.rows is None else min(chunks_available(source, now_us), _MAX_CHUNKS)
    rows, end = 0, 0
    for piece in generator_pieces(stream, source, 0, chunks):
        if rows >= limit:
            break
        rows, end = rows + piece.rows, piece.end
    table = generate(stream, source, 0, end, read_columns(stream, columns))
    return RowSample(_timed(stream, table.slice(0, limit)), source.rate_per_s)


def _timed(stream: Stream, table: pa.Table) -> pa.Table:
    times = table.column(stream.event_time)
    return table.filter(pc.is_valid(times)) if times.null_count else table


def _rate(stream: Stream, table: pa.Table) -> float | None:
    extremes = pc.min_max(table.column(stream.event_time).cast(pa.int64()))
    first_us, last_us = extremes["min"].as_py(), extremes["max"].as_py()
    if first_us is None or first_us == last_us:
        return None
    return float((table.num_rows - 1) / ((last_us - first_us) / 1e6))
