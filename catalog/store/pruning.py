"""Pruning: drop records that no replayed batch can read and that no kept record refers to.

    control log   --x--x--x--|base|--|--|--|          x: before the base, dropped
    plans          x     x    base    .   newest      base: in force at the oldest batch that may replay

The *base* is the plan version in force ``REPLAYED_BATCHES`` batches before the last one. A replayed batch
starts at the offset of the base's record or later, so it reads only later records, and only the base and
later plans. The newest record and the newest plan always stay, so that new records and plans continue their
numbers without gaps.

A removed query is deleted completely once no result of its series is kept any more (``results.retention``).
Queries, totals and routes that are needed to read kept results stay as long as these results. When
former queries of an existing series are pruned, their totals are added to those of the series' first query.
The history of plans is cut to its last ``HISTORY_ENTRIES``.

A removed stream is dropped, with its totals, once neither a query nor a listed file nor the base plan names
the stream, because no replayed batch can then read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, delete, exists, func, insert, or_, select, update

from catalog.documents.codec import decode
from catalog.steps import stream_sides
from catalog.store.database import tables
from catalog.store.database.database import Database
from catalog.store.database.repository import ASKED_AT_ONCE, Repository
from catalog.store.repositories.control_log import ControlLogRepository
from catalog.store.repositories.counts import fold_counts
from catalog.store.repositories.streams import OF_MANY
from catalog.values.batch import BatchManifest
from catalog.values.query import Query

#: Number of batches whose offsets Spark keeps (``spark.sql.streaming.minBatchesToRetain``). After a crash,
#: only the last batch is replayed. Earlier ones are replayed if a restored checkpoint is older than the
#: catalog.
REPLAYED_BATCHES = 10
#: Number of entries of the plan history that are kept. An entry is short, so they take a few megabytes at
#: most.
HISTORY_ENTRIES = 10_000
#: Number of heartbeats above which they alone start pruning; each of them is a row of only a few bytes.
_HEARTBEATS_KEPT = 16

_l = tables.control_log.c
_p = tables.plans.c
_b = tables.batches.c
_q = tables.queries.c
_h = tables.plan_history.c

_OLDEST_REPLAYED = select(_b.plan_version, _b.document).where(
    _b.batch == select(func.max(_b.batch) - REPLAYED_BATCHES).scalar_subquery()
)
_NEWEST_RECORD = select(func.max(_l.seq)).scalar_subquery()
_BEHIND = _l.seq < select(_p.seq).where(_p.version == bindparam("base")).scalar_subquery()
_DROP_RECORDS = delete(tables.control_log).where(_BEHIND, _l.seq < _NEWEST_RECORD)
# Heartbeats up to the watermark that the stream had at the base are dropped, because their replay would
# change nothing.
_DROP_HEARTBEATS = delete(tables.control_log).where(
    _l.heartbeat_stream_id == bindparam("stream"),
    _l.heartbeat_watermark_us <= bindparam("watermark"),
    _l.seq < _NEWEST_RECORD,
)
_DROP_PLANS = delete(tables.plans).where(
    _p.version < bindparam("base"),
    _p.version.not_in(select(_l.plan_version).where(_l.plan_version.is_not(None))),
)

_newest = tables.queries.alias("newest")
_member = tables.queries.alias("member")
_totals = tables.query_totals.c
_st = tables.stream_totals.c
_NEWEST_OF_SERIES = (
    select(func.max(_newest.c.id))
    .where(_newest.c.series == _q.series)
    .correlate(tables.queries)
    .scalar_subquery()
)
_last = tables.queries.alias("last")
_SOME_KEPT = _totals.rows > _totals.dropped
_SERIES_HAS_RESULTS = exists().where(
    _member.c.series == _q.series, _totals.query_id == _member.c.id, _SOME_KEPT
)
_SERIES_IS_GONE = exists().where(
    _last.c.id == _NEWEST_OF_SERIES,
    _last.c.left_by == "remove",
    _last.c.removed_version <= bindparam("base"),
    _last.c.removed_at_us <= bindparam("until_us"),
)
# An existing series keeps its first and its newest query, whether or not they have results.
_SUPERSEDED = and_(_q.id != _q.series, _q.id < _NEWEST_OF_SERIES)
_FORGOTTEN = select(_q.id).where(
    _q.removed_version <= bindparam("base"),
    _q.removed_at_us <= bindparam("until_us"),
    ~exists().where(_totals.query_id == _q.id, _SOME_KEPT),
    or_(_SUPERSEDED, and_(_SERIES_IS_GONE, ~_SERIES_HAS_RESULTS)),
)
_TOTALS_OF = select(
    _q.series,
    _totals.query_id,
    _totals.rows,
    _totals.dropped,
    _totals.dropped_batch,
    _totals.dropped_of_batch,
).outerjoin(tables.query_totals, _totals.query_id == _q.id)
_s = tables.streams.c
_GONE_STREAMS = select(_s.id).where(
    _s.removed_at_us <= bindparam("until_us"),
    ~exists().where(or_(_q.stream_a == _s.id, _q.stream_b == _s.id)),
    ~exists().where(tables.inputs.c.stream_id == _s.id),
)
_DROP_HISTORY = delete(tables.plan_history).where(
    _h.version <= select(func.max(_h.version) - bindparam("kept")).scalar_subquery()
)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Numbers of rows that were pruned.

    Attributes:
        records: Records of the control log.
        plans: Plan versions.
        queries: Removed queries without kept results.
        history: Entries of the plan history.
        streams: Removed streams that no other record names.
    """

    records: int = 0
    plans: int = 0
    queries: int = 0
    history: int = 0
    streams: int = 0

    def __bool__(self) -> bool:
        return bool(self.records or self.plans or self.queries or self.history or self.streams)


