"""The control log: plan versions and messages about streams, numbered 1, 2, ... in commit order.

The control log is an input of the job like any stream: an offset names a position in the log, and a replayed
batch reads the same records again. A record never changes once it is appended, so a reader may cache it.
Records and plans that no batch can replay are pruned (``store.pruning``). The newest record and the newest
plan always stay, so that record and version numbers continue without gaps.

A plan is stored whole, or as its difference from the previous version (``documents.plan_differences``):

    version   1      2      3     ...   64    65           the oldest kept version is always stored whole
    stored    whole  +q9    -q4         +q70  whole
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from catalog.documents.codec import decode, encode
from catalog.documents.plan_differences import PlanDifference, applied, difference
from catalog.errors import InvariantBroken, PlanVersionNotFound
from catalog.store.database import tables
from catalog.store.database.database import Database
from catalog.store.database.repository import Repository
from catalog.values.control import ControlRecord, Heartbeat, Horizon, Promises, Pull
from catalog.values.plan import Plan

#: Distance between plan versions that are stored whole; a reader of a version therefore applies fewer
#: differences than this.
WHOLE_EVERY = 64
# Number of decoded plans that a process caches: a batch needs one or two of them, and a restart needs the
# plans of the few batches that it replays.
_PLANS_KEPT = 32

_l = tables.control_log.c
_p = tables.plans.c
_HEAD = select(func.coalesce(func.max(_l.seq), 0))
_RECORDS = (
    select(
        _l.seq,
        _l.at_batch,
        _l.plan_version,
        _l.heartbeat_stream_id,
        _l.heartbeat_watermark_us,
        _l.promises,
        _l.pulled_query,
        _l.horizon_us,
    )
    .where(_l.seq > bindparam("after_seq"), _l.seq <= bindparam("up_to"))
    .order_by(_l.seq)
    .limit(bindparam("limit"))
)
_VERSION_AT = select(func.max(_p.version)).where(_p.seq <= bindparam("seq"))
_LATEST_VERSION = select(func.max(_p.version))
_HORIZON = select(func.max(_l.horizon_us)).where(_l.heartbeat_stream_id == bindparam("stream"))
_DOCUMENT = select(_p.document, _p.base).where(_p.version == bindparam("version"))
_WHOLE = select(func.max(_p.version)).where(_p.base.is_(None), _p.version <= bindparam("version"))

_NO_LIMIT = 2**62


class ControlLogRepository(Repository):
    """The control log, and the plans in it."""

    def __init__(self, database: Database, now_us: Callable[[], int]) -> None:
        super().__init__(database, now_us)
        self._plans: OrderedDict[int, Plan] = OrderedDict()
        self._plans_lock = threading.Lock()

    def append(
        self,
        *,
        plan: Plan | None = None,
        heartbeat: Heartbeat | None = None,
        promises: Promises | None = None,
        pull: Pull | None = None,
        horizon: Horizon | None = None,
        at_batch: int | None = None,
    ) -> ControlRecord:
        """Append a record; exactly one of plan, heartbeat, promises, pull and horizon is given.

        Args:
            plan: The plan version that follows the latest one.
            heartbeat: A heartbeat.
            promises: Punctuations.
            pull: A request for result punctuations.
            horizon: A horizon.
            at_batch: First batch that may read the record; None for the next batch.

        Returns:
            The record with its number.

        Raises:
            InvariantBroken: The plan's version does not follow the latest version.
        """
        with self._database.write() as connection:
            seq = connection.execute(_HEAD).scalar_one() + 1
            record = ControlRecord(seq, at_batch, plan, heartbeat, promises, pull, horizon)
            of = heartbeat or promises or pull or horizon
            now_us = self._now_us()
            if plan is not None:
                latest = connection.execute(_LATEST_VERSION).scalar() or 0
                if plan.version != latest + 1:
                    raise InvariantBroken(
                        f"plan version {plan.version} does not follow version {latest}",
                        hint="Build the plan inside the transaction that appends it.",
                    )
                base, document = self._document(connection, plan)
                connection.execute(
                    insert(tables.plans).values(
                        version=plan.version, seq=seq, base=base, document=document, created_at_us=now_us
                    )
                )
            connection.execute(
                insert(tables.control_log).values(
                    seq=seq,
                    at_batch=at_batch,
                    plan_version=plan.version if plan is not None else None,
                    pulled_query=None if pull is None else pull.query_id,
                    heartbeat_stream_id=None if of is None else of.stream_id,
                    heartbeat_watermark_us=heartbeat.watermark_us if heartbeat is not None else None,
                    created_at_us=now_us,
                    promises=None if promises is None else encode(promises).decode(),
                    horizon_us=None if horizon is None else horizon.time_us,
                )
            )
            if plan is not None:
                self._remember(plan)
        return record

    def head(self) -> int:
        """Return the number of the last record, or 0 if the log is empty."""
        with self._database.read() as connection:
            return int(connection.execute(_HEAD).scalar_one())

    def records(
        self, after_seq: int, up_to: int | None = None, limit: int = 1000
    ) -> tuple[ControlRecord, ...]:
        """Return records in order.

        Args:
            after_seq: Number of the record before the first one to return.
            up_to: Number of the last record to return; None for the last record of the log.
            limit: Most entries that are returned.

        Returns:
            The records with ``after_seq < seq <= up_to``.
        """
        bounds = {"after_seq": after_seq, "up_to": _NO_LIMIT if up_to is None else up_to, "limit": limit}
        with self._database.read() as connection:
            return tuple(self._record(connection, row) for row in connection.execute(_RECORDS, bounds).all())

    def horizon(self, stream_id: int) -> int | None:
        """Return the greatest horizon of a stream in the log, µs UTC; None if the log has none."""
        with self._database.read() as connection:
            found = connection.execute(_HORIZON, {"stream": stream_id}).scalar()
        return None if found is None else int(found)

    def plan_at(self, seq: int) -> Plan | None:
        """Return the plan in force after all records of the log up to a given one have taken effect.

        Args:
            seq: Number of the given record.

        Returns:
            The plan, or None if there was no plan yet.
        """
        with self._database.read() as connection:
            version = connection.execute(_VERSION_AT, {"seq": seq}).scalar()
            return None if version is None else self._plan(connection, version)

    def latest_plan(self) -> Plan | None:
        """Return the newest plan, even if no batch has read it yet, or None if there is no plan."""
        with self._database.read() as connection:
            version = connection.execute(_LATEST_VERSION).scalar()
            return None if version is None else self._plan(connection, version)

    def plan(self, version: int) -> Plan:
        """Return a plan.

        Args:
            version: Version of the plan.

        Returns:
            The plan.

        Raises:
            PlanVersionNotFound: The version does not exist or is no longer kept.
        """
        with self._database.read() as connection:
            return self._plan(connection, version)

    def kept_plan(self, version: int) -> Plan | None:
        """Return a plan, or None if it is no longer kept (``catalog.store.pruning``)."""
        with self._database.read() as connection:
            if connection.execute(_DOCUMENT, {"version": version}).first() is None:
                return None
            return self._plan(connection, version)

    def make_whole(self, version: int) -> None:
        """Store a plan whole, so that earlier plans may be dropped.

        Args:
            version: Version of the plan; nothing changes if it does not exist or is already stored whole.
        """
        with self._database.write() as connection:
            row = connection.execute(_DOCUMENT, {"version": version}).first()
            if row is not None and row.base is not None:
                whole = encode(self._plan(connection, version)).decode()
                changed = update(tables.plans).where(_p.version == version)
                connection.execute(changed.values(base=None, document=whole))

    def _document(self, connection: Connection, plan: Plan) -> tuple[int | None, str]:
        """Return (base version, JSON text) to store for a plan; the base is None if it is stored whole."""
        whole = connection.execute(_WHOLE, {"version": plan.version}).scalar()
        if whole is None or plan.version - whole >= WHOLE_EVERY:
            return None, encode(plan).decode()
        before = self._plan(connection, plan.version - 1)
        return before.version, encode(difference(before, plan)).decode()

    def _record(self, connection: Connection, row: Row[*tuple[Any, ...]]) -> ControlRecord:
        """Return the record of a row of ``_RECORDS``."""
        if row.plan_version is not None:
            return ControlRecord(row.seq, row.at_batch, plan=self._plan(connection, row.plan_version))
        if row.promises is not None:
            return ControlRecord(row.seq, row.at_batch, promises=decode(Promises, row.promises))
        if row.pulled_query is not None:
            pull = Pull(row.pulled_query, row.heartbeat_stream_id)
            return ControlRecord(row.seq, row.at_batch, pull=pull)
        if row.horizon_us is not None:
            return ControlRecord(
                row.seq, row.at_batch, horizon=Horizon(row.heartbeat_stream_id, row.horizon_us)
            )
        heartbeat = Heartbeat(row.heartbeat_stream_id, row.heartbeat_watermark_us)
        return ControlRecord(row.seq, row.at_batch, heartbeat=heartbeat)

    def _plan(self, connection: Connection, version: int) -> Plan:
        """Return the plan of a version, from the cache if possible."""
        if (kept := self._kept(version)) is not None:
            return kept
        row = connection.execute(_DOCUMENT, {"version": version}).first()
        if row is None:
            if 0 < version < (connection.execute(_LATEST_VERSION).scalar() or 0):
                raise PlanVersionNotFound(
                    f"plan version {version} is not kept any more",
                    detail="Plans are removed once no repeated batch can need them.",
                    hint="GET /api/v1/plan/versions lists the versions that are kept.",
                )
            raise PlanVersionNotFound(f"plan version {version} does not exist")
        changes: list[PlanDifference] = []
        while row.base is not None:
            changes.append(decode(PlanDifference, row.document))
            if (kept := self._kept(row.base)) is not None:
                break
            row = connection.execute(_DOCUMENT, {"version": row.base}).one()
        plan = decode(Plan, row.document) if kept is None else kept
        for change in reversed(changes):
            plan = applied(plan, change)
        self._remember(plan)
        return plan

    def _kept(self, version: int) -> Plan | None:
        with self._plans_lock:
            kept = self._plans.get(version)
            if kept is not None:
                self._plans.move_to_end(version)
            return kept

    def _remember(self, plan: Plan) -> None:
        """Cache a plan after its transaction commits; after a rollback, another plan gets its version."""

        def remember() -> None:
            with self._plans_lock:
                self._plans[plan.version] = plan
                while len(self._plans) > _PLANS_KEPT:
                    self._plans.popitem(last=False)

        self._database.after_commit(remember)
