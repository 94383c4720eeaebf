"""Streams of a workspace: their registration, posted events, changes and removal.

Registering first judges the files, then writes to the catalog. Judging reads the footer of every existing
file, which can take seconds and must not delay other writers. The verdicts about the files, the position
where reading begins and the stream itself are written in one transaction, so that a crash leaves a complete
stream or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from catalog.columns.arrow_types import PUNCTUATION_COLUMN
from catalog.errors import InvalidInput, StreamInUse
from catalog.steps import steps, stream_sides
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.change import UpdateQuery
from catalog.values.control import Heartbeat
from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, HttpSource, KafkaSource, Stream
from operators.storage.folder import Folder
from planner.bind.bind import bind
from service.errors import NotAnHttpStream, SourceNotFound
from service.inputs.checks.source_roots import SourceRoots
from service.inputs.checks.validate import check_servers, resolve_source, validate_source
from service.inputs.inputs import Inputs
from service.inputs.sources.listed.files import candidates, judged_files, log_left_out, source_warnings
from service.inputs.sources.posted.http_log import EventLog, Sending
from service.inputs.sources.posted.promises import posted_count, posted_promises
from service.planning.changes import changing
from service.planning.versions import Versions
from service.workspace.back_pressure import BackPressure


@dataclass(frozen=True, slots=True)
class AppendReceipt:
    """Events that are durable now.

    Attributes:
        accepted: Number of accepted events.
        quarantined: Number of quarantined events, which are too far ahead of the clock.
        first_offset: Offset of the first accepted event.
        last_offset: Offset of the last accepted event.
    """

    accepted: int
    quarantined: int
    first_offset: int
    last_offset: int


class WorkspaceStreams:
    """Streams of one workspace.

    Args:
        store: The catalog.
        events: Event log for posted events.
        versions: Plans versions; removing a stream that was used makes a new plan version.
        roots: Allowed directories of files.
        pressure: Decides whether posted events are accepted.
        servers: Allowed brokers of topics; ``*`` for any.
        dead_letters: Folder for skipped rows of files.
    """

    def __init__(
        self,
        store: Store,
        events: EventLog,
        versions: Versions,
        roots: SourceRoots,
        pressure: BackPressure,
        servers: Sequence[str],
        dead_letters: Folder,
    ) -> None:
        self._dead_letters = dead_letters
        self._store = store
        self._events = events
        self._versions = versions
        self._inputs = Inputs(store, events)
        self._roots = roots
        self._pressure = pressure
        self._servers = servers

    def all(self) -> tuple[Stream, ...]:
        """Return the registered streams, by id."""
        return self._store.streams.all()

    def get(self, name: str) -> Stream:
        """Return a stream.

        Raises:
            StreamNotFound: No stream has that name.
        """
        return self._store.streams.get(name)

    def warnings(self, stream: Stream) -> tuple[str, ...]:
        """Return warnings about a stream's path: it has no files, or it has entries that are not read."""
        return source_warnings(stream, stream.source) if isinstance(stream.source, FilesSource) else ()

    def register(self, draft: Stream) -> Stream:
        """Register a stream and return it with its id; arguments and errors as in ``registering``."""
        with self.registering(draft) as stream:
            return stream

    @contextmanager
    def registering(self, draft: Stream) -> Iterator[Stream]:
        """Register a stream in a transaction that includes the block; files are judged before it.

        Args:
            draft: The stream with id 0.

        Yields:
            The stream with its id.

        Raises:
            NameTaken: A stream of that name exists.
            SourceNotAllowed: The files are outside of all source roots, or the brokers are not allowed.
            InvalidInput: The source cannot be read as declared.
        """
        check_servers(draft, self._servers)
        draft = resolve_source(draft, base=self._roots.roots[0], now_us=wall_clock_us())
        draft = self._roots.confined(draft)  # first, so that clients learn nothing about other files
        validate_source(draft)
        found = _files_of(draft, self._dead_letters)
        with self._store.transaction():
            stream = self._store.streams.add(draft)
            self._store.source_files.append(stream.id, found)
            if stream.start == "latest" and not isinstance(stream.source, KafkaSource):
                end = self._inputs.end(stream)
                stream = self._store.streams.set_initial_position(stream.name, end)
            yield stream

    def remove(self, name: str) -> None:
        """Remove a stream that no query uses.

        Args:
            name: Its name.

        Raises:
            StreamNotFound: No stream has that name.
            StreamInUse: Running or paused queries use it.
        """
        with self._store.transaction():
            stream = self._store.streams.remove(name)
            previous = self._store.control_log.latest_plan()
            if previous is not None and any(s.id == stream.id for s in previous.streams):
                # A stream that was in use is read until this plan version takes effect.
                flowing = tuple(s for s in previous.streams if s.id != stream.id)
                self._versions.replan(replace(previous, streams=flowing), f"remove stream {name}")

    def change_contract(self, name: str, changed: Callable[[Stream], Stream]) -> Stream:
        """Change a stream's contract; it takes effect with a plan version, at one batch boundary.

        Queries whose windows become shorter or longer are updated in the same plan version.

        Args:
            name: Its name.
            changed: Returns the stream with the new contract, or raises the error that refuses the change.

        Raises:
            StreamNotFound: No stream has that name.
            StreamInUse: Running or paused queries depend on the order that would change, or cannot run with
                the new limits.
        """
        self._versions.load()
        with self._store.transaction():
            former = self.get(name)
            stream = changed(former)
            if stream == former:
                return former
            self._check_order(former, stream)
            updates = self._updates(former, stream)
            self._store.streams.replace(stream)
            previous = self._store.control_log.latest_plan()
            if updates:
                with changing(self._versions, updates):
                    return stream
            if previous is not None and any(s.id == stream.id for s in previous.streams):
                flowing = tuple(stream if s.id == stream.id else s for s in previous.streams)
                self._versions.replan(replace(previous, streams=flowing), f"change contract of {stream.name}")
        return stream

    def _updates(self, former: Stream, stream: Stream) -> list[UpdateQuery]:
        """Return updates for the queries whose text has another meaning with the changed stream.

        Raises:
            StreamInUse: The text of a query is invalid with the changed stream.
        """
        if (former.retain_us, former.evicts) == (stream.retain_us, stream.evicts):
            return []
        before = {s.name: s for s in self._store.streams.all()}
        after = before | {stream.name: stream}
        updates = []
        for record in (*self._store.queries.running(), *self._store.queries.paused()):
            query = record.query
            if all(side.stream_id != stream.id for side in stream_sides(query)):
                continue
            try:
                meant = bind(query.cql, after)
            except InvalidInput as error:
                raise StreamInUse(
                    f'query "{query.name}" cannot run with the new limits of stream "{stream.name}"',
                    detail=f"{error.primary}.",
                    hint="Change or remove the query first.",
                ) from error
            if meant != bind(query.cql, before):
                updates.append(UpdateQuery(query.name, query.cql, rebound=True))
        return updates

    def _check_order(self, former: Stream, stream: Stream) -> None:
        """Refuse a new ordering column or direction while queries join by the present order."""
        if _clock(former) in (None, _clock(stream)):
            return
        queries = [r.query for r in (*self._store.queries.running(), *self._store.queries.paused())]
        using = sorted(
            {
                query.name
                for query in queries
                for step in steps(query)
                if step.ordered and stream.id in (step.a.stream_id, step.b.stream_id)
            }
        )
        if using:
            raise StreamInUse(
                f'the order of stream "{stream.name}" is in use',
                detail=f"The order is the join key of queries without windows: {', '.join(using)}.",
                hint="Change only scramble, or remove these queries first.",
                path=("order",),
            )

    def reset_watermark(self, name: str) -> Stream:
        """Forget a stream's watermark with the next batch; it then follows from the rows read from then on.

        Raises:
            StreamNotFound: No stream has that name.
        """
        with self._store.transaction():
            stream = self.get(name)
            self._store.control_log.append(heartbeat=Heartbeat(stream.id, None))
        return stream

    def retry_files(self, name: str) -> tuple[SourceFile, ...]:
        """Mark a stream's files that were set aside, so that the next listing tries them again; return them.

        Raises:
            StreamNotFound: No stream has that name.
        """
        with self._store.transaction():
            return self._store.source_files.retry(self.get(name).id)

    def of_posts(self, name: str) -> Stream:
        """Return a stream that accepts posted events.

        Raises:
            StreamNotFound: No stream has that name.
            NotAnHttpStream: The stream reads its rows from another source.
        """
        stream = self.get(name)
        if not isinstance(stream.source, HttpSource):
            raise NotAnHttpStream(stream.name, stream.source.type)
        return stream

    def check_room(self, stream: Stream, sending: Sending | None) -> None:
        """Refuse a request while its stream accepts no events; a repeat of a stored request passes.

        Raises:
            IngestFull: No events of the stream, or of any stream, are accepted now.
        """
        refusal = self._pressure.refusal(stream)
        if refusal is not None and (sending is None or self._events.receipt(sending) is None):
            raise refusal

    def append(
        self, stream: Stream, events: Sequence[object], *, sending: Sending | None = None
    ) -> AppendReceipt:
        """Store posted events, all or none.

        Args:
            stream: A stream that accepts posted events (``of_posts``).
            events: Objects parsed from JSON.
            sending: The request, if the client may send it again.

        Raises:
            EventRejected: An event does not fit the stream.
        """
        first, last = self._events.append(stream, events, sending)
        accepted = last - first + 1
        return AppendReceipt(accepted, posted_count(stream, events) - accepted, first, last)

    def promise(self, stream: Stream, patterns: Sequence[object]) -> int:
        """Accept punctuations of a stream whose rows are not posted.

        The punctuations take effect after the rows of their batch.

        Args:
            stream: The stream.
            patterns: Patterns of the punctuations, parsed from JSON.

        Returns:
            Number of keys that the punctuations close.

        Raises:
            EventRejected: A pattern does not fit the stream; no pattern is accepted.
        """
        events = [{PUNCTUATION_COLUMN: pattern} for pattern in patterns]
        with self._store.transaction():
            for promises in posted_promises(stream, events):
                self._store.control_log.append(promises=promises)
        return posted_count(stream, events)

    def quarantined(self, name: str, limit: int) -> tuple[int, pa.Table, list[int]]:
        """Return the number of a stream's quarantined events, the newest events, and their arrival times, µs.

        Raises:
            StreamNotFound: No stream has that name.
            NotAnHttpStream: The stream reads its rows from another source.
        """
        return self._events.quarantined(self.of_posts(name), limit)


def _files_of(draft: Stream, dead_letters: Folder) -> tuple[SourceFile, ...]:
    if not isinstance(draft.source, FilesSource):
        return ()
    try:
        paths = sorted(set(candidates(draft.source.path)))
    except OSError as error:
        raise SourceNotFound(
            f'files of stream "{draft.name}" cannot be listed: {error}',
            hint="Give the user of the service read access to the files and their directories.",
            path=("source", "path"),
        ) from error
    # A stream that starts with the latest rows skips all files that are there, also those that still change.
    settled = draft.start != "latest"
    found = tuple(judged_files(draft, paths, settled=settled, dead_letters=dead_letters))
    for file in found:
        if file.verdict != "ok" or file.skipped:
            log_left_out(draft, file)
    return found


def _clock(stream: Stream) -> tuple[str, bool] | None:
    """Return column and direction of the order of a stream."""
    return None if stream.order is None else (stream.order.column, stream.order.descending)
