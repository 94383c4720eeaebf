"""Rows of joins without windows wait on disk if memory is limited and would not hold those that lead."""

from __future__ import annotations

import pytest

from catalog.values.plan import FamilyPlan
from catalog.values.policies.memory import MemoryStrategy
from catalog.values.statistics import FamilyProfile, Measure, Profile, StreamProfile
from catalog.values.stream import Order
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.families.families import family_of
from tests.operators.test_orders import ordered_stream

STREAMS = {n: ordered_stream(n, name, "bigint", Order("e", 99)) for n, name in ((1, "A"), (2, "B"))}
ORDERED = "SELECT a.v AS v FROM A a JOIN B b ON a.e = b.e"
WINDOWED = "SELECT a.v AS v FROM A [NOW] a JOIN B [NOW] b ON a.e = b.e"


def planned(objective: Objective, lag: float, text: str = ORDERED) -> FamilyPlan:
    """Plan one query over streams whose rows have 100 bytes each, where A leads by some rows."""
    query = bind(text, {s.name: s for s in STREAMS.values()}, query_id=1)
    rates = tuple(StreamProfile(n, Measure(10.0), Measure(100.0), Measure(99.0)) for n in STREAMS)
    lags = Measure(lag), Measure(-lag)
    family = FamilyProfile(family_of(query), Measure(0.001), lag_a=lags[0], lag_b=lags[1])
    profile = Profile(rates, families=(family,))
    (found,) = build_plan([query], STREAMS, objective=objective, profile=profile).families
    return found


@pytest.mark.parametrize(
    ("limit_mb", "lag", "expected"),
    [
        (None, 1e9, "plain"),
        # 200 rows of A and 100,000 by which it leads; of B 1.
        (11.0, 100_000, "plain"),
        (10.0, 100_000, "dbf"),
        # C rows more than without a lag.
        (1.0, 100_000, "dbf"),
        (0.05, 0, "plain"),
        # 100 rows of each that wait, and 2 that are joined.
        (0.03, 0, "hybrid"),
        (0.01, 0, "hybrid"),
    ],
)
def test_the_first_way_that_fits_is_taken(
    limit_mb: float | None, lag: float, expected: MemoryStrategy
) -> None:
    assert planned(Objective(oblivious_memory_mb=limit_mb), lag).memory.strategy == expected


def test_what_is_asked_for_is_taken_for_joins_without_windows_alone() -> None:
    assert planned(Objective(oblivious_memory="dbf"), 0).memory.strategy == "dbf"
    assert (
        planned(Objective(oblivious_memory="plain", oblivious_memory_mb=0.01), 1e6).memory.strategy == "plain"
    )
    assert planned(Objective(oblivious_memory="msf"), 0).memory.strategy == "msf"
    assert planned(Objective(oblivious_memory="dbf"), 0, WINDOWED).memory.strategy == "plain"
