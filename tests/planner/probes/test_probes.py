"""Ways to search slices: how they are written, and which of them the planner chooses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.values.calibration import Calibration
from catalog.values.plan import FamilyPlan, Plan
from catalog.values.policies.probe import AskedProbe, Probe
from catalog.values.statistics import FamilyProfile, Measure, Profile
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from planner.costs.loads.loads import search_loads
from planner.costs.rates import family_rates
from planner.errors import InvalidProbe
from planner.explain.rendering.render import plan_document, render_mermaid
from planner.probes.asked_probe import asked_probe, probe_text
from planner.probes.choose_probe import choose_probe, search_s
from tests.builders import a_query_s as a_query
from tests.planner.applied import render_text
from tests.planner.values import STREAMS

QUERIES = [a_query(1, 10), a_query(2, 30, filter_a='"v" < 0.2')]
THETA = replace(a_query(3, 10), key=(), key_types=())


@pytest.mark.parametrize(
    ("text", "invalidation", "wanted"),
    [
        ("auto", None, "auto"),
        ("Merge", None, Probe()),
        ("loops", "optimal", Probe("loops", 1, "optimal")),
        (" hash( 4096 )", None, Probe("hash", 4096)),
        ("hash(1)", "probe-all", Probe("hash", 1, "probe-all")),
    ],
)
def test_ways_to_search_are_read(text: str, invalidation: str | None, wanted: AskedProbe) -> None:
    assert asked_probe(text, invalidation) == wanted


@pytest.mark.parametrize(
    ("text", "invalidation", "said"),
    [
        ("hash", None, 'probe "hash" does not exist'),
        ("hash(0)", None, "hash(0) is out of range"),
        ("hash(-3)", None, "hash(-3) is out of range"),
        ("hash(4097)", None, "hash(4097) is out of range"),
        ("hash(ten)", None, '"ten" is not a number of rings'),
        ("hash(1.5)", None, '"1.5" is not a number of rings'),
        ("merge", "probe", "merge takes no invalidation"),
        ("auto", "probe", "auto takes no invalidation"),
        ("loops", "lazy", 'invalidation "lazy" does not exist'),
    ],
)
def test_what_cannot_be_searched_so_is_refused(text: str, invalidation: str | None, said: str) -> None:
    with pytest.raises(InvalidProbe) as caught:
        asked_probe(text, invalidation)
    assert (caught.value.primary, bool(caught.value.hint)) == (said, True)


def planned(probe: AskedProbe = "auto", family_probes: dict[str, AskedProbe] | None = None) -> Plan:
    objective = Objective(probe=probe, family_probes=family_probes or {})
    return build_plan([*QUERIES, THETA], STREAMS, objective=objective)


def probes(plan: Plan) -> dict[bool, Probe]:
    """Return how families are searched, by whether they have a key."""
    return {bool(family.key): family.probe for family in plan.families}


def test_the_planner_merges_unless_something_else_is_asked_for() -> None:
    asked = Probe("hash", 8, "optimal")
    assert probes(planned()) == {True: Probe(), False: Probe()}
    # Without a key there are no rings.
    assert probes(planned(probe=asked)) == {True: asked, False: Probe()}
    assert probes(planned(probe=asked, family_probes={"A.k = B.k": Probe("loops")}))[True] == Probe("loops")
    with pytest.raises(InvalidProbe, match=r"cannot be searched by hash\(8\), invalidation optimal"):
        planned(family_probes={planned().families[-1].id: asked, planned().families[0].id: asked})


def test_another_way_leaves_the_chain_as_it_is() -> None:
    first = build_plan(QUERIES, STREAMS)
    (family,) = first.families
    asked = Objective(probe=Probe("hash", 8))
    second = build_plan(QUERIES, STREAMS, first, objective=asked, keep={family.id})
    assert second.families == (replace(family, probe=Probe("hash", 8)),)
    # What was chosen stays until the family is planned again.
    third = build_plan(QUERIES, STREAMS, second, keep={family.id})
    assert third.families == second.families
    assert build_plan(QUERIES, STREAMS, third).families == first.families


def test_the_way_is_shown() -> None:
    plan = build_plan(QUERIES, STREAMS, objective=Objective(probe=Probe("hash", 8)))
    assert "hash(8), invalidation probe" in render_text(plan)
    assert "hash(8), invalidation probe" in render_mermaid(plan)
    assert plan_document(plan)["families"][0]["probe"] == "hash(8), invalidation probe"
    assert plan_document(build_plan(QUERIES, STREAMS))["families"][0]["probe"] == "merge"
    assert probe_text("auto") == "auto"


@given(st.floats(1e-10, 1e-6), st.floats(1e-10, 1e-6), st.floats(1e-10, 1e-6), st.floats(1e-4, 1.0))
def test_the_cheapest_way_is_taken(merge: float, look: float, scan: float, selectivity: float) -> None:
    family, constants = a_family(), prices(merge, look, scan)
    rates = family_rates(family, 1, 2, Profile(families=(known(family, selectivity),)))
    taken = choose_probe(family, rates, constants)
    others = [Probe(), Probe("loops"), Probe("hash", 8)]
    loads = [load for join in family.joins for load in search_loads(family, join, rates)]
    least = search_s(loads, rates.buckets, constants, taken)
    assert all(
        least <= search_s(loads, rates.buckets, constants, p) for p in others if p.cells <= 1 / selectivity
    )


def a_family() -> FamilyPlan:
    (family,) = build_plan(QUERIES, STREAMS).families
    return family


def prices(merge: float, look: float, scan: float) -> Calibration:
    return replace(SHIPPED, per_male_segment=merge, per_ring_look=look, per_scanned_row=scan)


def known(family: FamilyPlan, selectivity: float) -> FamilyProfile:
    return FamilyProfile(family.id, Measure(selectivity))


def test_rings_are_taken_where_they_are_cheap() -> None:
    family = a_family()
    rates = family_rates(family, 1, 2, Profile(families=(known(family, 1e-3),)))
    assert choose_probe(family, rates, prices(1e-6, 1e-9, 1e-9)).method == "hash"
    assert choose_probe(family, rates, SHIPPED) == Probe()


def test_many_windows_are_no_reason_for_rings() -> None:
    """A male visits every slice, empty ones too, whichever way they are searched."""
    queries = [a_query(number, number * 0.015) for number in range(1, 1001)]
    (family,) = build_plan(queries, STREAMS).families
    assert len(family.joins[0].chain_a) == 1000
    assert family.probe == Probe()
