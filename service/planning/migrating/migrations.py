"""Requested migrations: another objective, splits and merges, a clean-up, a rollback.

    request ── resolved: objective, boundaries that stay ── dry run: steps, rows, costs before and after
                                                        └── real: a plan version ── outcome, once active

A migration is one plan version. A version that cannot run is detected before it enters the control log: the
migration is recorded as failed, and the former version stays in force.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from catalog.errors import InternalError, error_path
from catalog.values.calibration import Calibration
from catalog.values.migration import Migration, MigrationRecord
from catalog.values.plan import Plan
from catalog.values.query import Query
from planner.build.objective import Objective
from planner.build.transitions.diff import diff
from planner.build.transitions.retained_boundaries import NO_BOUNDARIES, given_families, kept_families
from planner.explain.documents.primitive_document import short_documents
from planner.explain.explain import FamilyReport
from planner.explain.preview import Preview, explain_plan, moved, preview
from planner.families.texts.family_names import by_family
from service.config.calibration import calibration_of
from service.documents.migration_document import MigrationRequest
from service.errors import PlanRefused
from service.planning.changes import expect
from service.planning.migrating.migration_outcome import outcome_of
from service.planning.migrating.resolve_migration import Wanted, resolve_migration
from service.planning.preview import held_bytes, held_rows
from service.planning.versions import LEFT_AT_SETTING, Versions

log = logging.getLogger(__name__)

MigrationState = Literal["pending", "active", "failed"]

#: Maximum number of migrations whose outcomes are looked up at a time.
_LOOKED_AT = 100


@dataclass(frozen=True, slots=True)
class MigrationDryRun:
    """Expected effect of a migration.

    Attributes:
        preview: The plan, its steps, the rows to move, and its cost.
        before: Costs of the plan in force, by the same statistics.
    """

    preview: Preview
    before: tuple[FamilyReport, ...]


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A migration and its state.

    Attributes:
        record: The migration, with its outcome once it is active.
        state: State of the migration.
    """

    record: MigrationRecord
    state: MigrationState


@dataclass(frozen=True, slots=True)
class Policy:
    """Objective in force, and the time of the next clean-up.

    Attributes:
        objective: Strategies, pinned chains, and when chains shrink.
        cleanup_due_us: Wall clock of the next automatic clean-up, µs UTC, or None if none is scheduled.
    """

    objective: Objective
    cleanup_due_us: int | None


