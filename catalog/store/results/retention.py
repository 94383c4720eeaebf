"""Retention: the catalog drops results that are older than the configured age, batch by batch.

    batch       0 . . . . f . l f . . . . . . l f . . . | kept_from . . . . . . . . newest
    manifest    x x x x x s x s s x x x x x x s s x x x | whole     |<- KEPT_BATCHES ->|
    results     none                                    | all

Results are kept from batch ``kept_from`` on; this number never falls. Earlier batches have no result files,
no late rows and no counts of results; ``query_totals`` counts the results that each query has lost. Two
questions about old batches must still be answered: when a plan version came into force, and which version was
in force at an event time. Therefore, two manifests stay of each run of batches in which no query of the
catalog was added or left: the manifests of the first (f) and of the last (l) batch, without files and most
counters (s). All other manifests are dropped (x).

A file with rows of many batches (``results.compaction``) is dropped together with the last of these batches.

This module does not delete files: its caller does so afterwards. If a crash prevents that, the sweep at the
next start deletes the files, because no manifest names them any more.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from sqlalchemy import Connection, bindparam, delete, func, or_, select, update

from catalog.documents.codec import decode, encode
from catalog.store.database import tables
from catalog.store.database.repository import Repository
from catalog.store.repositories.counts import counts_between, drop_counts, fold_counts
from catalog.store.repositories.routes import drop_routes
from catalog.store.results.result_files import drop_merged, merged_before
from catalog.values.batch import BatchManifest
from catalog.values.routes.counts.query_counts import QueryCounts

#: Number of newest batches whose results are kept at any age. These batches include all that may be replayed
#: (``catalog.store.pruning.REPLAYED_BATCHES``) and the last 50, which statistics use.
KEPT_BATCHES = 64

_b = tables.batches.c
_q = tables.queries.c
_t = tables.batch_totals.c
_qt = tables.query_totals.c

_KEPT_FROM = select(_t.kept_from)
_KEPT = select(_b.batch, _b.committed_at_us).join(tables.batch_totals, _b.batch == _t.kept_from)
_NEWEST = select(func.max(_b.batch))
_YOUNGER = (
    select(_b.batch)
    .where(
        _b.batch >= bindparam("kept_from"),
        _b.batch < bindparam("end"),
        _b.committed_at_us > bindparam("until_us"),
    )
    .order_by(_b.batch)
    .limit(1)
)
_MANIFESTS = (
    select(_b.document)
    .where(_b.batch >= bindparam("kept_from"), _b.batch < bindparam("end"))
    .order_by(_b.batch)
)
_VERSIONS = (
    select(_b.batch, _b.plan_version)
    .where(_b.batch >= bindparam("first"), _b.batch <= bindparam("last"))
    .order_by(_b.batch)
)
_BEFORE = (
    select(_b.batch, _b.plan_version).where(_b.batch < bindparam("batch")).order_by(_b.batch.desc()).limit(1)
)
_DROPPED_OF_SERIES = (
    select(_qt.dropped, _qt.dropped_batch, _qt.dropped_of_batch)
    .join(tables.queries, _q.id == _qt.query_id)
    .where(_q.series == bindparam("series"), _qt.dropped > 0)
)
_COUNT_DROPPED = (
    update(tables.query_totals)
    .where(_qt.query_id == bindparam("of"))
    .values(
        dropped=_qt.dropped + bindparam("lost"),
        dropped_batch=bindparam("last"),
        dropped_of_batch=bindparam("of_last"),
    )
)
_DROP_MANIFEST = delete(tables.batches).where(_b.batch == bindparam("gone"))
_CUT_MANIFEST = update(tables.batches).where(_b.batch == bindparam("of")).values(document=bindparam("cut"))


@dataclass(frozen=True, slots=True)
class Dropped:
    """Result of one step of retention.

    Attributes:
        batches: Number of batches that lost their results.
        results: Results that were dropped; a pair counts once for each query that it belonged to.
        files: Result files that no manifest names any more.
        late_files: Files of late rows that no manifest names any more.
        kept_from: First batch whose results are kept.
    """

    batches: int = 0
    results: int = 0
    files: tuple[str, ...] = ()
    late_files: tuple[str, ...] = ()
    kept_from: int = 0

    def __bool__(self) -> bool:
        return self.batches > 0


@dataclass(frozen=True, slots=True)
class DroppedOfSeries:
    """Results that a series of queries lost to retention.

    Attributes:
        results: Number of lost results.
        batch: Last batch with lost results.
        of_batch: Number of lost results in ``batch``.
    """

    results: int
    batch: int
    of_batch: int


class Retention(Repository):
    """Drops results from the oldest batch on, and reports the losses."""

    def kept_from(self) -> tuple[int, int | None]:
        """Return the batch at which the kept results begin.

        Returns:
            The first batch whose results are kept, or 0 if none were dropped; and the wall clock when this
            batch was committed, µs UTC, or None if there is no batch yet.
        """
        with self._database.read() as connection:
            row = connection.execute(_KEPT).first()
        return (0, None) if row is None else (int(row.batch), int(row.committed_at_us))

    def dropped(self, series: int) -> DroppedOfSeries | None:
        """Return the results that a series has lost, or None if all its results are kept."""
        with self._database.read() as connection:
            rows = connection.execute(_DROPPED_OF_SERIES, {"series": series}).all()
        if not rows:
            return None
        last = max(rows, key=lambda row: row.dropped_batch)
        return DroppedOfSeries(sum(row.dropped for row in rows), last.dropped_batch, last.dropped_of_batch)

    def horizon(self, until_us: int) -> int:
        """Return the first batch that is kept because it is recent, even if no sink needs it.

        Args:
            until_us: Wall clock, µs UTC; batches that were committed after this time are kept.
        """
        with self._database.read() as connection:
            kept_from = connection.execute(_KEPT_FROM).scalar()
            if kept_from is None:
                return 0
            return _horizon(connection, kept_from, until_us, None, sys.maxsize)

    def drop(self, until_us: int, *, before: int | None = None, limit: int = 100) -> Dropped:
        """Drop the results of the oldest batches, up to the first batch that is kept.

        Only the changes lock the catalog. Reading and deciding needs no lock, because no other process
        changes such old batches.

        Args:
            until_us: Wall clock, µs UTC; the first batch committed after this time and all later batches are
                kept.
            before: First batch that a reader still needs; this batch and all later ones are kept at any age.
                None if no reader needs old batches.
            limit: Most batches whose results are dropped.

        Returns:
            The numbers and files of dropped results, which are empty if nothing was dropped.
        """
        with self._database.read() as connection:
            kept_from = connection.execute(_KEPT_FROM).scalar()
            if kept_from is None:
                return Dropped()
            end = _horizon(connection, kept_from, until_us, before, limit)
            if end <= kept_from:
                return Dropped(kept_from=kept_from)
            bounds = {"kept_from": kept_from, "end": end}
            old = [decode(BatchManifest, text) for text in connection.scalars(_MANIFESTS, bounds)]
            versions = _versions(connection, kept_from, end)
            kept = _told_apart(connection, versions)
            lost = _lost(counts_between(connection, kept_from, end))
        gone = [{"gone": m.batch} for m in old if m.batch not in kept]
        cut = [{"of": m.batch, "cut": encode(m.thinned()).decode()} for m in old if m.batch in kept]
        with self._database.write() as connection:
            if connection.execute(_KEPT_FROM).scalar() != kept_from:
                return Dropped(kept_from=kept_from)  # another process has dropped these results meanwhile
            if lost:
                fold_counts(connection)  # the totals must include the lost results first
                connection.execute(_COUNT_DROPPED, lost)
            drop_counts(connection, end)
            if gone:
                connection.execute(_DROP_MANIFEST, gone)
            if cut:
                connection.execute(_CUT_MANIFEST, cut)
            drop_routes(connection, end)
            merged = merged_before(connection, end)
            drop_merged(connection, merged)
            connection.execute(update(tables.batch_totals).values(kept_from=end))
        named = [
            (file.path, late)
            for m in old
            for late, of in ((False, m.files), (True, m.late_files))
            for file in of
        ]
        named += [(each.file.path, each.late) for each in merged]
        return Dropped(
            batches=len(old),
            results=sum(each["lost"] for each in lost),
            files=tuple(path for path, late in named if not late),
            late_files=tuple(path for path, late in named if late),
            kept_from=end,
        )

    def thin_manifests(self) -> int:
        """Drop old manifests that were kept only because of queries that are no longer in the catalog.

        Returns:
            Number of dropped manifests.
        """
        with self._database.read() as connection:
            kept_from = connection.execute(_KEPT_FROM).scalar() or 0
            rows = connection.execute(_VERSIONS, {"first": 0, "last": kept_from}).all()
            versions = [(int(row.batch), int(row.plan_version)) for row in rows]
            kept = _told_apart(connection, versions)
        gone = [{"gone": batch} for batch, _ in versions if batch < kept_from and batch not in kept]
        for start in range(0, len(gone), 1000):
            with self._database.write() as connection:
                connection.execute(_DROP_MANIFEST, gone[start : start + 1000])
        return len(gone)


def _horizon(connection: Connection, kept_from: int, until_us: int, before: int | None, limit: int) -> int:
    """Return the first batch whose results are kept."""
    newest = connection.execute(_NEWEST).scalar_one()
    end = min(newest + 1 - KEPT_BATCHES, kept_from + limit)
    if before is not None:
        end = min(end, before)
    bounds = {"kept_from": kept_from, "end": end, "until_us": until_us}
    younger = connection.execute(_YOUNGER, bounds).scalar()
    return end if younger is None else int(younger)


def _versions(connection: Connection, first: int, end: int) -> list[tuple[int, int]]:
    """Return (batch, plan version) for a range of batches, the batch before it and the batch after it."""
    before = connection.execute(_BEFORE, {"batch": first}).first()
    rows = connection.execute(_VERSIONS, {"first": first, "last": end}).all()
    return [(int(row.batch), int(row.plan_version)) for row in ([before] if before else []) + list(rows)]


def _told_apart(connection: Connection, versions: Sequence[tuple[int, int]]) -> set[int]:
    """Return the first and last batch of each run in which no query of the catalog was added or left.

    Args:
        connection: Connection to the catalog.
        versions: (batch, plan version) in order. The first and the last entry are the batches before and
            after the range or, if there are no such batches, the ends of the range.
    """
    named: list[int] = []
    if versions and versions[0][1] < versions[-1][1]:
        span = versions[0][1], versions[-1][1]
        found = connection.execute(
            select(_q.added_version, _q.removed_version).where(
                or_(_q.added_version.between(*span), _q.removed_version.between(*span))
            )
        )
        named = sorted({version for row in found for version in row if version is not None})
    runs = [bisect_right(named, version) for _, version in versions]
    kept = {versions[0][0]} if versions else set()
    for ((batch, _), run), ((following, _), next_run) in pairwise(zip(versions, runs, strict=True)):
        if run != next_run:
            kept |= {batch, following}
    return kept


def _lost(counts: QueryCounts) -> list[dict[str, int]]:
    """Return each query's losses: lost results, last batch with losses, and lost results of this batch."""
    totals = counts.totals()
    # Counts ascend by query, then by batch: find the last count of each query.
    ends = np.flatnonzero(np.append(counts.queries[1:] != counts.queries[:-1], len(counts) > 0))
    last = zip(
        counts.queries[ends].tolist(), counts.batches[ends].tolist(), counts.rows[ends].tolist(), strict=True
    )
    return [{"of": of, "lost": totals[of], "last": batch, "of_last": rows} for of, batch, rows in last]
