"""Back-pressure: posted events are refused before the disk or the backlog is full.

    backlog of the stream   rows or bytes at their limit    refused until a batch has read some of them
    disk                    less free space than required   refused until more space is free

A request of any size is accepted while its stream is below the limits, so that no request is too large to
ever be accepted. A request is refused before any of its events are stored. The numbers are updated with each
request and each commit: a request costs two comparisons and, once a second, a look at the file system.
Positions of committed batches only grow, so outdated numbers can at worst refuse a request too early.
Therefore the numbers are updated before a request is refused.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from catalog.store.store import Store
from catalog.values.stream import HttpSource, Stream
from service.config.settings import IngestSettings
from service.errors import IngestFull, IngestLimit
from service.inputs.limits.backlog import Backlog
from service.inputs.limits.disk_space import DiskSpace, shown_bytes
from service.inputs.sources.posted.http_log import EventLog
from service.statistics.metrics import IngestFigures

log = logging.getLogger(__name__)

#: Minimum seconds between two checks for newly committed batches while requests are refused.
LOOK_S: Final = 0.2
#: Seconds until a retry if the reading speed is unknown, because the engine is stopped or no query reads the
#: events.
RETRY_S: Final = 30
#: Maximum seconds until a retry, since speeds change.
MAX_RETRY_S: Final = 60


@dataclass(frozen=True, slots=True)
class _Progress:
    """Progress of the batches in a stream.

    Attributes:
        position: Position up to which batches have read.
        at_s: Time when the position was found, on ``time.monotonic``.
        rate_per_s: Events read per second before ``at_s``, or None if unknown.
    """

    position: int
    at_s: float
    rate_per_s: float | None = None


@dataclass(slots=True)
class BackPressure:
    """Decides which requests are accepted.

    Attributes:
        store: Catalog.
        events: Event log.
        limits: Limits of the backlog of a stream.
        disk: Free space of the data directory.
        clock_s: Monotonic clock.
    """

    store: Store
    events: EventLog
    limits: IngestSettings
    disk: DiskSpace
    clock_s: Callable[[], float] = time.monotonic
    _lock: Lock = field(default_factory=Lock, init=False)
    _looked_s: float = field(default=-math.inf, init=False)
    _progress: dict[int, _Progress] = field(default_factory=dict, init=False)
    _refused: Counter[str] = field(default_factory=Counter, init=False)
    _was_out: bool = field(default=False, init=False)

    def refusal(self, stream: Stream) -> IngestFull | None:
        """Return the reason why a stream accepts no events now, or None if the stream accepts events."""
        found = self._disk_refusal() or self._backlog_refusal(stream)
        if found is not None and found.limit != "disk":
            self._look()
            found = self._backlog_refusal(stream)
        if found is not None:
            self._refused[found.limit] += 1
        return found

    def run_once(self, _now_us: int) -> None:
        """Update positions, and log when input begins to wait and when it continues."""
        self._look()
        out = self.disk.is_out
        if out != self._was_out:
            self._was_out = out
            told = (
                "input waits: the disk is nearly full" if out else "input continues: the disk has space again"
            )
            log.log(logging.ERROR if out else logging.INFO, told, extra={"free_bytes": self.disk.free_bytes})

    def figures(self) -> IngestFigures:
        """Return backlogs, refused requests and free space."""
        self._look()
        backlogs = {
            stream.name: self._backlog(stream)
            for stream in self.store.streams.all()
            if isinstance(stream.source, HttpSource)
        }
        return IngestFigures(
            backlogs,
            dict(self._refused),
            self.disk.free_bytes,
            self.disk.least_bytes,
            self.disk.is_out,
        )

    def _backlog(self, stream: Stream) -> Backlog:
        if self._looked_s == -math.inf:
            self._look()
        known = self._progress.get(stream.id)
        return self.events.backlog(stream, stream.initial_position if known is None else known.position)

    def _look(self) -> None:
        """Look up how far committed batches have read each stream, and how fast."""
        with self._lock:
            now_s = self.clock_s()
            if now_s - self._looked_s < LOOK_S:
                return
            self._looked_s = now_s
            last = self.store.batches.last_manifest()
            ends: Mapping[str, int] = {} if last is None else dict(last.input_end)
            for key, position in ends.items():
                if not key.isdigit():
                    continue
                before = self._progress.get(int(key))
                if before is None:
                    self._progress[int(key)] = _Progress(position, now_s)
                elif position > before.position:
                    # The stream may have been idle for most of the time, so the time is limited.
                    took_s = min(max(now_s - before.at_s, LOOK_S), RETRY_S)
                    rate = (position - before.position) / took_s
                    self._progress[int(key)] = _Progress(position, now_s, rate)

    def _disk_refusal(self) -> IngestFull | None:
        if not self.disk.is_low:
            return None
        return IngestFull(
            "no posted events are accepted, since the disk is nearly full",
            limit="disk",
            detail=f"{self.disk.told(self.disk.least_bytes)} Nothing of the request was stored.",
            hint=f"Free some space, and send the request again after {RETRY_S} s. Results can be read and "
            "queries removed meanwhile. SLUICE_MIN_FREE_MB is the limit.",
            retry_after_s=RETRY_S,
        )

    def _backlog_refusal(self, stream: Stream) -> IngestFull | None:
        backlog = self._backlog(stream)
        limits: tuple[tuple[IngestLimit, int, int], ...] = (
            ("rows", backlog.rows, self.limits.backlog_rows),
            ("bytes", backlog.bytes, self.limits.backlog_mb << 20),
        )
        for limit, found, most in limits:
            if not most or found < most:
                continue
            wait_s = self._wait_s(stream.id, backlog.rows * (found - most + 1) / found)
            shown = f"{most:,} rows" if limit == "rows" else shown_bytes(most)
            variable = "SLUICE_MAX_BACKLOG_ROWS" if limit == "rows" else "SLUICE_MAX_BACKLOG_MB"
            why = "GET /api/v1/engine says whether batches run."
            if stream.id not in self._progress:
                why = f"No batch has read the stream yet; its first query begins with the oldest event. {why}"
            return IngestFull(
                f'stream "{stream.name}" accepts no more events until a batch has read some',
                limit=limit,
                detail=f"{backlog.rows:,} events of the stream ({shown_bytes(backlog.bytes)}) wait for a "
                f"batch; the limit is {shown}. Nothing of the request was stored.",
                hint=f"Send the request again after {wait_s} s. {why} {variable} is the limit.",
                retry_after_s=wait_s,
            )
        return None

    def _wait_s(self, stream_id: int, rows: float) -> int:
        """Return the estimated seconds until batches have read a number of rows of a stream."""
        known = self._progress.get(stream_id)
        stale = known is None or self.clock_s() - known.at_s > MAX_RETRY_S
        if known is None or stale or not known.rate_per_s:
            return RETRY_S
        return min(max(math.ceil(rows / known.rate_per_s), 1), MAX_RETRY_S)
