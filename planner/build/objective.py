"""Objective of plans: strategies, pinned chains, the cost model that decides, and partitioning.

strategy            cpu-opt              strategy of families without a strategy of their own
family_strategies   A.k = B.k: mem-opt   strategy of this family
pinned              <family id>: 15 s    boundaries of this family's chain, whatever its strategy
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from catalog.values.calibration import Calibration
from catalog.values.migration import OnLeave
from catalog.values.plan import Boundaries, Partitioning, Plan, Strategy
from catalog.values.policies.memory import AskedMemory
from catalog.values.policies.probe import AskedProbe
from catalog.values.policies.punctuation_policy import PunctuationPolicy
from catalog.values.query import Query
from planner.build.transitions.retained_boundaries import (
    NO_BOUNDARIES,
    ByFamily,
    kept_families,
    retained_boundaries,
)
from planner.costs.cost import CostModelName
from planner.costs.cost_models import CostModels
from planner.families.families import families
from planner.families.texts.family_names import by_family

T = TypeVar("T")

_NO_OWN: Mapping[str, Strategy | None] = MappingProxyType({})
_NO_PROBES: Mapping[str, AskedProbe | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Objective:
    """Strategies, pinned chains, cost model and partitioning for which plans are built.

    Attributes:
        strategy: Strategy of families without their own strategy.
        family_strategies: Strategies by family id or key (``A.k = B.k``).
        cost_model: Name of the cost model by which the planner chooses.
        c_sys: System overhead C_sys of the paper's model, in comparisons per row and slice.
        pinned: Boundaries of chains that users have set by hand, by family id.
        on_leave: When chains drop the boundaries of departed queries.
        partitioning: How the number of buckets that share the rows of a key is chosen (``hash``,
            ``replicate`` or ``auto``).
        probe: How slices are searched in families without their own setting.
        family_probes: How slices are searched in individual families, by family id or key.
        family_punctuations: When individual families act on closed keys, by family id or key.
        oblivious_memory: Requested memory policy of joins without windows: where their rows wait.
        oblivious_memory_mb: Memory limit of each family that joins without windows, in MB; None for no limit.
    """

    strategy: Strategy = "mem-opt"
    family_strategies: Mapping[str, Strategy] = field(default_factory=dict)
    cost_model: CostModelName = "calibrated"
    c_sys: float = 0.0
    pinned: Mapping[str, Boundaries] = field(default_factory=dict)
    on_leave: OnLeave = field(default_factory=OnLeave)
    partitioning: Partitioning = "auto"
    probe: AskedProbe = "auto"
    family_probes: Mapping[str, AskedProbe] = field(default_factory=dict)
    family_punctuations: Mapping[str, PunctuationPolicy] = field(default_factory=dict)
    oblivious_memory: AskedMemory = "auto"
    oblivious_memory_mb: float | None = None

    def changed(
        self,
        *,
        strategy: Strategy | None = None,
        family_strategies: Mapping[str, Strategy] | None = None,
        cost_model: CostModelName | None = None,
        c_sys: float | None = None,
        partitioning: Partitioning | None = None,
        probe: AskedProbe | None = None,
        oblivious_memory: AskedMemory | None = None,
        oblivious_memory_mb: float | None = None,
    ) -> Objective:
        """Return the objective with the given settings; None keeps a setting, and pinned chains stay."""
        limit = self.oblivious_memory_mb if oblivious_memory_mb is None else oblivious_memory_mb
        return replace(
            self,
            strategy=self.strategy if strategy is None else strategy,
            family_strategies={**self.family_strategies, **(family_strategies or {})},
            cost_model=self.cost_model if cost_model is None else cost_model,
            c_sys=self.c_sys if c_sys is None else c_sys,
            partitioning=self.partitioning if partitioning is None else partitioning,
            probe=self.probe if probe is None else probe,
            oblivious_memory=self.oblivious_memory if oblivious_memory is None else oblivious_memory,
            oblivious_memory_mb=limit,
        )

    def with_strategies(
        self,
        queries: Iterable[Query],
        *,
        strategy: Strategy | None = None,
        family_strategies: Mapping[str, Strategy | None] = _NO_OWN,
    ) -> tuple[Objective, frozenset[str]]:
        """Set strategies; each family whose strategy is set or removed loses its pinned chain.

        Args:
            queries: Queries that run.
            strategy: Strategy of families without their own; None leaves it unchanged.
            family_strategies: Strategies of single families by name; None removes a family's own strategy.

        Returns:
            The objective, and the ids of these families, whose retained boundaries can be left out, too.
        """
        known = tuple(queries)
        named = by_family(family_strategies, known, strict=False)
        own = _set(self.family_strategies, family_strategies, known)
        changed = replace(
            self, strategy=self.strategy if strategy is None else strategy, family_strategies=own
        )
        concerned = set(named)
        if strategy is not None:
            concerned |= families(known).keys() - changed.by_family(known).keys()
        pinned = {family: ends for family, ends in self.pinned.items() if family not in concerned}
        return replace(changed, pinned=pinned), frozenset(concerned)

    def with_probes(
        self,
        queries: Iterable[Query],
        *,
        probe: AskedProbe | None = None,
        family_probes: Mapping[str, AskedProbe | None] = _NO_PROBES,
    ) -> tuple[Objective, frozenset[str]]:
        """Set the methods by which slices are searched.

        Args:
            queries: Queries that run.
            probe: Setting of families without their own; None leaves it unchanged.
            family_probes: Settings of single families by name; None removes a family's own setting.

        Returns:
            The objective, and the ids of the families whose setting may have changed.
        """
        known = tuple(queries)
        named = by_family(family_probes, known, strict=False)
        own = _set(self.family_probes, family_probes, known)
        changed = replace(self, probe=self.probe if probe is None else probe, family_probes=own)
        concerned = set(named)
        if probe is not None:
            concerned |= families(known).keys() - by_family(own, known, strict=False).keys()
        return changed, frozenset(concerned)

    def with_punctuations(
        self, queries: Iterable[Query], policies: Mapping[str, PunctuationPolicy | None]
    ) -> Objective:
        """Return the objective with punctuation policies of families set; None removes a family's policy."""
        return replace(self, family_punctuations=_set(self.family_punctuations, policies, tuple(queries)))

    def probes_by_family(self, queries: Iterable[Query]) -> dict[str, AskedProbe]:
        """Return the families' own settings of how their slices are searched, by family id."""
        return by_family(self.family_probes, queries, strict=False)

    def policies_by_family(self, queries: Iterable[Query]) -> dict[str, PunctuationPolicy]:
        """Return the families' own policies (when they act on closed keys), by family id."""
        return by_family(self.family_punctuations, queries, strict=False)

    def by_family(self, queries: Iterable[Query]) -> dict[str, Strategy]:
        """Return the families' own strategies by family id, without families that have no query."""
        return by_family(self.family_strategies, queries, strict=False)

    def is_of(self, plan: Plan, queries: Iterable[Query]) -> bool:
        """Return whether the families of a plan have the strategies of this objective.

        Args:
            plan: A plan of the queries.
            queries: Bound queries that run.
        """
        own = self.by_family(queries)
        return plan.strategy == self.strategy and all(
            f.strategy == own.get(f.id, self.strategy) for f in plan.families
        )

    def left(self, previous: Plan | None, queries: Iterable[Query], clean: Collection[str] = ()) -> ByFamily:
        """Return the boundaries of departed queries that stay in the chains.

        Args:
            previous: Plan in force.
            queries: Queries of the next plan version.
            clean: Ids of families that drop these boundaries now.
        """
        if not self.on_leave.keeps:
            return NO_BOUNDARIES
        found = retained_boundaries(previous, queries)
        return {family: ends for family, ends in found.items() if family not in clean}

    @property
    def chooses_memory(self) -> bool:
        """Whether the planner chooses a memory policy: ``oblivious_memory`` is ``auto``, with a limit."""
        return self.oblivious_memory == "auto" and self.oblivious_memory_mb is not None

    def weighs_costs(self) -> bool:
        """Return whether plans for this objective can depend on rates and selectivities."""
        return self.chooses_memory or "cpu-opt" in (self.strategy, *self.family_strategies.values())

    def weighs_keys(
        self, previous: Plan | None, queries: Iterable[Query], replanned: Collection[str] = ()
    ) -> bool:
        """Return whether the next plan depends on frequent keys of a family that is new or planned again.

        Args:
            previous: Plan in force.
            queries: Queries of the next plan version.
            replanned: Ids of families that are planned again.
        """
        if self.partitioning != "auto":
            return False
        kept = kept_families(previous, replanned)
        plan = () if previous is None else previous.families
        # Queries in a kept family, of which there may be a thousand, need not be grouped into families.
        known = {q.id for f in plan if f.id in kept for q in f.queries}
        return not families(q for q in queries if q.id not in known).keys() <= kept

    def models(self, calibration: Calibration) -> CostModels:
        """Return the cost models.

        Args:
            calibration: Constants of this machine.
        """
        return CostModels.of(self.cost_model, self.c_sys, calibration)


def _set(present: Mapping[str, T], changes: Mapping[str, T | None], queries: Sequence[Query]) -> dict[str, T]:
    """Return the families' own settings after ``changes``; None removes a family's own setting."""
    named = by_family(changes, queries, strict=False)
    # A family may have an older entry under its other name (id or key), which must not stay in force.
    own = {
        name: kept
        for name, kept in present.items()
        if name not in changes and not by_family({name: kept}, queries, strict=False).keys() & named.keys()
    }
    return own | {name: value for name, value in changes.items() if value is not None}
