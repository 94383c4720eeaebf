"""Periodic work while the job of a service runs: listing of files, heartbeats of idle streams.

New files and heartbeats of idle streams are recorded in the catalog, in order and durably, before any batch
can use them. Other periodic work (``ticks``) is called in the same loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from catalog.errors import SluiceError
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.control import Heartbeat
from catalog.values.stream import FilesSource, Stream
from operators.storage.folder import Folder
from service.errors import KafkaDown
from service.faults import Faults
from service.inputs.inputs import Inputs
from service.inputs.sources.listed.changed_files import ChangedFiles
from service.inputs.sources.listed.files import list_files, source_warnings
from service.log import fields

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Watcher:
    """Thread that checks every stream in each round.

    Attributes:
        store: Catalog.
        interval_s: Seconds between two rounds.
        now_us: Wall clock, µs UTC.
        ticks: Functions called with the wall clock at the end of each round.
        inputs: Inputs of all streams; a stream with waiting input is not idle.
        known: Paths of listed files by stream id, kept between rounds, since there may be millions.
        dead_letters: Folder for skipped rows of files; None drops them.
        faults: Records unexpected errors.
    """

    store: Store
    inputs: Inputs
    interval_s: float
    now_us: Callable[[], int] = wall_clock_us
    ticks: tuple[Callable[[int], object], ...] = ()
    known: dict[int, set[str]] = field(default_factory=dict)
    dead_letters: Folder | None = None
    faults: Faults = field(default_factory=Faults)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _last_seen: dict[int, tuple[int, int]] = field(default_factory=dict)
    _warnings: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _changed: ChangedFiles = field(init=False)

    def __post_init__(self) -> None:
        self._changed = ChangedFiles(self.store, self.dead_letters)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the current round."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def run_once(self) -> None:
        """List new files, send heartbeats for idle streams and do the other periodic work, once.

        A failure of one part does not stop the other parts.
        """
        try:
            streams = self.store.streams.all()
        except SluiceError as error:
            log.warning("looking for input failed: %s", error)
            return
        self.faults.keep("listing", {stream.name for stream in streams})
        # Send no heartbeat for a stream whose files cannot be listed: it would make the unlisted files late.
        listed = [s for s in streams if self._works("listing", partial(self._list, s), of=s.name)]
        self._works("heartbeats", partial(self._beat, listed))
        for tick in self.ticks:
            self._works(getattr(tick, "__qualname__", "tick").partition(".")[0], partial(tick, self.now_us()))

    def _run(self) -> None:
        while not self._stop.wait(self.interval_s):
            self.faults.attempt("watcher", self.run_once)

    def _works(self, part: str, work: Callable[[], object], *, of: str = "") -> bool:
        """Do one part of the periodic work; return whether it succeeded."""

        def done() -> bool:
            try:
                work()
            except (SluiceError, OSError) as error:
                # A directory that cannot be read now may be readable in the next round; the job continues
                # meanwhile.
                log.warning("looking for input failed: %s", error, extra=fields(part=part, of=of))
                return False
            return True

        return self.faults.attempt(part, done, of=of) is True

    def _list(self, stream: Stream) -> None:
        if not isinstance(stream.source, FilesSource):
            return
        if stream.id not in self.known:
            self.known[stream.id] = self.store.source_files.paths(stream.id)
        known = self.known[stream.id]
        list_files(self.store, stream, known=known, dead_letters=self.dead_letters)
        last = self.store.batches.last_manifest()
        read_up_to = 0 if last is None else dict(last.input_end).get(str(stream.id), 0)
        self._changed.look(stream, stream.source, read_up_to)
        if stream.id not in self._warnings or not self.known[stream.id]:
            self._warn(stream, source_warnings(stream, stream.source))

    def _warn(self, stream: Stream, warnings: tuple[str, ...]) -> None:
        """Log the new warnings of a stream."""
        for warning in warnings:
            if warning not in self._warnings.get(stream.id, ()):
                log.warning(warning, extra=fields(stream=stream.name))
        self._warnings[stream.id] = warnings

    def _beat(self, streams: Sequence[Stream]) -> None:
        """Advance the watermark of each idle stream to the highest watermark of all other streams."""
        counters = {c.stream_id: c for c in self.store.batches.stream_totals()}
        last = self.store.batches.last_manifest()
        read = {} if last is None else dict(last.input_end)
        for stream in streams:
            found = counters.get(stream.id)
            if stream.idle_timeout_us is None or found is None:
                continue
            rows, since_us = self._last_seen.get(stream.id, (-1, 0))
            # Send no heartbeat while rows wait, for example because the engine is paused or the disk is full.
            # A heartbeat would make these rows late.
            if self._waits(stream, read) or rows != found.rows:
                self._last_seen[stream.id] = (found.rows, self.now_us())
                continue
            target = self._target(stream, {i: c.watermark_us for i, c in counters.items()})
            behind = target is not None and (found.watermark_us is None or found.watermark_us < target)
            if target is not None and behind and self.now_us() - since_us >= stream.idle_timeout_us:
                self.store.control_log.append(heartbeat=Heartbeat(stream.id, target))
                self._last_seen[stream.id] = (found.rows, self.now_us())
                log.info("heartbeat", extra={"stream": stream.name, "watermark_us": target})

    def _waits(self, stream: Stream, read: Mapping[str, int]) -> bool:
        """Return whether rows of a stream wait to be read; assume that rows wait if brokers do not answer."""
        try:
            return not self.inputs.is_read(stream, read)
        except KafkaDown:
            return True

    def _target(self, stream: Stream, watermarks: dict[int, int | None]) -> int | None:
        others = [w for i, w in watermarks.items() if i != stream.id and w is not None]
        return max(others, default=None)
