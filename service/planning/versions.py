"""Plan versions: every change of the shared plan is planned, tried and logged here, one after another.

    queries, objective, statistics ── build_plan ── dry_run ── control log + history

The API, the adaptive objective and `sluice run` go the same way, so that what is tried before it is logged is
the same for all.

The objective in force is the catalog's:

    settings (per service)  <  workload file  <  migration  <  request or option        the later one rules
    a family's own strategy rules over the general one, wherever it comes from

A migration changes the objective in force, which the catalog keeps (setting ``objective``): it survives a
restart with the same settings; settings whose strategies, probe or memory differ from those of the last start
rule again. Cost model, C_sys, partitioning and the limit of memory are always those of the settings, or of
the workload.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue

from catalog.clock import wall_clock_us
from catalog.documents.codec import decode, encode
from catalog.errors import SluiceError
from catalog.store.repositories.plan_history import HistoryEntry
from catalog.store.store import Store
from catalog.values.calibration import Calibration
from catalog.values.migration import OnLeave
from catalog.values.plan import Boundaries, Plan, Strategy
from catalog.values.policies.memory import AskedMemory
from catalog.values.policies.probe import AskedProbe
from catalog.values.policies.punctuation_policy import PunctuationPolicy
from catalog.values.query import Query
from catalog.values.statistics import Profile
from planner.build.build_plan import build_plan, chooses_band
from planner.build.diff import diff
from planner.build.objective import Objective
from planner.build.retained_boundaries import ByFamily, boundaries_of, kept_families
from planner.explain.primitive_document import short_documents
from planner.probes.asked_probe import asked_probe
from service.config.calibration import calibration_of
from service.config.settings import PlanningSettings
from service.errors import PlanRefused
from service.planning.preview import Statistician
from service.sinks.webhook_targets import PUBLIC_TARGETS, WebhookTargets

if TYPE_CHECKING:
    from service.planning.dry_run import DryRun  # not at run time: see ``_loaded``

OBJECTIVE_SETTING = "objective"
#: When a query left last whose boundaries stay, µs UTC: a setting of the catalog, null once they are gone.
LEFT_AT_SETTING = "left_at_us"


@dataclass(frozen=True, slots=True)
class _Stored:
    """The objective as the catalog keeps it, with the strategies of the settings that it began with."""

    strategy: Strategy
    family_strategies: dict[str, Strategy]
    pinned: dict[str, Boundaries]
    on_leave: OnLeave
    settings_strategy: Strategy
    settings_family_strategies: dict[str, Strategy]
    probe: AskedProbe = "auto"
    family_probes: dict[str, AskedProbe] = field(default_factory=dict)
    settings_probe: AskedProbe = "auto"
    family_punctuations: dict[str, PunctuationPolicy] = field(default_factory=dict)
    oblivious_memory: AskedMemory = "auto"
    settings_oblivious_memory: AskedMemory = "auto"


def objective_of(planning: PlanningSettings) -> Objective:
    """Return the objective of a service.

    Raises:
        InvalidProbe: The way to search slices in the settings does not exist.
    """
    return Objective(
        planning.strategy,
        planning.family_strategies,
        planning.cost_model,
        planning.c_sys,
        partitioning=planning.partitioning,
        probe=asked_probe(planning.probe, planning.invalidation),
        oblivious_memory=planning.oblivious_memory,
        oblivious_memory_mb=planning.oblivious_memory_mb,
    )


def stored_objective(store: Store, base: Objective) -> Objective:
    """Return the objective in force.

    Args:
        store: The catalog.
        base: Objective of the settings, which rules where nothing was stored.
    """
    found = _stored(store)
    if found is None:
        return base
    return replace(
        base,
        strategy=found.strategy,
        family_strategies=found.family_strategies,
        pinned=found.pinned,
        on_leave=found.on_leave,
        probe=found.probe,
        family_probes=found.family_probes,
        family_punctuations=found.family_punctuations,
        oblivious_memory=found.oblivious_memory,
    )


def store_objective(store: Store, objective: Objective, base: Objective) -> None:
    """Put an objective in force, inside the transaction of the version that is planned for it.

    Args:
        store: The catalog.
        objective: The objective.
        base: Objective of the settings.
    """
    kept = _Stored(
        objective.strategy,
        dict(objective.family_strategies),
        dict(objective.pinned),
        objective.on_leave,
        base.strategy,
        dict(base.family_strategies),
        objective.probe,
        dict(objective.family_probes),
        base.probe,
        dict(objective.family_punctuations),
        objective.oblivious_memory,
        base.oblivious_memory,
    )
    store.settings.set(OBJECTIVE_SETTING, cast("JsonValue", json.loads(encode(kept))))


def take_settings(store: Store, base: Objective) -> bool:
    """Let settings override a stored objective if their strategies or probe changed since the last start.

    Args:
        store: The catalog.
        base: Objective of the settings.

    Returns:
        Whether they rule now although another objective was in force. Its pinned chains are given up then;
        ``on_leave`` and policies of punctuations, which no setting says, stay.
    """
    found = _stored(store)
    if found is None:
        return False
    before = (
        found.settings_strategy,
        found.settings_family_strategies,
        found.settings_probe,
        found.settings_oblivious_memory,
    )
    if before == (base.strategy, dict(base.family_strategies), base.probe, base.oblivious_memory):
        return False
    kept = replace(base, on_leave=found.on_leave, family_punctuations=found.family_punctuations)
    store_objective(store, kept, base)
    return True


def _stored(store: Store) -> _Stored | None:
    value = store.settings.get(OBJECTIVE_SETTING)
    return None if value is None else decode(_Stored, json.dumps(value))


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan version in the history, for good.

    It is compact, since a service makes thousands of versions: of the chains only those that were weighed or
    cut by hand, of the steps their short form.

    Attributes:
        strategy: Strategy of families without one of their own; None in a record from before they were kept.
        family_strategies: Strategies of families by name.
        chains: Boundaries of the families whose strategy weighs costs or whose chain was cut by hand, by id.
        changes: Steps from the version before, as JSON values.
        changes_left_out: Steps beyond those that are kept.
    """

    strategy: Strategy | None = None
    family_strategies: dict[str, Strategy] = field(default_factory=dict)
    chains: dict[str, Boundaries] = field(default_factory=dict)
    changes: tuple[dict[str, Any], ...] = ()
    changes_left_out: int = 0

    def encoded(self) -> str:
        """Return the record as JSON text."""
        return encode(self).decode()


