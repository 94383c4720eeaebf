"""Deliverer: follows the committed batches of a running service and keeps its sinks up to date.

    thread "sinks" ── looks for due sinks ───> lane of files      FILES_AT_ONCE threads
                                          └──> lane of others     WEBHOOKS_AT_ONCE threads

It periodically asks the catalog for the last batch, which takes 0.1 ms. It asks for more only if there is a
new batch, or if a sink has further results or must be tried again. Only one thread at a time serves a sink,
so its batches keep their order. A failing sink is tried again after a growing delay, while other sinks
continue. A sink cannot delay the engine, because delivery only reads committed results: while a sink lags,
more results wait for it.

Results that a sink has not received are kept for it within limits (``KeptForSinks``): results that wait too
long, or take too much space, are lost to the sink. Lost results are counted and reported, and the sink
continues after them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from catalog.errors import SluiceError
from catalog.store.store import Store
from catalog.times.clock import is_due, wall_clock_us
from catalog.values.sink import LAGGING_AFTER_S, FilesSink, SinkRecord
from service.faults import Faults
from service.sinks.delivery import Delivery, turns

log = logging.getLogger(__name__)

#: Seconds between two polls for the last batch: well below the length of a micro-batch.
INTERVAL_S = 0.25
#: Number of file sinks written at a time: while one waits for the disk, another reads results.
FILES_AT_ONCE = 4
#: Number of concurrent webhook requests; each holds a part of at most ``delivery.PART_ROWS`` rows in memory.
#: A receiver that does not answer occupies a thread for ten seconds; then it is not tried for a while.
WEBHOOKS_AT_ONCE = 16
#: Maximum number of batches that a sink gets before it is the turn of other sinks.
BATCHES_PER_TURN = 16
#: Seconds for which a failing sink is still tried after the sink or its query was removed. Meanwhile results
#: are kept for it, and nothing else would end the retries.
GIVE_UP_S = 24 * 3600.0
#: Seconds after a start in which a sink can still receive all waiting results, however old or large; a
#: hundredth of ``kept.us`` if that is less.
GRACE_S = 3600.0
#: Maximum seconds between two checks for results that a sink must lose, after ``GRACE_S``.
LOSING_INTERVAL_S = 60.0
#: Seconds between two log lines about a lagging sink.
TELLING_INTERVAL_S = 3600.0
#: Delays before a failed sink is tried again: 1, 2, 4 ... seconds, as long as it accepts nothing.
FIRST_DELAY_S = 1.0
MAX_DELAY_S = 60.0


@dataclass(frozen=True, slots=True)
class KeptForSinks:
    """Limits for results that are kept only because a sink has not received them yet.

    Attributes:
        us: How long results are kept after their commit, wall clock µs, or None for no limit.
        bytes: Maximum total bytes of files that are kept only for sinks, or None for no limit.
        results_us: How long results are kept for readers, wall clock µs, or None for no limit.
    """

    us: int | None = None
    bytes: int | None = None
    results_us: int | None = None

    def first_by_age(self, store: Store, now_us: int) -> int:
        """Return the first batch that is new enough to be kept for sinks."""
        longest_us = None if None in (self.us, self.results_us) else max(self.us or 0, self.results_us or 0)
        return 0 if longest_us is None else store.retention.horizon(now_us - longest_us)

    def first_by_size(self, store: Store, now_us: int) -> int:
        """Return the first batch to keep, so that the files kept only for sinks are within the size limit."""
        if self.bytes is None or self.results_us is None:
            return 0
        end = store.retention.horizon(now_us - self.results_us)
        return store.result_files.sizes_before(end).first_within(self.bytes)


@dataclass(frozen=True, slots=True)
class _Delay:
    """Delay before a failed sink is tried again.

    Attributes:
        until_s: Time of the next attempt on the monotonic clock, s.
        length_s: Length of the delay, s.
    """

    until_s: float
    length_s: float


@dataclass(slots=True)
class Deliverer:
    """Threads that deliver results to sinks.

    Attributes:
        store: Catalog.
        delivery: Delivers the batches of a sink.
        kept: Limits of results kept for sinks.
        clock_s: Monotonic clock.
        now_us: Wall clock, µs UTC.
        faults: Records unexpected errors.
    """

    store: Store
    delivery: Delivery
    kept: KeptForSinks = KeptForSinks()
    clock_s: Callable[[], float] = time.monotonic
    now_us: Callable[[], int] = wall_clock_us
    faults: Faults = field(default_factory=Faults)
    _seen: int | None = field(default=None, init=False)
    _stop: threading.Event = field(default_factory=threading.Event)
    _wake: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    _files: ThreadPoolExecutor = field(init=False)
    _hooks: ThreadPoolExecutor = field(init=False)
    _busy: set[int] = field(default_factory=set)
    _passed_over: set[int] = field(default_factory=set)
    _delays: dict[int, _Delay] = field(default_factory=dict)
    _file_due_us: int | None = None
    _started_us: int = field(init=False)
    _looked_us: int | None = None
    _told_us: int = field(init=False)

    def __post_init__(self) -> None:
        self._started_us = self._told_us = self.now_us()
        self._files = ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="sink-files")
        self._hooks = ThreadPoolExecutor(WEBHOOKS_AT_ONCE, thread_name_prefix="sink-webhook")

    def start(self) -> None:
        """Start delivering waiting results."""
        self._thread = threading.Thread(target=self._run, name="sinks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current files and parts; other results are delivered after the next start."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        for lane in (self._files, self._hooks):
            lane.shutdown(cancel_futures=True)
        self.delivery.close()

    def run_once(self) -> None:
        """Start deliveries to due sinks that are neither busy nor delayed."""
        # The order of these reads matters. A sink that is set after the last batch was read begins with a
        # later batch. If a sink is not busy, its record, which is read afterwards, is up to date.
        last = self.store.batches.last()
        if last is None:
            return
        with self._lock:
            busy = set(self._busy)
        self.store.sinks.resolve()
        waiting = self.store.sinks.pending()
        if self._lose_old(waiting, busy):
            waiting = self.store.sinks.pending()
        self._tell_lagging(waiting)
        self._file_due_us = _next_file_us(waiting, self.now_us())
        self._forget({record.id for record in waiting})
        ready, held = turns(waiting)
        for record in ready:
            if self._gives_up(record) and record.id not in busy:
                self._give_up(record, last)
            elif self._take(record, busy):
                lane = self._files if isinstance(record.sink, FilesSink) else self._hooks
                lane.submit(self._deliver, record, last).add_done_callback(_tell)
        for former in held.values():
            self._look_again_after(former)
        self.store.sinks.drop_spent()

    def _run(self) -> None:
        while not self._stop.is_set():
            worked = self.faults.attempt("sinks", self._look)
            (self._wake if worked else self._stop).wait(INTERVAL_S)

    def _look(self) -> bool:
        """Deliver waiting results if a delivery may be due; return True, for `Faults.attempt`."""
        woken = self._wake.is_set()
        self._wake.clear()
        seen, self._seen = self._seen, None
        try:
            last = self.store.batches.last()
            if last != seen or woken or self._is_due():
                self.run_once()
            self._seen = last
        except SluiceError as error:
            # The catalog cannot be reached. Nothing is lost, because it stores which deliveries are due.
            log.warning("looking for results to deliver failed: %s", error)
        return True

    def _is_due(self) -> bool:
        """Return whether a failed sink may be tried again, or a file need not wait for more batches."""
        if self._file_due_us is not None and self.now_us() >= self._file_due_us:
            return True
        now_s = self.clock_s()
        with self._lock:
            return any(
                delay.until_s <= now_s for sink, delay in self._delays.items() if sink not in self._busy
            )

    def _gives_up(self, record: SinkRecord) -> bool:
        """Return whether a removed sink has failed for so long that its results are given up."""
        if record.ended_at_us is None or not record.failing:
            return False
        return self.now_us() - record.ended_at_us > GIVE_UP_S * 1e6

    def _give_up(self, record: SinkRecord, last: int) -> None:
        # A begun file has only committed batches, up to ``last``, so its batches are given up, too.
        if lost := self.store.sinks.lose(record, last + 1):
            facts = {"query": record.query, "sink": record.id, "batches": lost.batches, "rows": lost.rows}
            log.error("results are lost that a removed sink did not accept: %s", record.error, extra=facts)

    def _lose_old(self, waiting: Sequence[SinkRecord], busy: set[int]) -> bool:
        """Let sinks skip results that wait too long or take too much space; return whether any did."""
        now_us = self.now_us()
        grace_s = GRACE_S if self.kept.us is None else min(GRACE_S, self.kept.us / 1e8)
        if not waiting or not is_due(self._started_us, now_us, grace_s):
            return False
        if not is_due(self._looked_us, now_us, min(LOSING_INTERVAL_S, grace_s)):
            return False
        self._looked_us = now_us
        by_age, by_size = (
            first(self.store, now_us) for first in (self.kept.first_by_age, self.kept.first_by_size)
        )
        found = False
        for record in waiting:
            waits_from = record.waiting_from
            if waits_from is None or waits_from >= max(by_age, by_size) or record.id in busy:
                continue
            if lost := self.store.sinks.lose(record, max(by_age, by_size)):
                found = True
                log.error(
                    "results lost that %s: %s",
                    "a sink did not accept in time"
                    if waits_from < by_age
                    else "took too much space for a sink",
                    _reason(record),
                    extra=_facts(record, now_us)
                    | {"batches": lost.batches, "rows": lost.rows, "last_batch": lost.last or 0},
                )
        return found

    def _tell_lagging(self, waiting: Sequence[SinkRecord]) -> None:
        """Log which sinks lag, once per interval."""
        now_us = self.now_us()
        if not is_due(self._told_us, now_us, TELLING_INTERVAL_S):
            return
        self._told_us = now_us
        for record in waiting:
            if record.lag_s(now_us) > LAGGING_AFTER_S:
                facts = _facts(record, now_us) | {"batches": record.pending}
                log.warning("results wait for a sink that lags: %s", _reason(record), extra=facts)

    def _take(self, record: SinkRecord, busy: set[int]) -> bool:
        """Reserve a sink for a thread, unless a thread serves the sink or the sink is delayed."""
        with self._lock:
            if record.id in busy:
                self._passed_over.add(record.id)
                # The sink may have finished meanwhile; without this wake-up it would not be examined again.
                if record.id not in self._busy:
                    self._wake.set()
                return False
            delay = self._delays.get(record.id)
            if delay is not None and delay.until_s > self.clock_s():
                return False
            self._busy.add(record.id)
        return True

    def _look_again_after(self, former: int) -> None:
        """Wake up when a former sink is done, since another sink of its series waits for it."""
        with self._lock:
            if former in self._busy:
                self._passed_over.add(former)
            elif former not in self._delays:  # the sink finished meanwhile; a delayed one is retried later
                self._wake.set()

    def _forget(self, waiting: set[int]) -> None:
        """Drop the delays of sinks without waiting results."""
        with self._lock:
            self._delays = {sink: delay for sink, delay in self._delays.items() if sink in waiting}

    def _deliver(self, record: SinkRecord, last: int) -> None:
        """Deliver to one sink the batches of one turn."""
        more = False
        try:
            delivered = self.delivery.deliver(record, last, BATCHES_PER_TURN, stopping=self._stop.is_set)
            more = delivered >= BATCHES_PER_TURN or (delivered > 0 and _fills_files(record))
            with self._lock:
                self._delays.pop(record.id, None)
        except Exception as error:
            # Any error concerns only this sink: it is recorded for the sink, which is then tried again.
            self._failed(record, error)
        finally:
            with self._lock:
                self._busy.discard(record.id)
                more = more or record.id in self._passed_over
                self._passed_over.discard(record.id)
            if more:
                self._wake.set()

    def _failed(self, record: SinkRecord, error: Exception) -> None:
        moved = self._has_moved(record)
        with self._lock:
            # A receiver that accepts some parts is not down, so its delay does not grow.
            before = None if moved else self._delays.get(record.id)
            length_s = FIRST_DELAY_S if before is None else min(2 * before.length_s, MAX_DELAY_S)
            self._delays[record.id] = _Delay(self.clock_s() + length_s, length_s)
        expected = isinstance(error, SluiceError | OSError)
        log.log(
            logging.WARNING if expected else logging.ERROR,
            "delivering failed: %s",
            error,
            extra={"query": record.query, "sink": record.id, "again_in_s": length_s},
            exc_info=None if expected else error,
        )
        self.store.sinks.failed(record.id, _in_words(error))

    def _has_moved(self, record: SinkRecord) -> bool:
        """Return whether a sink has received results since its record was read."""
        now = (record.next_batch, record.next_row)
        kept = self.store.sinks.of_series(record.series)
        return any(r.id == record.id and (r.next_batch, r.next_row) != now for r in kept)


def _next_file_us(waiting: Sequence[SinkRecord], now_us: int) -> int | None:
    """Return when the next file waiting for more batches must be written, wall clock µs, or None."""
    due = (
        record.waiting_since_us + record.sink.max_delay_us
        for record in waiting
        if isinstance(record.sink, FilesSink) and record.waiting_since_us is not None
    )
    return min((due_us for due_us in due if due_us > now_us), default=None)


def _facts(record: SinkRecord, now_us: int) -> dict[str, object]:
    """Return the fields of a log line about a lagging sink."""
    return {"query": record.query, "sink": record.id, "lag_s": round(record.lag_s(now_us))}


def _reason(record: SinkRecord) -> str:
    """Return why results wait for a sink."""
    return record.error or "unknown" if record.failing else "it accepts results more slowly than they arrive"


def _fills_files(record: SinkRecord) -> bool:
    """Return whether a file of a sink may have several batches; the last batches may then wait for more."""
    return isinstance(record.sink, FilesSink) and record.sink.batches_per_file > 1


def _in_words(error: Exception) -> str:
    """Return an error's text for the status of the query."""
    if isinstance(error, SluiceError):
        return " ".join(part for part in (error.primary, error.detail) if part)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}"


def _tell(turn: Future[None]) -> None:
    """Log an error that a turn could not record."""
    if not turn.cancelled() and (error := turn.exception()) is not None:
        log.error("delivering failed, and recording the failure failed: %s", error, exc_info=error)
