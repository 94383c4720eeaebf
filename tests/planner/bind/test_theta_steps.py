"""Steps without a key: which streams they join, and the band and buckets of their families."""

from __future__ import annotations

from dataclasses import replace

from catalog.values.plan import ALL_BUCKETS, Band, Bound
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.families.families import is_theta
from tests.builders import a_stream

STREAMS = {name: replace(a_stream(i), name=name) for i, name in ((1, "A"), (2, "B"), (3, "C"))}


def test_a_band_narrows_a_step_whose_pairs_meet_rows_of_all_buckets() -> None:
    # The stream without an equal column is written first and joined last.
    cql = "SELECT c.v FROM C c, A a, B b WHERE c.v BETWEEN a.v AND a.v + 2 AND a.k = b.k WINDOW 1 MINUTE"
    query = bind(cql, STREAMS, name="q", query_id=1)
    plan = build_plan([query], {s.id: s for s in STREAMS.values()})
    (last,) = (family for family in plan.families if is_theta(family.id))
    (first,) = (family for family in plan.families if not is_theta(family.id))
    assert (first.stream_a, first.stream_b) == (1, 2)
    assert last.stream_b == 3
    assert last.replication.every == ALL_BUCKETS
    assert last.band == Band("a", "a.v", Bound("v", -2.0), Bound("v", 0.0))
