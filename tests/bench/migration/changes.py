"""The kinds of change, one plan version after another: what each batch of the benchmark has to carry."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from catalog.values.plan import Plan, Strategy
from catalog.values.query import Backfill, Query
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from planner.build.build_plan import build_plan
from planner.build.check_plan import check_plan
from planner.build.explicit_chain import explicit_chain
from planner.build.objective import Objective
from planner.families.families import side_chain
from tests.bench.migration.load import Load

#: Strategies in turn; each is left for the next, the last for the first.
TURNS: tuple[Strategy, ...] = ("cpu-opt", "pullup", "pushdown", "unshared", "mem-opt")


class Step(NamedTuple):
    """A plan version and what was changed."""

    kind: str
    plan: Plan


def steps(load: Load, batches: int = 1) -> list[Step]:
    """Return the first plan and then every kind of change once, each on top of the one before.

    Args:
        load: The load.
        batches: Batches of rows that the plans' streams bring.
    """
    streams = {s.id: s for s in load.streams(batches).values()}
    profile = profile_of(load)
    found = [Step("first", build_plan(load.bound_queries, streams))]

    def then(kind: str, *further: Query, strategy: Strategy = "mem-opt") -> None:
        queries, objective = (*load.bound_queries, *further), Objective(strategy)
        plan = build_plan(queries, streams, found[-1].plan, objective=objective, profile=profile)
        found.append(Step(kind, plan))

    middle_s, longer_s = load.longest_s * 0.33, load.longest_s * 1.2
    coming: list[tuple[str, str, str, Backfill]] = [
        ("add", "remove", load.text(middle_s, {"A": 0.15}), "none"),
        (
            *("add, backfill state", "remove, after backfill"),
            *(load.text(middle_s, {"A": 0.25, "B": 0.15}), "state"),
        ),
        ("add the longest window", "remove the longest window", load.text(longer_s, {"A": 0.1}), "none"),
    ]
    for comes, goes, text, backfill in coming:
        then(comes, load.bound(text, load.queries + 1, backfill))
        then(goes)
    for kind in ("merge", "split"):
        found.append(Step(kind, cut_by_hand(found[-1].plan, merged=kind == "merge")))
    for strategy in TURNS:
        then(f"to {strategy}", strategy=strategy)
    return found


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
