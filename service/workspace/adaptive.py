"""The adaptive objective: ``cpu-opt`` chains are planned again once statistics have changed.

    manifests ── measured profile ──┬── cost of the chain in force ─┐
                                    └── cpu-opt ── cost of the best ┴── worth_migrating ── a plan version
    slices ── rows, segments, bytes to move ── price of the migration ──┘

The chain in force is the best one for the statistics it was planned with. The price of a migration is paid
once, and the gain accrues every second. So a family is planned again when the gain

* is at least a given fraction of the cost of the chain in force (hysteresis: a smaller gain may be noise),
* pays for the migration within a horizon,
* and appears in several consecutive checks, which a gain from noise rarely does.

Statistics are ignored if the job did not measure them, or if they are old or come from few batches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from catalog.values.calibration import Calibration
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import FamilyPlan, JoinPlan, Plan
from catalog.values.statistics import Profile
from planner.costs.cost import CostModelName
from planner.costs.cost_models import CostModels
from planner.costs.rates import FamilyRates, family_rates, with_plan
from planner.explain.explain import terms
from planner.families.families import Family
from planner.strategies.strategies import STRATEGIES
from service.config.calibration import calibration_of
from service.config.settings import AdaptiveSettings
from service.planning.migrating.migration_price import Moved, migration_price, moved_by
from service.planning.versions import Versions
from service.statistics.profile import profile_from, recent_manifests

log = logging.getLogger(__name__)

#: Number of consecutive checks that must agree. It is also the number of checks per interval, so new plans
#: are at least an interval apart.
LOOKS = 3

_US_PER_S = 1_000_000

Reason = Literal["nothing is cheaper", "gain too small", "does not pay", "pays"]


@dataclass(frozen=True, slots=True)
class Replanning:
    """Decision whether a chain should be replaced, with the numbers behind it.

    Attributes:
        migrate: Whether the chain should be replaced.
        reason: Reason of the decision.
        in_force_per_s: Cost of the chain in force, in the deciding model's unit per second of event time.
        best_per_s: Cost of the best chain, in the unit of ``in_force_per_s``.
        gain: Fraction of the present cost that is saved.
        saved: Cost that is saved within the horizon.
        price: One-time cost of the migration, in the deciding model's unit.
    """

    migrate: bool
    reason: Reason
    in_force_per_s: float
    best_per_s: float
    gain: float
    saved: float
    price: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """A family's best chain under the present statistics.

    Attributes:
        family: The family as planned.
        joins: Joins that ``cpu-opt`` chooses now.
        moved: Rows that would have to move.
        decision: Whether the migration is worthwhile.
    """

    family: FamilyPlan
    joins: tuple[JoinPlan, ...]
    moved: Moved
    decision: Replanning


def worth_migrating(
    in_force_per_s: float, best_per_s: float, price: float, policy: AdaptiveSettings
) -> Replanning:
    """Decide whether a cheaper chain is worth its migration.

    Args:
        in_force_per_s: Cost of the chain in force per second of event time.
        best_per_s: Cost of the best chain.
        price: One-time cost of the migration, in the unit of the other costs.
        policy: Hysteresis and horizon.

    >>> worth_migrating(0.12, 0.08, 1.0, AdaptiveSettings(horizon_s=600)).reason
    'pays'
    >>> worth_migrating(0.12, 0.118, 1.0, AdaptiveSettings(min_gain=0.05)).reason
    'gain too small'
    >>> worth_migrating(0.12, 0.08, 1.0, AdaptiveSettings(horizon_s=10)).reason
    'does not pay'
    """
    saved_per_s = in_force_per_s - best_per_s
    gain = saved_per_s / in_force_per_s if in_force_per_s > 0 else 0.0
    saved = saved_per_s * policy.horizon_s
    reason: Reason = "pays"
    if saved_per_s <= 0:
        reason = "nothing is cheaper"
    elif gain < policy.min_gain:
        reason = "gain too small"
    elif saved <= price:
        reason = "does not pay"
    return Replanning(reason == "pays", reason, in_force_per_s, best_per_s, gain, saved, price)


@dataclass(frozen=True, slots=True)
class Prices:
    """Cost models and constants for decisions.

    Attributes:
        models: The two models, and which of them decides.
        constants: Constants of this machine, for pricing migrations.
    """

    models: CostModels
    constants: Calibration

    def cost_per_s(self, family: FamilyPlan, rates: FamilyRates) -> float:
        """Return the cost of a family with its present joins, by the deciding model."""
        cost = self.models.family_cost(family, rates)
        return terms(cost, self.models.objective).total


def proposal(
    plan: Plan,
    family: FamilyPlan,
    rates: FamilyRates,
    prices: Prices,
    slices: Iterable[SliceCounters],
    policy: AdaptiveSettings,
) -> Proposal:
    """Plan one family again under the present statistics and decide whether a migration is worthwhile.

    Args:
        plan: Plan in force.
        family: One of its families.
        rates: Present statistics of the family.
        prices: Cost models and constants.
        slices: Counters of the slices after the last batch.
        policy: Hysteresis and horizon.
    """
    unplanned = Family(family.id, family.queries, family.filters_a, family.filters_b)
    wanted = replace(family, joins=STRATEGIES["cpu-opt"](unplanned, rates, prices.models.deciding))
    moved = Moved()
    if wanted.joins != family.joins:
        moved = moved_by(plan, wanted, slices)
    price = migration_price(moved, prices.models.objective, prices.constants)
    decision = worth_migrating(
        prices.cost_per_s(family, rates), prices.cost_per_s(wanted, rates), price, policy
    )
    return Proposal(family, wanted.joins, moved, decision)


def is_known(rates: FamilyRates, *, oldest_us: int) -> bool:
    """Return whether the job measured every number of a family at ``oldest_us`` or later."""
    sides = (rates.a, rates.b)
    measures = [m for side in sides for m in (side.rate, side.row_bytes, *side.selectivity.values())]
    measures += [rates.join_selectivity, rates.batch_s]
    return all(m.origin == "measured" and m.at_us is not None and m.at_us >= oldest_us for m in measures)


@dataclass(slots=True)
class Replanner:
    """Checks ``cpu-opt`` families repeatedly and counts the consecutive checks that found a gain.

    Attributes:
        policy: Conditions under which a gain is worth a migration.
    """

    policy: AdaptiveSettings
    # By family id: the joins in force, and how many consecutive checks have proposed to replace them.
    _agreed: dict[str, tuple[tuple[JoinPlan, ...], int]] = field(default_factory=dict)

    def consider(
        self, plan: Plan, profile: Profile, prices: Prices, slices: Sequence[SliceCounters], *, now_us: int
    ) -> tuple[Proposal, ...]:
        """Check all families once; return proposals for the families that should be planned again now.

        Args:
            plan: Plan in force.
            profile: Measured statistics.
            prices: Cost models and constants.
            slices: Counters of the slices.
            now_us: Wall clock, µs UTC.
        """
        oldest_us = now_us - round(self.policy.max_age_s * _US_PER_S)
        agreed, ripe = {}, []
        profile = with_plan(profile, plan)
        for family in plan.families:
            if family.strategy != "cpu-opt" or family.given:
                continue  # A chain that was cut by hand does not change.
            rates = family_rates(family, family.stream_a, family.stream_b, profile)
            if not is_known(rates, oldest_us=oldest_us):
                continue
            found = proposal(plan, family, rates, prices, slices, self.policy)
            if not found.decision.migrate:
                continue
            joins, looks = self._agreed.get(family.id, (family.joins, 0))
            # The count begins again if the chain in force has changed for any reason.
            looks = looks + 1 if joins == family.joins else 1
            agreed[family.id] = (family.joins, looks)
            if looks >= LOOKS:
                ripe.append(found)
        self._agreed = agreed
        return tuple(ripe)


@dataclass(slots=True)
class Adaptive:
    """Plans families again while a service runs; called from the watcher's loop.

    Attributes:
        store: Catalog.
        versions: Plans and logs the new version.
        policy: Conditions under which a gain is worth a migration.
    """

    store: Store
    versions: Versions
    policy: AdaptiveSettings
    _replanner: Replanner = field(init=False)
    _looked_us: int | None = None
    _last_batch: int = -1

    def __post_init__(self) -> None:
        self._replanner = Replanner(self.policy)

    def run_once(self, now_us: int) -> Plan | None:
        """Check the families if a check is due; return the resulting plan version, or None.

        Args:
            now_us: Wall clock, µs UTC.

        Raises:
            SluiceError: The catalog cannot be used, or its queries cannot be planned.
        """
        since_us = self._looked_us
        if since_us is not None and now_us - since_us < self.policy.interval_s * _US_PER_S / LOOKS:
            return None
        plan = self.store.control_log.latest_plan()
        if plan is None or all(f.strategy != "cpu-opt" for f in plan.families):
            return None
        manifests = recent_manifests(self.store)
        # A check needs a new batch that ran under the newest plan.
        if (
            not manifests
            or manifests[-1].batch == self._last_batch
            or manifests[-1].plan_version != plan.version
        ):
            return None
        self._looked_us, self._last_batch = now_us, manifests[-1].batch
        if _with_input(manifests) < self.policy.min_batches:
            return None
        constants = calibration_of(self.store)
        prices = Prices(self.versions.objective.models(constants), constants)
        profile = profile_from(self.store, manifests, now_us=now_us)
        ripe = self._replanner.consider(plan, profile, prices, manifests[-1].slices, now_us=now_us)
        return self._append(plan, ripe, profile, prices) if ripe else None

    def _append(self, plan: Plan, ripe: Sequence[Proposal], profile: Profile, prices: Prices) -> Plan | None:
        cause = cause_of(ripe, prices.models.objective)
        with self.store.transaction():
            latest = self.store.control_log.latest_plan()
            if latest is None or latest.version != plan.version:
                return None  # The plan was changed meanwhile; the next check examines the new plan.
            appended = self.versions.append(
                [record.query for record in self.store.queries.running()],
                latest,
                prices.constants,
                cause=cause,
                actor="service",
                profile=profile,
                replanned=frozenset(p.family.id for p in ripe),
            )
        log.info("plan adapted", extra={"plan_version": appended.version, "cause": cause})
        return appended


def cause_of(proposals: Sequence[Proposal], objective: CostModelName) -> str:
    """Describe the new plan, for the plan's history."""
    before = sum(p.decision.in_force_per_s for p in proposals)
    after = sum(p.decision.best_per_s for p in proposals)
    rows = sum(p.moved.rows for p in proposals)
    if objective == "paper":
        predicted = f"{before:,.0f} to {after:,.0f} comparisons/s"
    else:
        predicted = f"{before:.3g} to {after:.3g} CPU s/s"
    return f"adaptive: predicted {predicted}, moves {rows:,.0f} rows"


def _with_input(manifests: Iterable[BatchManifest]) -> int:
    return sum(any(s.rows for s in manifest.streams) for manifest in manifests)
