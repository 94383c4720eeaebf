"""Resolution of a migration request: new objective, and retained boundaries of departed queries.

strategies        other strategies; their families drop pinned chains and boundaries of departed queries
probes            other ways to search slices; chains stay
punctuations      other times to act on closed keys; chains stay
splits, merges    the family's boundaries, changed and pinned
clean-up          no pinned boundaries, and no boundaries of departed queries
rollback          strategies of an earlier version; chains that were weighed or cut by hand are pinned
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.errors import SluiceError
from catalog.store.store import Store
from catalog.values.migration import ExplicitStep
from catalog.values.plan import Boundaries, Plan
from catalog.values.query import Query
from planner.build.objective import Objective
from planner.build.transitions.retained_boundaries import (
    NO_BOUNDARIES,
    ByFamily,
    boundaries_of,
    given_families,
)
from planner.errors import UnknownFamily
from planner.families.families import families
from planner.families.texts.display import family_text
from planner.families.texts.family_names import family_named, family_titles
from service.documents.migration_document import MigrationRequest
from service.errors import UnknownPlanVersion
from service.planning.migrating.explicit_steps import stepped_boundaries
from service.planning.records.plan_record import record_in


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request resolved for the present queries.

    Attributes:
        objective: Objective in force from the next version on.
        left: Retained boundaries of departed queries, by family id.
        replanned: Ids of the families that are planned again; all other families keep their chains.
    """

    objective: Objective
    left: ByFamily
    replanned: frozenset[str]


def resolve_migration(
    request: MigrationRequest,
    objective: Objective,
    previous: Plan | None,
    queries: Sequence[Query],
    store: Store,
) -> Wanted:
    """Resolve a request for the present queries.

    Args:
        request: The requested migration.
        objective: Objective in force until now.
        previous: The newest plan.
        queries: Queries that will run.
        store: Catalog, whose history has the versions for a rollback.

    Raises:
        UnknownFamily: A split or merge names an unknown family, or no family although there are several.
        UnknownBoundary: A split or merge is for slices that do not exist.
        NoSharedChain: The queries of the family do not share one chain.
        UnknownPlanVersion: The history has no such version.
    """
    replanned: frozenset[str] = frozenset()
    if request.on_leave is not None:
        objective = replace(objective, on_leave=request.on_leave)
        # The new policy may drop boundaries of departed queries, so all families are planned again.
        replanned = given_families(previous)
    if request.cleanup:
        return Wanted(replace(objective, pinned={}), NO_BOUNDARIES, given_families(previous))
    if request.rollback_to is not None:
        rolled_back = _rolled_back(objective, store, request.rollback_to, queries)
        return Wanted(rolled_back, NO_BOUNDARIES, frozenset(families(queries)))
    if request.steps:
        stepped = _stepped(request, objective, previous, queries)
        return replace(stepped, replanned=stepped.replanned | replanned)
    if request.family_punctuations:
        objective = objective.with_punctuations(queries, request.family_punctuations)
        return Wanted(objective, objective.left(previous, queries), replanned)
    if request.probe is not None or request.family_probes:
        objective, concerned = objective.with_probes(
            queries, probe=request.probe, family_probes=request.family_probes
        )
        # Plan families with the probe `auto` again, since the planner chooses probe and chain together.
        own = objective.probes_by_family(queries)
        auto = {family for family in concerned if own.get(family, objective.probe) == "auto"}
        return Wanted(objective, objective.left(previous, queries), replanned | auto)
    if request.oblivious_memory is not None:
        objective = replace(objective, oblivious_memory=request.oblivious_memory)
        # Plan ordered families again if the planner chooses memory, since it does so together with the chain.
        chosen = {family for family, members in families(queries).items() if members[0].ordered}
        again = frozenset(chosen) if objective.chooses_memory else frozenset()
        return Wanted(objective, objective.left(previous, queries), replanned | again)
    objective, concerned = objective.with_strategies(
        queries, strategy=request.strategy, family_strategies=request.family_strategies
    )
    return Wanted(objective, objective.left(previous, queries, concerned), concerned | replanned)


def _stepped(
    request: MigrationRequest, objective: Objective, previous: Plan | None, queries: Sequence[Query]
) -> Wanted:
    """Pin the chains of the families concerned at their boundaries after splits and merges."""
    asked: dict[str, list[ExplicitStep]] = {}
    for name, step in request.steps:
        asked.setdefault(_family(name, step, queries), []).append(step)
    plans = {} if previous is None else {f.id: f for f in previous.families}
    streams = {} if previous is None else {s.id: s.name for s in previous.streams}
    pinned = dict(objective.pinned)
    left = dict(objective.left(previous, queries))
    for family, steps in asked.items():
        if family not in plans:
            raise UnknownFamily("the family has no chain yet", path=steps[0].path)
        text = family_text(plans[family], streams)
        ends = stepped_boundaries(plans[family], text, steps)
        pinned[family] = _with_waiting(ends, objective.pinned.get(family), boundaries_of(plans[family]))
        if family in left:
            left[family] = Boundaries(
                tuple(at for at in left[family].a if at in ends.a),
                tuple(at for at in left[family].b if at in ends.b),
            )
    return Wanted(replace(objective, pinned=pinned), left, frozenset(asked))


def _with_waiting(ends: Boundaries, pinned: Boundaries | None, before: Boundaries) -> Boundaries:
    """Add pinned boundaries beyond the present end, which wait for a query with a longer window."""
    if pinned is None:
        return ends
    a = {*ends.a, *(at for at in pinned.a if at > before.a[-1])}
    b = {*ends.b, *(at for at in pinned.b if at > before.b[-1])}
    return Boundaries(tuple(sorted(a)), tuple(sorted(b)))


def _family(name: str | None, step: ExplicitStep, queries: Sequence[Query]) -> str:
    if name is not None:
        try:
            return family_named(name, queries)
        except SluiceError as error:
            error.path = (*step.path, "family")
            raise
    titles = family_titles(queries)
    if len(titles) != 1:
        raise UnknownFamily(
            f"the {step.kind} does not say which of {len(titles)} families it is for"
            if titles
            else "there is no family to migrate",
            hint=f"Add family: {', '.join(titles.values())}." if titles else "Add a query.",
            path=(*step.path, "family"),
        )
    return next(iter(titles))


def _rolled_back(objective: Objective, store: Store, version: int, queries: Sequence[Query]) -> Objective:
    entry = next(iter(store.plan_history.page(after_version=version - 1, limit=1)), None)
    record = None if entry is None or entry.version != version else record_in(entry)
    if record is None or record.strategy is None:
        raise UnknownPlanVersion(
            f"the history has no plan version {version}",
            hint="GET /api/v1/plan/versions lists the versions that can be restored.",
            path=("rollback_to",),
        )
    # Pin chains that were weighed or cut by hand, because their strategy may now choose other chains.
    pinned = {family: ends for family, ends in record.chains.items() if ends}
    return replace(
        objective, strategy=record.strategy, family_strategies=record.family_strategies, pinned=pinned
    )
