"""Delivery: results of committed batches go to a sink, in order, and how far it is goes to the catalog.

    read a batch ── give it to the sink ──x── write down that it has it
                                          a crash here repeats the batch

A file is put in place of itself then, so files are exactly once. A receiver of requests gets a part a second
time, under the same key, so these are at least once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.errors import InvariantBroken
from catalog.store.store import Store
from catalog.values.sink import FilesSink, SinkRecord, WebhookSink
from service.config.failpoints import reached
from service.results.results import MAX_PAGE_ROWS, ResultReader, format_cursor
from service.sinks.batch_file import ROWS_AT_A_TIME, write_batch_file

if TYPE_CHECKING:
    from service.sinks.webhook import Webhooks

#: Rows of one request.
PART_ROWS = MAX_PAGE_ROWS


def turns(waiting: Iterable[SinkRecord]) -> tuple[list[SinkRecord], dict[int, int]]:
    """Tell which sinks may be delivered to now, and which have to wait for a former one of their series.

    A sink that replaces one with the same place gets nothing before the former one has all that is its own:
    a receiver sees batches in order, whatever changes of the query lie between them.

    Args:
        waiting: Sinks for which batches wait, by id.

    Returns:
        Those that may be delivered to; ids of the others, each with the id of the sink it waits for.
    """
    first: dict[tuple[int, str], SinkRecord] = {}
    held: dict[int, int] = {}
    for record in waiting:
        if record.sink is None:
            raise InvariantBroken(f"sink {record.id} is none, and nothing can wait for it")
        former = first.setdefault((record.series, record.sink.place), record)
        if former is not record:
            held[record.id] = former.id
    return list(first.values()), held


@dataclass(slots=True)
class Delivery:
    """Delivers to the sinks of one service; different sinks may be delivered to from different threads.

    Attributes:
        store: Catalog.
        results: Reads what is delivered; the deliverer's own, so that nobody waits for it.
        exports: Directory of sinks that are files.
        engine_lock: Path of the lock file, for failpoints.
        part_rows: Rows of one request at most.
    """

    store: Store
    results: ResultReader
    exports: Path
    engine_lock: str
    part_rows: int = PART_ROWS
    _webhooks: Webhooks | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Let go of memory and connections; nothing must be delivered any more."""
        self.results.close()
        if self._webhooks is not None:
            self._webhooks.close()

    def deliver(
        self, record: SinkRecord, last: int, batches: int, *, stopping: Callable[[], bool] = lambda: False
    ) -> int:
        """Deliver the next batches of a sink.

        Args:
            record: The sink, as it was found after ``last`` was the last committed batch.
            last: Last batch to be delivered. Which sink gets a batch is known once it is committed, so a
                batch after ``record`` was read must wait.
            batches: At most so many batches with results.
            stopping: Whether to stop after the batch, or part, in hand.

        Returns:
            Batches delivered whole.

        Raises:
            SluiceError, OSError: The sink, or the catalog, did not take it. What was delivered before is
                written down.
        """
        if record.from_batch is None:
            return 0
        end = last + 1 if record.until_batch is None else min(last + 1, record.until_batch)
        delivered = 0
        first = max(record.next_batch, record.from_batch)
        waiting = self.store.queries.series_batches(record.series, first, batches)
        for batch, query_id, rows in waiting:
            if batch >= end or stopping():
                break
            if isinstance(record.sink, FilesSink):
                record = self._file(record, record.sink, batch, query_id, rows)
            elif isinstance(record.sink, WebhookSink):
                record = self._requests(record, record.sink, batch, rows, stopping)
            else:
                raise InvariantBroken(f"sink {record.id} is none, and nothing can wait for it")
            delivered += record.next_batch > batch
        return delivered

    def _file(self, record: SinkRecord, sink: FilesSink, batch: int, query_id: int, rows: int) -> SinkRecord:
        parts = self.results.whole_batch(query_id, batch, rows, at_a_time=ROWS_AT_A_TIME[sink.format])
        write_batch_file(self.exports, sink, batch, query_id, parts)
        reached("after-sink-file", batch, self.engine_lock)
        return self._delivered(record, batch, rows, rows)

    def _requests(
        self,
        record: SinkRecord,
        sink: WebhookSink,
        batch: int,
        rows: int,
        stopping: Callable[[], bool],
    ) -> SinkRecord:
        while record.next_batch <= batch:
            if stopping():
                break
            first = record.next_row if record.next_batch == batch else 0
            limit = min(rows - first, self.part_rows)
            page = self.results.page(record.series, format_cursor(batch, first), limit)
            self._sender().post(record, sink, page)
            record = self._delivered(record, batch, limit, rows)
        return record

    def _sender(self) -> Webhooks:
        with self._lock:
            if self._webhooks is None:
                from service.sinks.webhook import Webhooks  # httpx takes 0.1 s to load, which few need

                self._webhooks = Webhooks()
            return self._webhooks

    def _delivered(self, record: SinkRecord, batch: int, now: int, rows: int) -> SinkRecord:
        """Write down that a sink has so many more of a batch's rows; return the sink as it is then."""
        done = now + (record.next_row if record.next_batch == batch else 0)
        self.store.sinks.delivered(record, batch, now, whole=done == rows)
        if done == rows:
            return replace(record, next_batch=batch + 1, next_row=0)
        return replace(record, next_batch=batch, next_row=done)
