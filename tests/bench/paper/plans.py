"""Queries of a setting, what is known of them, and their plans."""

from __future__ import annotations

from catalog.values.plan import Plan, Strategy
from catalog.values.query import Query
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.cost import CostModelName
from planner.families.families import families
from tests.bench.paper.arrivals import STREAMS
from tests.bench.paper.setting import Setting

_COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
#: Streams by name; their source is never read.
BY_NAME = {
    name: Stream(number, name, _COLUMNS, "ts", 0, HttpSource()) for number, name in enumerate(STREAMS, 1)
}


def queries_of(setting: Setting) -> list[Query]:
    """Return the setting's queries, bound; ids count from 1 in the order of the windows."""
    return [
        bind(setting.cql(number), BY_NAME, name=f"q{number}", query_id=number)
        for number in range(1, len(setting.windows_s) + 1)
    ]


def profile_of(setting: Setting, batch_s: float) -> Profile:
    """Return the true statistics of the generated input."""
    queries = queries_of(setting)
    filters = {q.a.filter for q in queries if q.a.filter is not None}
    (family_id,) = families(queries)
    return Profile(
        streams=tuple(StreamProfile(s.id, Measure(setting.arrivals_per_s)) for s in BY_NAME.values()),
        filters=tuple(
            FilterProfile(BY_NAME["A"].id, text, Measure(setting.filter_selectivity or 1.0))
            for text in sorted(filters)
        ),
        families=(FamilyProfile(family_id, Measure(setting.join_selectivity)),),
        batch_s=Measure(batch_s),
        buckets=1,
    )


def plan_of(
    setting: Setting,
    strategy: Strategy,
    batch_s: float,
    c_sys: float = 0.0,
    cost_model: CostModelName = "paper",
) -> Plan:
    """Return the plan of a strategy; ``cpu-opt`` minimises the cost by the model."""
    return build_plan(
        queries_of(setting),
        {stream.id: stream for stream in BY_NAME.values()},
        objective=Objective(strategy, cost_model=cost_model, c_sys=c_sys),
        profile=profile_of(setting, batch_s),
    )
