"""Plan versions: plans, tests and logs each change of the shared plan, one after another.

    queries, objective, statistics ── build_plan ── dry_run ── control log + history

The API, the adaptive objective and `sluice run` all use this module, so that every version is tried before it
is logged. The objective in force is the one stored in the catalog (``service.planning.records.objective``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from catalog.errors import SluiceError
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.calibration import Calibration
from catalog.values.plan import Plan
from catalog.values.query import Query
from catalog.values.statistics import Profile
from planner.build.build_plan import build_plan, chooses_band
from planner.build.objective import Objective
from planner.build.transitions.retained_boundaries import ByFamily, kept_families
from service.config.calibration import calibration_of
from service.errors import PlanRefused
from service.planning.preview import Statistician
from service.planning.records.objective import store_objective, stored_objective
from service.planning.records.plan_record import record_of
from service.sinks.webhook_targets import PUBLIC_TARGETS, WebhookTargets

if TYPE_CHECKING:
    # ``_loaded`` imports the class at run time.
    from service.planning.dry_run import DryRun

#: Catalog setting: time when a query with retained slice boundaries last departed, µs UTC, or null once these
#: boundaries are dropped.
LEFT_AT_SETTING = "left_at_us"


@cache
def _loaded() -> type[DryRun]:
    """Import the dry run only for the first version, so that the API starts sooner (``engine.engine``)."""
    from service.planning.dry_run import DryRun

    return DryRun


def _late_dry_run() -> Callable[[Plan | None, Plan], None]:
    """Return a dry run that is imported on first use."""
    made = cache(lambda: _loaded()())
    return lambda previous, plan: made()(previous, plan)


@dataclass(slots=True)
class Versions:
    """Plans one version after another; call ``append`` inside a transaction of the catalog.

    Attributes:
        store: Catalog for the versions.
        statistician: Supplies the statistics from which strategies compute costs.
        base: Objective from the settings (or the workload), used until another objective is set.
        try_out: Compiles a version as successor of the previous one and runs it on a synthetic row; raises an
            error on failure.
        now_us: Wall clock, µs UTC.
        webhook_targets: Allowed targets of the queries' webhooks.
    """

    store: Store
    statistician: Statistician
    base: Objective
    try_out: Callable[[Plan | None, Plan], None] = field(default_factory=_late_dry_run)
    now_us: Callable[[], int] = wall_clock_us
    webhook_targets: WebhookTargets = PUBLIC_TARGETS

    @property
    def objective(self) -> Objective:
        """Objective in force for the next version."""
        return stored_objective(self.store, self.base)

    @objective.setter
    def objective(self, objective: Objective) -> None:
        store_objective(self.store, objective, self.base)

    @property
    def next(self) -> int:
        """Number of the next version."""
        latest = self.store.control_log.latest_plan()
        return 1 if latest is None else latest.version + 1

    def append(
        self,
        queries: Sequence[Query],
        previous: Plan | None,
        calibration: Calibration,
        *,
        cause: str,
        actor: str = "service",
        at_batch: int | None = None,
        profile: Profile | None = None,
        replanned: Collection[str] = (),
        left: ByFamily | None = None,
    ) -> Plan:
        """Plan all queries and append the new version to the control log.

        Args:
            queries: All queries that run in the new version.
            previous: The latest version so far, or None before the first version.
            calibration: Constants of this machine.
            cause: Description of the change, for the history.
            actor: Author of the change, for the history.
            at_batch: First batch that may switch to the version, or None for the next batch.
            profile: Statistics, or None to collect them here if planning needs them.
            replanned: Ids of families to plan again even if their queries and strategy are unchanged. All
                other families keep their joins: statistics always change a little, and a chain must not
                change because a query of another family was added or removed.
            left: Slice boundaries of departed queries to keep, by family id, or None to apply the policy in
                force.

        Returns:
            The new version.

        Raises:
            PlanRefused: The version cannot run; it was not logged.
        """
        objective = self.objective
        streams = {s.id: s for s in self.store.streams.all()}
        if profile is None:
            keys = objective.weighs_keys(previous, queries, replanned)
            samples = keys or chooses_band(queries, streams, previous, replanned)
            weighs = samples or objective.weighs_costs()
            profile = self.statistician.profile(queries, samples=samples) if weighs else Profile()
        if left is None:
            left = objective.left(previous, queries)
        plan = build_plan(
            queries,
            streams,
            previous,
            objective=objective,
            calibration=calibration,
            profile=profile,
            left=left,
            keep=kept_families(previous, replanned),
        )
        self.try_version(previous, plan)
        seq = self.store.control_log.append(plan=plan, at_batch=at_batch).seq
        record = record_of(previous, plan, objective)
        self.store.plan_history.add(plan.version, seq, actor, cause, record.encoded())
        if objective.on_leave.policy == "after" and left and _departed(previous, plan):
            self.store.settings.set(LEFT_AT_SETTING, self.now_us())
        return plan

    def replan(self, previous: Plan | None, cause: str, *, replanned: Collection[str] = ()) -> Plan:
        """Append a new plan version for the running queries; arguments and errors as in ``append``."""
        queries = [record.query for record in self.store.queries.running()]
        return self.append(queries, previous, calibration_of(self.store), cause=cause, replanned=replanned)

    @staticmethod
    def load() -> None:
        """Import the dry run ahead of a change's transaction, which blocks other writers.

        The first import in a process takes seconds, and many seconds if kernels must be compiled. Inside a
        transaction, it would block the engine's writes for so long that the engine would lose its lease.
        """
        _loaded()

    def try_version(self, previous: Plan | None, plan: Plan) -> None:
        """Refuse a version that cannot run.

        Raises:
            PlanRefused: The version failed to compile, or to run on a synthetic row.
        """
        try:
            self.try_out(previous, plan)
        except SluiceError:
            raise
        except Exception as error:
            raise PlanRefused(
                f"plan version {plan.version} cannot run",
                detail=f"{type(error).__name__}: {error}",
                hint="The former version stays in force.",
            ) from error


def _departed(previous: Plan | None, plan: Plan) -> bool:
    running = {q.id for f in plan.families for q in f.queries}
    return previous is not None and any(q.id not in running for f in previous.families for q in f.queries)
