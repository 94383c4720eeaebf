"""Retention of input: input that no batch can read again is dropped.

    posted events   0 x x x x x x x x | a b c d e f g h i j | k ..        x: dropped
                                      |<- batches that may replay ->|

Posted events before the oldest batch that may replay are dropped, except the newest ``SAMPLE_ROWS``, which
the planner samples. A stream that no query has used yet keeps all events: its first query begins with the
oldest.

The record of a listed file must stay for as long as the file may reappear; otherwise the file would be read
twice. So the record is dropped once no batch can read the file, and the file has been missing for a day while
other files are present (an unmounted file system shows no files). After the record of a file was dropped, a
later file with the same name counts as a new file.

All input of a removed stream is dropped: its events and all its other records in the event log, its listed
files, and then the record of the stream (``catalog.store.pruning``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from catalog.store.store import Store
from catalog.times.clock import is_due
from catalog.values.batch import BatchManifest
from catalog.values.stream import FilesSource, Stream
from service.inputs.reading.sample import SAMPLE_ROWS
from service.inputs.sources.listed.files import candidates, named
from service.inputs.sources.posted.http_log import EventLog

log = logging.getLogger(__name__)

#: Minimum seconds between two checks.
INTERVAL_S = 5.0
#: Minimum seconds between two checks for missing files; rarer, because each check lists directories.
FILES_INTERVAL_S = 3600.0
#: Seconds for which a file must be missing before its record is dropped.
GONE_S = 24 * 3600.0


@dataclass(slots=True)
class InputRetention:
    """Drops old input of a running service.

    Attributes:
        store: Catalog.
        events: Event log.
        known: Paths of listed files by stream id, shared with the lister; paths of dropped files are removed.
        interval_s: Minimum seconds between two checks.
        files_interval_s: Minimum seconds between two checks for missing files.
        gone_s: Seconds for which a file must be missing before its record is dropped.
        sample_rows: Number of newest events of a stream that stay for samples.
    """

    store: Store
    events: EventLog
    known: dict[int, set[str]]
    interval_s: float = INTERVAL_S
    files_interval_s: float = FILES_INTERVAL_S
    gone_s: float = GONE_S
    sample_rows: int = SAMPLE_ROWS
    _looked_us: int | None = field(default=None, init=False)
    _files_looked_us: int | None = field(default=None, init=False)
    #: Wall clock at which a listed file was first found missing, by stream id and path.
    _gone_since_us: dict[int, dict[str, int]] = field(default_factory=dict, init=False)
    #: By id of a removed stream that still has input: the newest batch when the removal was noticed.
    _removed_at: dict[int, int] = field(default_factory=dict, init=False)

    def run_once(self, now_us: int) -> tuple[int, int]:
        """Drop unneeded input; return the numbers of dropped events and of dropped listed files."""
        if not is_due(self._looked_us, now_us, self.interval_s):
            return 0, 0
        self._looked_us = now_us
        oldest = self.store.pruning.oldest_replayed()
        if oldest is None or not oldest.input_end:
            return 0, 0
        positions = {int(key): end for key, end in oldest.input_end if key.isdigit()}
        live = {stream.id: stream for stream in self.store.streams.all()}
        events = self._drop_events(oldest, positions, live)
        files = self._forget_removed(oldest)
        if is_due(self._files_looked_us, now_us, self.files_interval_s):
            self._files_looked_us = now_us
            files += sum(
                self._forget_gone(stream, stream.source, positions[stream.id], now_us)
                for stream in live.values()
                if isinstance(stream.source, FilesSource) and stream.id in positions
            )
        if events or files:
            log.debug("input dropped", extra={"events": events, "files": files})
        return events, files

    def _drop_events(self, oldest: BatchManifest, positions: dict[int, int], live: dict[int, Stream]) -> int:
        dropped = 0
        have_events = self.events.stream_ids()
        for stream_id in have_events:
            if stream_id in live and stream_id in positions:
                sampled = self.events.end(stream_id) - self.sample_rows
                dropped += self.events.drop_before(stream_id, min(positions[stream_id], sampled))
        for stream_id in self.events.known_ids():
            if stream_id not in live and self._is_over(stream_id, oldest):
                if stream_id in have_events:
                    dropped += self.events.drop_before(stream_id, self.events.end(stream_id))
                else:
                    self.events.forget(stream_id)
                    self._removed_at.pop(stream_id, None)
        return dropped

    def _forget_removed(self, oldest: BatchManifest) -> int:
        forgotten = 0
        for stream_id in self.store.source_files.removed_stream_ids():
            if self._is_over(stream_id, oldest):
                forgotten += self.store.source_files.forget_all(stream_id)
                self.known.pop(stream_id, None)
                self._removed_at.pop(stream_id, None)
        return forgotten

    def _is_over(self, stream_id: int, oldest: BatchManifest) -> bool:
        """Return whether no batch can still run under a plan with a removed stream."""
        seen = self._removed_at.setdefault(stream_id, self.store.batches.last() or 0)
        if oldest.batch < seen:
            return False
        plan = self.store.control_log.plan(oldest.plan_version) if oldest.plan_version else None
        return plan is None or all(stream.id != stream_id for stream in plan.streams)

    def _forget_gone(self, stream: Stream, source: FilesSource, position: int, now_us: int) -> int:
        """Drop the records of a stream's files that have been missing long enough."""
        there = {named(path) for path in candidates(source.path)}
        if not there:
            return 0
        known = self.known.setdefault(stream.id, self.store.source_files.paths(stream.id))
        before = self._gone_since_us.get(stream.id, {})
        gone = {path: before.get(path, now_us) for path in known - there}
        due = {path for path, since_us in gone.items() if now_us - since_us >= self.gone_s * 1e6}
        forgotten = self.store.source_files.forget(stream.id, position, due) if due else 0
        if forgotten:
            known -= due - self.store.source_files.paths(stream.id)
        self._gone_since_us[stream.id] = {path: since for path, since in gone.items() if path in known}
        return forgotten