@dataclass(slots=True)
class Migrations:
    """Migrations of one service.

    Attributes:
        versions: Plans new versions and appends them to the control log.
    """

    versions: Versions
    # Number of the control log's last record when the outcomes of all migrations were last complete.
    _settled_at: int = -1

    def dry_run(self, request: MigrationRequest, *, if_match: int | None = None) -> MigrationDryRun:
        """Return the effect that a migration would have; change nothing.

        Raises:
            InvalidInput: See `resolve_migration`.
            StalePlanVersion: The newest plan is not ``if_match``.
            PlanRefused: The resulting version cannot run.
        """
        store = self.versions.store
        previous = expect(store, if_match)
        queries = [record.query for record in store.queries.running()]
        wanted = self._wanted(request, previous, queries)
        calibration = calibration_of(store)
        found = self._preview(wanted, queries, previous, calibration)
        self.versions.try_version(previous, found.plan)
        before: Mapping[str, FamilyReport] = {}
        if previous is not None:
            before = explain_plan(previous, found.profile, wanted.objective.models(calibration))
        return MigrationDryRun(found, tuple(before.values()))

    def migrate(
        self, request: MigrationRequest, *, actor: str, if_match: int | None = None
    ) -> MigrationStatus:
        """Make the plan version that a request leads to; arguments and errors as for ``migrating``."""
        with self.migrating(request, actor=actor, if_match=if_match) as status:
            return status

    @contextmanager
    def migrating(
        self, request: MigrationRequest, *, actor: str, if_match: int | None = None
    ) -> Iterator[MigrationStatus]:
        """Make the plan version that a request leads to, in a transaction that includes the block.

        Sampling is done before the transaction, and a failed migration is recorded after it.

        Args:
            request: The requested migration.
            actor: Author of the request, for the history.
            if_match: Plan version that must be the newest one; None accepts any.

        Yields:
            The migration as it was logged.

        Raises:
            InvalidInput: See `resolve_migration`.
            StalePlanVersion: The newest plan is not ``if_match``.
            PlanRefused: The version cannot run; the migration is recorded as failed.
        """
        try:
            self._sample(request)
            self.versions.load()
            with self.versions.store.transaction():
                status = self._migrate(request, actor, if_match)
                yield status
        except (PlanRefused, InternalError) as error:
            migration = Migration(
                dict(request.written), request.cause, error=error.primary, error_code=error.code
            )
            failed = self.versions.store.migrations.add(migration, None, actor)
            log.warning("migration failed", extra={"migration": failed.id, "code": error.code})
            error.hint = (
                f"The former version stays in force. GET /api/v1/migrations/{failed.id} keeps this error."
            )
            raise
        facts = {"migration": status.record.id, "plan_version": status.record.plan_version}
        log.info("migration logged", extra=facts)

    def status(self, migration_id: int) -> MigrationStatus:
        """Return a migration and its state.

        Raises:
            MigrationNotFound: No migration has that id.
        """
        return self._status(self.versions.store.migrations.get(migration_id))

    def statuses(self, after: int, limit: int) -> tuple[MigrationStatus, ...]:
        """Return the migrations after id ``after``, in order of id."""
        return tuple(self._status(record) for record in self.versions.store.migrations.page(after, limit))

    def policy(self) -> Policy:
        """Return the objective in force."""
        objective = self.versions.objective
        return Policy(objective, self._due_us(objective))

    def tick(self, now_us: int) -> Plan | None:
        """Store the outcomes of active migrations, and clean up chains when a clean-up is due.

        Args:
            now_us: Wall clock, µs UTC.

        Returns:
            The plan version of a clean-up, or None if no clean-up was due.
        """
        self._settle()
        due_us = self._due_us(self.versions.objective)
        if due_us is None or now_us < due_us:
            return None
        store = self.versions.store
        with store.transaction():
            objective = self.versions.objective
            # Check again under the lock: a query may have left meanwhile, or the policy may have changed.
            due_us = self._due_us(objective)
            if due_us is None or now_us < due_us:
                return None
            store.settings.set(LEFT_AT_SETTING, None)
            previous = store.control_log.latest_plan()
            queries = [record.query for record in store.queries.running()]
            if not objective.left(previous, queries):
                return None
            plan = self.versions.append(
                queries,
                previous,
                calibration_of(store),
                cause="cleanup",
                replanned=given_families(previous),
                left=NO_BOUNDARIES,
            )
        log.info("chains cleaned up", extra={"plan_version": plan.version})
        return plan

    def _sample(self, request: MigrationRequest) -> None:
        """Sample the statistics that a strategy weighs and cache them, so that the lock is held briefly."""
        if request.strategy is not None or request.family_strategies:
            auto = self.versions.objective.partitioning == "auto"
            queries = [record.query for record in self.versions.store.queries.running()]
            self.versions.statistician.profile(queries, samples=auto)

    def _migrate(self, request: MigrationRequest, actor: str, if_match: int | None) -> MigrationStatus:
        """Plan and log the version, inside a transaction."""
        store = self.versions.store
        previous = expect(store, if_match)
        queries = [record.query for record in store.queries.running()]
        wanted = self._wanted(request, previous, queries)
        self.versions.objective = wanted.objective
        plan = self.versions.append(
            queries,
            previous,
            calibration_of(store),
            cause=request.cause,
            actor=actor,
            replanned=wanted.replanned,
            left=wanted.left,
        )
        planned = self._planned(request, previous, plan)
        return MigrationStatus(store.migrations.add(planned, plan.version, actor), "pending")

    def _wanted(self, request: MigrationRequest, previous: Plan | None, queries: Sequence[Query]) -> Wanted:
        """Resolve a request; the families that it names must exist."""
        for field, named in (
            ("family_strategies", request.family_strategies),
            ("family_probes", request.family_probes),
            ("family_punctuations", request.family_punctuations),
        ):
            with error_path(field):
                by_family(named, queries)
        return resolve_migration(request, self.versions.objective, previous, queries, self.versions.store)

    def _planned(self, request: MigrationRequest, previous: Plan | None, plan: Plan) -> Migration:
        steps = diff(previous, plan)
        shown, left_out = short_documents(previous, plan, steps)
        store = self.versions.store
        rows, size = moved(previous, held_rows(store, previous), steps), None
        if rows is not None:
            size = moved(previous, held_bytes(store, previous), steps)
        return Migration(
            request=dict(request.written),
            cause=request.cause,
            primitives=tuple(shown),
            primitives_left_out=left_out,
            families=tuple(sorted({step.family for step in steps})),
            rows_to_move=None if rows is None else round(rows),
            bytes_to_move=None if size is None else round(size),
        )

    def _preview(
        self, wanted: Wanted, queries: Sequence[Query], previous: Plan | None, calibration: Calibration
    ) -> Preview:
        store = self.versions.store
        return preview(
            queries,
            {s.id: s for s in store.streams.all()},
            previous,
            objective=wanted.objective,
            calibration=calibration,
            profile=self.versions.statistician.profile(
                queries, samples=wanted.objective.weighs_keys(previous, queries, wanted.replanned)
            ),
            held=held_rows(store, previous),
            held_bytes=held_bytes(store, previous),
            left=wanted.left,
            keep=kept_families(previous, wanted.replanned),
        )

    def _status(self, record: MigrationRecord) -> MigrationStatus:
        if record.plan_version is None:
            return MigrationStatus(record, "failed")
        if record.migration.outcome is None:
            outcome = outcome_of(self.versions.store, record)
            if outcome is None:
                return MigrationStatus(record, "pending")
            record = replace(record, migration=replace(record.migration, outcome=outcome))
        return MigrationStatus(record, "active")

    def _settle(self) -> None:
        """Store the outcomes of migrations while the batches that show them still exist."""
        store, whole = self.versions.store, True
        # Read the head first, so that a migration that a process logs meanwhile is examined next time.
        head = store.control_log.head()
        if head == self._settled_at:
            return
        for record in store.migrations.unsettled(_LOOKED_AT):
            outcome = outcome_of(store, record)
            if outcome is None:
                whole = False
            else:
                store.migrations.settle(record.id, replace(record.migration, outcome=outcome))
        self._settled_at = head if whole else -1

    def _due_us(self, objective: Objective) -> int | None:
        if objective.on_leave.policy != "after":
            return None
        left_at = self.versions.store.settings.get(LEFT_AT_SETTING)
        return left_at + objective.on_leave.after_us if isinstance(left_at, int) else None
