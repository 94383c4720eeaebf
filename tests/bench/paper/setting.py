"""Settings of the paper's experiments (State-Slice, VLDB 2006, §7), with rates scaled to this machine.

    Q1: A[W1] join B[W1]     Q2: σ(A)[W2] join B[W2]     Q3: σ(A)[W3] join B[W3]      (Figures 17 and 18)

Windows and selectivities are those of Table 3 (§7.2) and Table 4 (§7.3), number by number. Rates vary there
"from 20 tuples/sec to 80 tuples/sec"; the steps between are ours. Of 24 and 36 queries the paper says only
that their windows are "set accordingly": where 12 queries have a window, 24 and 36 have two and three here,
the window itself and one or two that split the smallest gap below it, so that the shape of a distribution
stays. S_1 is the paper's join selectivity (S with the sign of a join).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from catalog.values.plan import Plan, Strategy
from catalog.values.query import Query
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.cost import CostModelName
from planner.families.families import families

STREAMS = ("A", "B")
#: Rows per second of each stream, before the factor: ends by the paper (§7.2), steps by us.
RATES_PER_S = (20, 40, 60, 80)
#: S_σ of Table 3.
FILTER_SELECTIVITIES = (0.2, 0.5, 0.8)
#: S_1 of Table 3.
JOIN_SELECTIVITIES = (0.025, 0.1, 0.4)
#: Table 3: windows of Q1, Q2, Q3, seconds.
THREE_WINDOWS_S = {
    "mostly-small": (5.0, 10.0, 30.0),
    "uniform": (10.0, 20.0, 30.0),
    "mostly-large": (20.0, 25.0, 30.0),
}
#: Table 4: windows of 12 queries, seconds.
TWELVE_WINDOWS_S = {
    "uniform": tuple(2.5 * n for n in range(1, 13)),
    "mostly-small": (*(float(n) for n in range(1, 11)), 20.0, 30.0),
    "small-large": (*(float(n) for n in range(1, 7)), *(float(n) for n in range(25, 31))),
}
QUERY_COUNTS = (12, 24, 36)
#: S_1 of Figure 19 (§7.3).
MANY_QUERIES_JOIN_SELECTIVITY = 0.025
#: S_σ where the queries of Figure 19 have a selection: an experiment of ours, the paper's have none (§7.3).
MANY_QUERIES_FILTER_SELECTIVITY = 0.5

#: The paper's rates times this. Pairs come at 2 λ² W S_1 per second, so a factor for each S_1 gives every S_1
#: the same work at the same rate: 2.5 million pairs per second of event time at the highest, for W = 30 s.
RATE_FACTOR = {0.025: 16.0, 0.1: 8.0, 0.4: 4.0}


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of the paper's x-axis.

    Attributes:
        distribution: Name of the windows' distribution.
        windows_s: Window of each query, seconds, ascending.
        rate_per_s: The paper's rate of each stream.
        factor: What it is multiplied by here.
        join_selectivity: S_1.
        filter_selectivity: S_σ of the selection on A that all queries but the first have; None for none.
    """

    distribution: str
    windows_s: tuple[float, ...]
    rate_per_s: float
    factor: float
    join_selectivity: float
    filter_selectivity: float | None

    @property
    def arrivals_per_s(self) -> float:
        """λ: rows per second of each stream, as they are generated here."""
        return self.rate_per_s * self.factor

    def facts(self) -> dict[str, Any]:
        """Return its columns of the CSV files."""
        return {
            "distribution": self.distribution,
            "queries": len(self.windows_s),
            "filter_selectivity": self.filter_selectivity,
            "join_selectivity": self.join_selectivity,
            "rate_per_s": self.rate_per_s,
            "factor": self.factor,
        }

    def cql(self, query: int) -> str:
        """Return the text of a query, from 1."""
        window = f"[RANGE {round(self.windows_s[query - 1] * 1000)} MILLISECONDS]"
        text = f"SELECT A.ts AS ats, B.ts AS bts, A.k AS k FROM A {window}, B {window} WHERE A.k = B.k"
        if self.filter_selectivity is not None and query > 1:
            text += f" AND A.v < {self.filter_selectivity:g}"
        return text


def many_windows_s(distribution: str, queries: int) -> tuple[float, ...]:
    """Return the windows of 12, 24 or 36 queries of Table 4, seconds.

    >>> many_windows_s("mostly-small", 24)[:4], many_windows_s("mostly-small", 24)[-4:]
    ((0.5, 1.0, 1.5, 2.0), (19.5, 20.0, 29.5, 30.0))
    """
    twelve = TWELVE_WINDOWS_S[distribution]
    each = queries // len(twelve)
    gap = min(after - before for before, after in zip((0.0, *twelve), twelve, strict=False))
    return tuple(round(w - gap * part / each, 3) for w in twelve for part in reversed(range(each)))


def key_shares(join_selectivity: float) -> tuple[float, ...]:
    """Return the share of each key so that two rows have equal keys with that probability, exactly.

    With n equal shares that is 1/n; where no n fits, one of the n = ceil(1/S_1) keys gets more, x, so that
    x² + (1-x)²/(n-1) = S_1.

    >>> len(key_shares(0.025)), [round(share, 3) for share in key_shares(0.4)]
    (40, [0.544, 0.228, 0.228])
    """
    keys = math.ceil(1 / join_selectivity - 1e-9)
    if keys == 1:
        return (1.0,)
    most = (1 + math.sqrt(max((keys - 1) * (keys * join_selectivity - 1), 0.0))) / keys
    return (most, *([(1 - most) / (keys - 1)] * (keys - 1)))


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
