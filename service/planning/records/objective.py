"""The objective in force: from the settings, changed by migrations, stored in the catalog.

settings (per service)  <  workload file  <  migration  <  request or option    (right overrides left)
a family's own strategy overrides the general strategy, whichever sources the two have

A migration changes the objective in force, which the catalog stores (setting ``objective``). The stored
objective survives a restart with the same settings. The settings override it if their strategies, probe or
memory have changed since the last start. Cost model, C_sys, partitioning and the memory limit always come
from the settings or the workload.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import cast

from pydantic import JsonValue

from catalog.documents.codec import decode, encode
from catalog.store.store import Store
from catalog.values.migration import OnLeave
from catalog.values.plan import Boundaries, Strategy
from catalog.values.policies.memory import AskedMemory
from catalog.values.policies.probe import AskedProbe
from catalog.values.policies.punctuation_policy import PunctuationPolicy
from planner.build.objective import Objective
from planner.probes.asked_probe import asked_probe
from service.config.settings import PlanningSettings

OBJECTIVE_SETTING = "objective"


@dataclass(frozen=True, slots=True)
class _Stored:
    """The objective as stored in the catalog, with the settings at the time when it was stored."""

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
        InvalidProbe: The settings name a way to search slices (probe) that does not exist.
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
        base: Objective of the settings, used if none is stored.
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
    """Override the stored objective by the settings if the settings have changed since the last start.

    Of the settings, only strategies, probe and memory are compared.

    Args:
        store: The catalog.
        base: Objective of the settings.

    Returns:
        Whether the settings replace the objective that was in force before. If so, the pinned chains of that
        objective are dropped. ``on_leave`` and policies of punctuations stay, since there are no settings for
        them.
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
