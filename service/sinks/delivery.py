"""Delivery: gives results of committed batches to a sink, in order, and records its progress in the catalog.

    read batches ── give them to the sink ──x── record that the sink has them
                                            a crash here repeats the batches

A file that is written again replaces the first file, so delivery to files is exactly once. A table or topic
itself records which batches it has, so delivery to it is exactly once, too. A webhook may get a part a second
time, under the same key, so delivery to webhooks is at least once. Small batches of a file sink are read
together and recorded together, since reading and recording cost about the same for one batch as for many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.errors import InvariantBroken
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.sink import FilesSink, SinkRecord, TableSink, TopicSink, WebhookSink
from service.commit.failpoints import reached
from service.errors import SinkFailed
from service.results.pages.page import format_cursor
from service.results.results import MAX_PAGE_ROWS, ResultReader
from service.sinks.batch_file import ROWS_AT_A_TIME, sync_directory, write_batch_file, write_lost_file
from service.sinks.file_cuts import FileCut, file_cuts, read_together
from service.sinks.topic import send_batch
from service.sinks.webhook_targets import PUBLIC_TARGETS, WebhookTargets

if TYPE_CHECKING:
    from service.sinks.webhook import Webhooks

#: Maximum number of rows of one request.
PART_ROWS = MAX_PAGE_ROWS


def turns(waiting: Iterable[SinkRecord]) -> tuple[list[SinkRecord], dict[int, int]]:
    """Separate sinks ready for delivery from sinks that wait for a former sink of their series.

    A new sink for the same place gets nothing until the sink that it replaces has received all its
    results. So a receiver sees batches in order, even if the query changes between them.

    Args:
        waiting: Sinks with waiting batches, in order of id.

    Returns:
        The sinks ready for delivery, and a mapping of every other sink's id to the id of the sink that it
        waits for.
    """
    first: dict[tuple[int, str], SinkRecord] = {}
    held: dict[int, int] = {}
    for record in waiting:
        if record.sink is None:
            raise InvariantBroken(f"sink {record.id} was removed, so no result can wait for it")
        former = first.setdefault((record.series, record.sink.place), record)
        if former is not record:
            held[record.id] = former.id
    return list(first.values()), held


@dataclass(slots=True)
class Delivery:
    """Delivers results to the sinks of one service; threads may serve different sinks concurrently.

    Attributes:
        store: Catalog.
        results: Reads results; used only by the deliverer, so that no other reader waits for it.
        exports: Directory that contains the directories of all file sinks.
        engine_lock: Path of the lock file, for failpoints.
        part_rows: Maximum number of rows of one request.
        targets: Allowed targets of webhooks.
        now_us: Wall clock, µs UTC.
        catalog_id: Identity of the catalog, which distinguishes its batches in a table from those of other
            catalogs.
    """

    store: Store
    results: ResultReader
    exports: Path
    engine_lock: str
    part_rows: int = PART_ROWS
    targets: WebhookTargets = PUBLIC_TARGETS
    now_us: Callable[[], int] = wall_clock_us
    catalog_id: str = ""
    _webhooks: Webhooks | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Release memory; call it after the last delivery."""
        self.results.close()

    def deliver(
        self, record: SinkRecord, last: int, batches: int, *, stopping: Callable[[], bool] = lambda: False
    ) -> int:
        """Deliver the next batches of a sink.

        Args:
            record: The sink, read after ``last``.
            last: Last batch to deliver, committed before ``record`` was read. A later batch must wait, since
                its sink is known only after the batch is committed.
            batches: Maximum number of batches with results to deliver; rounded up to whole files if a file
                has several batches.
            stopping: Returns whether to stop after the current file or part.

        Returns:
            Number of completely delivered batches.

        Raises:
            SluiceError, OSError: The sink or the catalog failed. Earlier deliveries are recorded.
        """
        if record.from_batch is None:
            return 0
        end = last + 1 if record.until_batch is None else min(last + 1, record.until_batch)
        first = max(record.next_batch, record.from_batch)
        if isinstance(record.sink, FilesSink):
            per_file = record.sink.batches_per_file
            found = self._waiting(record, first, -(-batches // per_file) * per_file, end)
            return self._files(record, record.sink, found, stopping)
        delivered = 0
        for batch, query_id, rows in self._waiting(record, first, batches, end):
            if stopping():
                break
            if isinstance(record.sink, WebhookSink):
                record = self._requests(record, record.sink, batch, rows, stopping)
            else:
                record = self._transaction(record, batch, query_id, rows)
            delivered += record.next_batch > batch
        return delivered

    def _waiting(self, record: SinkRecord, first: int, batches: int, end: int) -> list[tuple[int, int, int]]:
        """Return (batch, id of the query, results) of the waiting batches before ``end``."""
        found = self.store.counts.of_series(record.series, first, batches)
        return [each for each in found if each[0] < end]

    def _files(
        self,
        record: SinkRecord,
        sink: FilesSink,
        waiting: Sequence[tuple[int, int, int]],
        stopping: Callable[[], bool],
    ) -> int:
        cuts = file_cuts(waiting, sink.batches_per_file, record.file_end)
        if cuts and len(cuts[-1].batches) < sink.batches_per_file and not self._is_due(record, sink, cuts):
            cuts.pop()
        delivered = 0
        if cuts and record.lost:
            write_lost_file(self.exports, sink, record)
        # After a failure each file is read separately, so that files before damaged results are delivered.
        alone = sink.batches_per_file > 1 or record.failing
        for group in read_together(cuts, 0 if alone else ROWS_AT_A_TIME[sink.format]):
            if stopping():
                break
            if sink.batches_per_file > 1 and record.file_end is None:
                self.store.sinks.begin_file(record, group[0].last)
            written: list[FileCut] = []
            try:
                self._write(sink, group, written, stopping)
            finally:
                if written:
                    record = self._have(record, sink, written)
                    delivered += sum(len(cut.batches) for cut in written)
        return delivered

    def _is_due(self, record: SinkRecord, sink: FilesSink, cuts: Sequence[FileCut]) -> bool:
        """Return whether the last file must be written now, although it is not full."""
        if len(cuts) > 1:
            return False  # More batches may wait than were looked up: the next turn begins with this file.
        if record.file_end is not None or record.ended_at_us is not None or record.waiting_since_us is None:
            return True
        return self.now_us() - record.waiting_since_us >= sink.max_delay_us

    def _write(
        self,
        sink: FilesSink,
        group: Sequence[FileCut],
        written: list[FileCut],
        stopping: Callable[[], bool],
    ) -> None:
        """Write the files of a group with one read of results, and append each to ``written``."""
        batches = [batch for cut in group for batch in cut.batches]
        of_batch = {batch: number for number, cut in enumerate(group) for batch, _ in cut.batches}
        parts = self.results.whole_batches(group[0].query_id, batches, at_a_time=ROWS_AT_A_TIME[sink.format])
        with closing(parts):
            for number, of_file in groupby(parts, lambda part: of_batch[part[0]]):
                cut = group[number]
                write_batch_file(self.exports, sink, cut.name(sink), (rows for _, rows in of_file))
                reached("after-sink-file", cut.first, self.engine_lock)
                written.append(cut)
                if stopping():
                    break

    def _have(self, record: SinkRecord, sink: FilesSink, written: Sequence[FileCut]) -> SinkRecord:
        """Record files as delivered to a sink; return the sink's updated record."""
        sync_directory(self.exports / sink.path)
        rows, batches = sum(cut.rows for cut in written), sum(len(cut.batches) for cut in written)
        last = written[-1].last
        self.store.sinks.delivered(record, last, rows, whole=True, batches=batches)
        return replace(record, next_batch=last + 1, next_row=0, file_end=None)

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

    def _transaction(self, record: SinkRecord, batch: int, query_id: int, rows: int) -> SinkRecord:
        """Give a batch to a sink in one transaction."""
        with closing(self.results.whole_batches(query_id, [(batch, rows)], at_a_time=PART_ROWS)) as parts:
            given = (part for _, part in parts)
            if isinstance(record.sink, TableSink):
                try:
                    from service.sinks.table import write_batch
                except ImportError as error:
                    raise SinkFailed('PostgreSQL needs the extra "postgres" of the package') from error
                write_batch(self.catalog_id, record, record.sink, batch, given)
            elif isinstance(record.sink, TopicSink):
                send_batch(self.store, self.catalog_id, record, record.sink, batch, given)
            else:
                raise InvariantBroken(f"sink {record.id} was removed, so no result can wait for it")
        reached("after-sink-transaction", batch, self.engine_lock)
        return self._delivered(record, batch, rows, rows)

    def _sender(self) -> Webhooks:
        with self._lock:
            if self._webhooks is None:
                from service.sinks.webhook import Webhooks  # httpx loads in 0.1 s; few services need it

                self._webhooks = Webhooks(self.targets)
            return self._webhooks

    def _delivered(self, record: SinkRecord, batch: int, now: int, rows: int) -> SinkRecord:
        """Record ``now`` more rows of a batch as delivered to a sink; return the sink's updated record."""
        done = now + (record.next_row if record.next_batch == batch else 0)
        self.store.sinks.delivered(record, batch, now, whole=done == rows)
        if done == rows:
            return replace(record, next_batch=batch + 1, next_row=0)
        return replace(record, next_batch=batch, next_row=done)
