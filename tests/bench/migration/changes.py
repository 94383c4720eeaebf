"""The kinds of change, one plan version after another: what each batch of the benchmark has to carry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from catalog.values.plan import Plan, Strategy
from catalog.values.query import Query
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from planner.build.build_plan import STRATEGIES, build_plan
from planner.build.check_plan import check_plan
from planner.build.explicit_chain import explicit_chain
from planner.build.objective import Objective
from planner.families.families import side_chain
from tests.bench.migration.load import Load

#: Strategies in turn; each is left for the next, the last for the first.
TURNS: tuple[Strategy, ...] = ("cpu-opt", "pullup", "pushdown", "unshared", "mem-opt")


@dataclass(frozen=True, slots=True)
class Step:
    """A plan version and what was changed.

    Attributes:
        kind: What was changed.
        plan: The version.
        queries: Queries that run in it.
        strategy: Their strategy.
    """

    kind: str
    plan: Plan
    queries: tuple[Query, ...]
    strategy: Strategy


def steps(load: Load, batches: int | None = None) -> Iterator[Step]:
    """Yield the first plan and then every kind of change once, each on top of the one before.

    Args:
        load: The load.
        batches: Batches of rows that the plans' streams bring; None for as many as anybody reads.
    """
    streams = {s.id: s for s in load.streams(batches).values()}
    profile = profile_of(load)
    queries = load.bound_queries
    strategy: Strategy = "mem-opt"
    plan = build_plan(queries, streams)
    yield Step("first", plan, queries, strategy)

    def after(kind: str) -> Step:
        planned = build_plan(queries, streams, plan, objective=Objective(strategy), profile=profile)
        return Step(kind, planned, queries, strategy)

    def entering(kind: str, text: str, backfill: str) -> Step:
        nonlocal queries, plan
        number = max(q.id for q in queries) + 1
        query = load.bound(text, number, "state" if backfill == "state" else "none")
        queries = (*queries, query)
        step = after(kind)
        plan = step.plan
        return step

    def leaving(kind: str) -> Step:
        nonlocal queries, plan
        queries = queries[:-1]
        step = after(kind)
        plan = step.plan
        return step

    middle_s, longer_s = load.longest_s * 0.33, load.longest_s * 1.2
    yield entering("add", load.text(middle_s, {"A": 0.15}), "none")
    yield leaving("remove")
    yield entering("add, backfill state", load.text(middle_s, {"A": 0.25, "B": 0.15}), "state")
    yield leaving("remove, after backfill")
    yield entering("add the longest window", load.text(longer_s, {"A": 0.1}), "none")
    yield leaving("remove the longest window")
    for kind in ("merge", "split"):
        plan = cut_by_hand(plan, merged=kind == "merge")
        yield Step(kind, plan, queries, strategy)
    for turn in TURNS:
        strategy = turn
        step = after(f"to {turn}")
        plan = step.plan
        yield step


def cut_by_hand(plan: Plan, *, merged: bool) -> Plan:
    """Return the next version with every second boundary of the one family's chain gone, or all back."""
    (family,) = plan.families
    windows = {s: sorted({q.w_a_us if s == "a" else q.w_b_us for q in family.queries}) for s in ("a", "b")}
    ends = {
        side: [
            *[at for n, at in enumerate(windows[side][:-1]) if not merged or n % 2],
            side_chain(family.joins[0], side)[-1].w_end_us,
        ]
        for side in ("a", "b")
    }
    joins = explicit_chain(family, ends["a"], ends["b"])
    following = replace(
        plan, version=plan.version + 1, families=(replace(family, joins=joins, given=merged),)
    )
    check_plan(following, plan)
    return following


def profile_of(load: Load) -> Profile:
    """Return the statistics of a load, which are known since it was made so."""
    filters = {
        (side.stream_id, side.filter): float(side.filter.rpartition(" ")[2])
        for query in load.bound_queries
        for side in (query.a, query.b)
        if side.filter is not None
    }
    (family,) = build_plan(load.bound_queries, {s.id: s for s in load.streams(1).values()}).families
    return Profile(
        streams=tuple(StreamProfile(n, Measure(load.rate_per_s), Measure(48.0)) for n in (1, 2)),
        filters=tuple(FilterProfile(s, sql, Measure(x)) for (s, sql), x in sorted(filters.items())),
        families=(FamilyProfile(family.id, Measure(1.0 / load.keys)),),
        batch_s=Measure(load.batch_s),
        buckets=2,
    )


assert set(TURNS) == set(STRATEGIES)