class Pruning(Repository):
    """Drops records that no request can need again.

    Args:
        database: Database of the catalog.
        now_us: Function that returns the wall clock, µs UTC.
        control_log: Repository that stores the base whole before earlier plans are dropped.
    """

    def __init__(
        self, database: Database, now_us: Callable[[], int], control_log: ControlLogRepository
    ) -> None:
        super().__init__(database, now_us)
        self._control_log = control_log

    def prune(self, *, grace_us: int = 0) -> Pruned:
        """Prune records that are older than the oldest batch that may be replayed.

        Args:
            grace_us: How long a removed query without results is kept for readers, wall clock µs.

        Returns:
            Numbers of pruned rows, by kind of record.
        """
        with self._database.read() as connection:
            oldest = connection.execute(_OLDEST_REPLAYED).first()
            if oldest is None or not self._is_due(connection, oldest.plan_version, grace_us):
                return Pruned()
        with self._database.write() as connection:
            oldest = connection.execute(_OLDEST_REPLAYED).first()
            if oldest is None:
                return Pruned()
            base = int(oldest.plan_version)
            fold_counts(connection)  # totals tell whether a query has kept results
            records = connection.execute(_DROP_RECORDS, {"base": base}).rowcount
            for stream in decode(BatchManifest, oldest.document).streams:
                if stream.watermark_us is not None:
                    known = {"stream": stream.stream_id, "watermark": stream.watermark_us}
                    records += connection.execute(_DROP_HEARTBEATS, known).rowcount
            self._control_log.make_whole(base)
            plans = connection.execute(_DROP_PLANS, {"base": base}).rowcount
            queries = _drop_queries(connection, self._forgotten(connection, base, grace_us))
            streams = self._unnamed_streams(connection, base, grace_us)
            connection.execute(delete(tables.stream_totals).where(_st.stream_id.in_(streams)))
            connection.execute(delete(tables.streams).where(_s.id.in_(streams)))
            return Pruned(
                records=records,
                plans=plans,
                queries=queries,
                history=connection.execute(_DROP_HISTORY, {"kept": HISTORY_ENTRIES}).rowcount,
                streams=len(streams),
            )

    def oldest_replayed(self) -> BatchManifest | None:
        """Return the manifest of the batch before the oldest replayable one; None if all are replayable."""
        with self._database.read() as connection:
            oldest = connection.execute(_OLDEST_REPLAYED).first()
        return None if oldest is None else decode(BatchManifest, oldest.document)

    def _is_due(self, connection: Connection, base: int, grace_us: int) -> bool:
        """Return whether enough can be pruned to justify a lock; a few heartbeats are not enough."""
        behind = connection.execute(
            select(func.count()).select_from(tables.plans).where(_p.version < base)
        ).scalar_one()
        beats = connection.execute(
            select(func.count()).select_from(tables.control_log).where(_l.heartbeat_stream_id.is_not(None))
        ).scalar_one()
        history = connection.execute(select(func.count()).select_from(tables.plan_history)).scalar_one()
        return bool(
            behind
            or beats > _HEARTBEATS_KEPT
            or history > HISTORY_ENTRIES
            or self._forgotten(connection, base, grace_us)
            or self._unnamed_streams(connection, base, grace_us)
        )

    def _forgotten(self, connection: Connection, base: int, grace_us: int) -> list[int]:
        """Return the ids of the queries removed before the base that no reader can still see."""
        until_us = self._now_us() - grace_us
        return list(connection.scalars(_FORGOTTEN, {"base": base, "until_us": until_us}))

    def _unnamed_streams(self, connection: Connection, base: int, grace_us: int) -> list[int]:
        """Return ids of some removed streams that neither a query, a listed file nor the base plan names."""
        until_us = self._now_us() - grace_us
        found = list(connection.scalars(_GONE_STREAMS, {"until_us": until_us}))
        if not found:
            return []
        plan = self._control_log.plan(base) if base else None
        named = set() if plan is None else {stream.id for stream in plan.streams}
        # For a query over more than two streams, the table's columns name only two of them.
        for text in connection.scalars(select(_q.document).where(_q.document.contains(OF_MANY))):
            named |= {side.stream_id for side in stream_sides(decode(Query, text))}
        return [stream_id for stream_id in found if stream_id not in named][:ASKED_AT_ONCE]