def record_of(previous: Plan | None, plan: Plan, objective: Objective) -> PlanRecord:
    """Return what the history keeps of a version.

    Args:
        previous: The version before; None before the first.
        plan: The version.
        objective: What it was planned for.
    """
    changes, left_out = short_documents(previous, plan, diff(previous, plan))
    return PlanRecord(
        strategy=objective.strategy,
        family_strategies=dict(objective.family_strategies),
        chains={f.id: boundaries_of(f) for f in plan.families if f.given or f.strategy == "cpu-opt"},
        changes=tuple(changes),
        changes_left_out=left_out,
    )


def record_in(entry: HistoryEntry) -> PlanRecord:
    """Return the record of an entry of the history."""
    return decode(PlanRecord, entry.document)


@cache
def _loaded() -> type[DryRun]:
    """Load the dry run with the first version: the API answers before (``engine.engine``)."""
    from service.planning.dry_run import DryRun

    return DryRun


def _late_dry_run() -> Callable[[Plan | None, Plan], None]:
    """Return a dry run that is not loaded yet."""
    made = cache(lambda: _loaded()())
    return lambda previous, plan: made()(previous, plan)


@dataclass(slots=True)
class Versions:
    """Plans one version after another; call ``append`` inside a transaction of the catalog.

    Attributes:
        store: Takes the versions.
        statistician: Finds what strategies weigh.
        base: Objective of the settings (or the workload), in force until another one is set.
        try_out: Compiles and runs a version on a made-up row after the one before; raises if it cannot.
        now_us: Wall clock, µs UTC.
        webhook_targets: Where the webhooks of queries may go.
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
        """Plan all wanted queries and put the new version into the control log.

        Args:
            queries: All queries that run in the new version.
            previous: The newest version so far; None before the first.
            calibration: Constants of this machine.
            cause: What was changed, for the history.
            actor: Who changed it, for the history.
            at_batch: First batch that may admit it; None admits at once.
            profile: Statistics; None finds them where strategies weigh costs.
            replanned: Ids of families that are planned again although queries and strategy stay. All others
                keep their joins then: statistics are never the same again, and no chain should move because a
                query of another family came or went.
            left: Boundaries of departed queries that stay, by family id; None leaves it to the policy.

        Returns:
            The new version.

        Raises:
            PlanRefused: It cannot run; nothing was logged.
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
        """Append a version of the queries that run already; arguments and errors of ``append``."""
        queries = [record.query for record in self.store.queries.running()]
        return self.append(queries, previous, calibration_of(self.store), cause=cause, replanned=replanned)

    @staticmethod
    def load() -> None:
        """Load what tries versions; call it before the transaction of a change, in which others cannot write.

        It takes seconds in a process that has not done it, and many where kernels are not compiled yet: for
        the engine that would be a catalog that is away, and the lease would be lost.
        """
        _loaded()

    def try_version(self, previous: Plan | None, plan: Plan) -> None:
        """Refuse a version that cannot run.

        Raises:
            PlanRefused: Compiling it, or running it on a made-up row, failed.
        """
        try:
            self.try_out(previous, plan)
        except SluiceError:
            raise
        except Exception as error:
            raise PlanRefused(
                f"plan version {plan.version} cannot run",
                detail=f"{type(error).__name__}: {error}",
                hint="The former version goes on unchanged.",
            ) from error


def _departed(previous: Plan | None, plan: Plan) -> bool:
    running = {q.id for f in plan.families for q in f.queries}
    return previous is not None and any(q.id not in running for f in previous.families for q in f.queries)
