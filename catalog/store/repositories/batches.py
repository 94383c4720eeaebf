"""Committed batches: one manifest per batch, which the engine that holds the lease writes at the commit.

Each commit updates the totals, so a reader of the totals reads one row, however long the job has run.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import Connection, bindparam, func, insert, select, update

from catalog.documents.codec import decode, encode_short
from catalog.errors import BatchDiffers, InvariantBroken
from catalog.store.database import tables
from catalog.store.database.database import Database
from catalog.store.database.repository import Repository
from catalog.store.lease import check_epoch
from catalog.store.repositories.counts import add_counts, counts_between
from catalog.store.repositories.routes import add_routes
from catalog.values.batch import BatchManifest, BatchProgress, Totals
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.routes.counts.query_counts import QueryCounts
from catalog.values.routes.route_table import BatchRoutes

_b = tables.batches.c
_t = tables.batch_totals.c
_st = tables.stream_totals.c

#: Number of newest batches whose progress a process caches.
PROGRESS_KEPT = 256

_NEXT = select(func.coalesce(func.max(_b.batch) + 1, 0))
_MANIFEST = select(_b.document).where(_b.batch == bindparam("batch"))
_LAST = select(_b.document).order_by(_b.batch.desc()).limit(1)
_RANGE = (
    select(_b.document)
    .where(_b.batch >= bindparam("from_batch"), _b.batch <= bindparam("to_batch"))
    .order_by(_b.batch)
)
_FIRST_OF_VERSION = (
    select(_b.batch, _b.committed_at_us)
    .where(_b.plan_version >= bindparam("version"))
    # Plan versions rise with batch numbers, so the first entry of the index in this order is the first batch,
    # however many batches there are.
    .order_by(_b.plan_version, _b.batch)
    .limit(1)
)
_FROM = select(_b.document).where(_b.batch >= bindparam("batch")).order_by(_b.batch).limit(1)
_TOTALS = select(*(_t[name] for name in Totals._fields))
_STREAM_TOTALS = select(
    _st.stream_id, _st.rows, _st.late_rows, _st.rejected_rows, _st.watermark_us, _st.max_event_time_us
).order_by(_st.stream_id)


class BatchRepository(Repository):
    """Manifests of committed batches, and totals over them."""

    def __init__(self, database: Database, now_us: Callable[[], int]) -> None:
        super().__init__(database, now_us)
        self._progress: OrderedDict[int, BatchProgress] = OrderedDict()
        self._progress_lock = threading.Lock()

    def commit(self, manifest: BatchManifest, routes: BatchRoutes | None = None) -> bool:
        """Make a batch visible: files, routes, late rows and counters, in one transaction.

        Args:
            manifest: Manifest of the batch.
            routes: Routes that the batch adds to its generation; None if it adds none.

        Returns:
            True if this call made the batch visible. False if it was visible already; nothing changes then.

        Raises:
            FencedOut: A newer job has been started.
            BatchDiffers: The batch was visible already, with other input or other row counts.
            InvariantBroken: The previous batch is missing.
        """
        with self._database.write() as connection:
            check_epoch(connection, manifest.epoch, manifest.batch)
            document = connection.execute(_MANIFEST, {"batch": manifest.batch}).scalar()
            if document is not None:
                _check_repeated(connection, decode(BatchManifest, document), manifest)
                return False
            expected = connection.execute(_NEXT).scalar_one()
            if manifest.batch != expected:
                raise InvariantBroken(f"batch {manifest.batch} cannot be committed, batch {expected} is next")
            connection.execute(
                insert(tables.batches).values(
                    batch=manifest.batch,
                    epoch=manifest.epoch,
                    plan_version=manifest.plan_version,
                    # A manifest may have counters of thousands of slices. Most counters are 0, so zeros are
                    # left out.
                    document=encode_short(replace(manifest, query_rows=())).decode(),
                    committed_at_us=manifest.committed_at_us,
                )
            )
            if routes is not None:
                add_routes(connection, manifest, routes)
            add_counts(connection, manifest.batch, QueryCounts.of_batch(manifest.batch, manifest.query_rows))
            _add_stream_counters(connection, manifest)
            _add_totals(connection, manifest)
            self._database.after_commit(lambda: self._remember_progress(manifest.progress))
        return True

    def replace_files(self, manifest: BatchManifest) -> None:
        """Replace the files of a visible batch by files with equal rows that a repetition of the batch wrote.

        Args:
            manifest: Manifest of the repetition.

        Raises:
            FencedOut: A newer job has been started.
            BatchDiffers: The repetition differs from the committed batch.
        """
        with self._database.write() as connection:
            check_epoch(connection, manifest.epoch, manifest.batch)
            document = connection.execute(_MANIFEST, {"batch": manifest.batch}).scalar_one()
            first = decode(BatchManifest, document)
            _check_repeated(connection, first, manifest)
            _store(connection, replace(first, files=manifest.files, late_files=manifest.late_files))

    def accept_repetition(self, batch: int) -> None:
        """Accept that the repetition of a visible batch has less input, since some of it was lost meanwhile.

        Args:
            batch: The batch; its results and counters stay as they are.
        """
        with self._database.write() as connection:
            document = connection.execute(_MANIFEST, {"batch": batch}).scalar_one()
            _store(connection, replace(decode(BatchManifest, document), digest=""))

    def manifest(self, batch: int) -> BatchManifest | None:
        """Return the manifest of a batch, or None if the batch is not committed.

        Args:
            batch: Batch number.

        Returns:
            The manifest.
        """
        with self._database.read() as connection:
            document = connection.execute(_MANIFEST, {"batch": batch}).scalar()
        return None if document is None else decode(BatchManifest, document)

    def progress(self, batch: int) -> BatchProgress | None:
        """Return the progress of a batch, or None if the batch is not committed yet.

        If the batch's manifest is no longer kept, the progress of the next batch with a kept manifest is
        returned.
        """
        with self._progress_lock:
            known = self._progress.get(batch)
        if known is None:
            with self._database.read() as connection:
                document = connection.execute(_FROM, {"batch": batch}).scalar()
            if document is not None:
                # ``BatchProgress`` decodes only the progress, without the counters of thousands of slices.
                known = decode(BatchProgress, document)
                self._remember_progress(known)
        return known

    def last(self) -> int | None:
        """Return the number of the last committed batch, or None if there is none."""
        with self._database.read() as connection:
            following = int(connection.execute(_NEXT).scalar_one())
        return following - 1 if following else None

    def last_progress(self) -> BatchProgress | None:
        """Return the progress of the last committed batch, or None if there is none."""
        last = self.last()
        return None if last is None else self.progress(last)

    def _remember_progress(self, progress: BatchProgress) -> None:
        with self._progress_lock:
            self._progress[progress.batch] = progress
            self._progress.move_to_end(progress.batch)
            while len(self._progress) > PROGRESS_KEPT:
                self._progress.popitem(last=False)

    def last_manifest(self) -> BatchManifest | None:
        """Return the manifest of the last committed batch, or None if there is none."""
        with self._database.read() as connection:
            document = connection.execute(_LAST).scalar()
        return None if document is None else decode(BatchManifest, document)

    def manifests(self, from_batch: int, to_batch: int) -> tuple[BatchManifest, ...]:
        """Return the manifests of a range of batches, both ends included, in order.

        Args:
            from_batch: First batch.
            to_batch: Last batch.

        Returns:
            The manifests of the committed batches.
        """
        wanted = {"from_batch": from_batch, "to_batch": to_batch}
        with self._database.read() as connection:
            documents = connection.scalars(_RANGE, wanted).all()
        return tuple(decode(BatchManifest, document) for document in documents)

    def first_of_version(self, version: int) -> tuple[int, int] | None:
        """Return the first batch processed under a plan version or a later one.

        Args:
            version: Plan version.

        Returns:
            The batch number, and the wall clock when the batch was committed, µs UTC; None if there is no
            such batch yet.
        """
        with self._database.read() as connection:
            row = connection.execute(_FIRST_OF_VERSION, {"version": version}).first()
        return None if row is None else (int(row.batch), int(row.committed_at_us))

    def totals(self) -> Totals:
        """Return the totals of all committed batches."""
        with self._database.read() as connection:
            row = connection.execute(_TOTALS).first()
        return Totals() if row is None else Totals(*row)

    def stream_totals(self) -> tuple[StreamCounters, ...]:
        """Return the total numbers of rows and the newest watermark of each stream, by stream id."""
        with self._database.read() as connection:
            return tuple(StreamCounters(*row) for row in connection.execute(_STREAM_TOTALS))


def _store(connection: Connection, manifest: BatchManifest) -> None:
    document = encode_short(manifest).decode()
    connection.execute(update(tables.batches).where(_b.batch == manifest.batch).values(document=document))


def _check_repeated(connection: Connection, first: BatchManifest, again: BatchManifest) -> None:
    """Refuse a repeated batch whose digest differs; older manifests have no digest to compare."""
    if not first.digest or first.digest == again.digest:
        return
    # The committed manifest has no result counts, so they are read from the table of counts.
    then = int(counts_between(connection, first.batch, first.batch + 1).rows.sum())
    now = sum(count for _, count in again.query_rows)
    raise BatchDiffers(
        f"batch {again.batch} was committed before with other input or other results",
        detail=f"First: {_amounts(first, then)}; now: {_amounts(again, now)}.",
        hint="The input of the batch has changed since, or checkpoint and catalog do not belong together. "
        "Restore both from one backup, with unchanged input files.",
    )


def _amounts(manifest: BatchManifest, results: int) -> str:
    rows = sum(s.rows for s in manifest.streams)
    end = ", ".join(f"{key} {position}" for key, position in manifest.input_end)
    return f"{rows} rows up to offset ({end}) gave {results} results"


def _add_stream_counters(connection: Connection, manifest: BatchManifest) -> None:
    """Add the batch's counters to the totals per stream, and keep the newest watermarks."""
    known = set(connection.scalars(select(_st.stream_id)))
    for counters in manifest.streams:
        if counters.stream_id not in known:
            connection.execute(
                insert(tables.stream_totals).values(
                    stream_id=counters.stream_id, rows=0, late_rows=0, rejected_rows=0
                )
            )
        connection.execute(
            update(tables.stream_totals)
            .where(_st.stream_id == counters.stream_id)
            .values(
                rows=_st.rows + counters.rows,
                late_rows=_st.late_rows + counters.late_rows,
                rejected_rows=_st.rejected_rows + counters.rejected_rows,
                watermark_us=counters.watermark_us,
                max_event_time_us=counters.max_event_time_us,
            )
        )


def _add_totals(connection: Connection, manifest: BatchManifest) -> None:
    """Add the batch to the totals of all batches."""
    row = connection.execute(_TOTALS).first()
    before = Totals() if row is None else Totals(*row)
    after = Totals(
        input_rows=before.input_rows + sum(s.rows for s in manifest.streams),
        late_rows=before.late_rows + sum(s.late_rows for s in manifest.streams),
        state_rows_peak=max(before.state_rows_peak, manifest.state_rows),
        state_bytes_peak=max(before.state_bytes_peak, manifest.state_bytes),
        batches=before.batches + 1,
    )
    if row is None:
        connection.execute(insert(tables.batch_totals).values(id=1, **after._asdict()))
    else:
        connection.execute(update(tables.batch_totals).values(**after._asdict()))