def _drop_queries(connection: Connection, ids: Sequence[int]) -> int:
    """Drop queries; if the series of a query stays, add the query's totals to the series' first query."""
    # SQLite binds at most 32,766 parameters in one statement.
    for start in range(0, len(ids), 1000):
        some = ids[start : start + 1000]
        _keep_totals(connection, some, set(ids))
        connection.execute(delete(tables.query_totals).where(_totals.query_id.in_(some)))
        connection.execute(delete(tables.queries).where(_q.id.in_(some)))
    return len(ids)


def _keep_totals(connection: Connection, ids: Sequence[int], gone: Collection[int]) -> None:
    """Add the totals of dropped queries to their series' first query, if this query stays."""
    for row in connection.execute(_TOTALS_OF.where(_q.id.in_(ids), _totals.query_id.is_not(None))).all():
        if row.series in gone:
            continue
        first = connection.execute(_TOTALS_OF.where(_q.id == row.series)).one()
        if first.query_id is None:
            connection.execute(
                insert(tables.query_totals).values(
                    query_id=row.series,
                    rows=row.rows,
                    dropped=row.dropped,
                    dropped_batch=row.dropped_batch,
                    dropped_of_batch=row.dropped_of_batch,
                )
            )
            continue
        later = row if first.dropped_batch is None or row.dropped_batch > first.dropped_batch else first
        connection.execute(
            update(tables.query_totals)
            .where(_totals.query_id == row.series)
            .values(
                rows=first.rows + row.rows,
                dropped=first.dropped + row.dropped,
                dropped_batch=later.dropped_batch,
                dropped_of_batch=later.dropped_of_batch,
            )
        )
