"""Families of ``cpu-opt`` that a change does not touch keep their chains, whatever prices have become.

Prices are moved by C_sys, the overhead of an operator: at none every boundary is worth its slice, at a
million comparisons none is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import FamilyPlan, Plan
from planner.build.objective import Objective
from planner.families.families import side_chain
from service.config.calibration import calibration_of
from service.documents.statistics_document import StatisticsDocument
from service.planning.preview import NewQuery, PreviewRequest, preview_change
from tests.examples import examples
from tests.service.migrating import SECOND_US, Desk, desk, request

FREE, DEAR = 0.0, 1e6
BASE = Objective(strategy="cpu-opt", cost_model="paper", c_sys=FREE)
CUT, MERGED = [10, 30], [30]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Desk]:
    """Two families of two queries, planned when overhead was free, and changed when it is dear."""
    with desk(tmp_path, base=BASE) as opened:
        for streams in ("A B", "A C"):
            for window_s in (10, 30):
                opened.add(f"q{streams[-1]}{window_s}", window_s, streams=streams)
        assert ends(opened.plan) == {"B": CUT, "C": CUT}
        reprice(opened, DEAR)
        yield opened


def reprice(of: Desk, c_sys: float) -> None:
    of.versions.base = replace(BASE, c_sys=c_sys)


def ends(plan: Plan) -> dict[str, list[float]]:
    """Where slices end, seconds, by the name of the family's second stream."""
    names = {s.id: s.name for s in plan.streams}
    return {
        names[f.stream_b]: [s.w_end_us / SECOND_US for s in side_chain(f.joins[0], "a")]
        for f in plan.families
    }


def test_a_query_that_comes_or_goes_touches_its_own_family_alone(two: Desk) -> None:
    two.add("qB20", 20, streams="A B")
    assert ends(two.plan) == {"B": MERGED, "C": CUT}
    two.remove("qC10")
    assert ends(two.plan) == {"B": MERGED, "C": MERGED}
    reprice(two, FREE)
    two.remove("qB20")
    assert ends(two.plan) == {"B": CUT, "C": MERGED}


def test_a_migration_plans_the_families_anew_that_it_is_about(two: Desk) -> None:
    two.migrate(splits=[{"at": 20, "family": "A.k = B.k"}])
    assert ends(two.plan) == {"B": [10, 20, 30], "C": CUT}
    two.migrate(cleanup=True)
    assert ends(two.plan) == {"B": MERGED, "C": CUT}
    two.migrate(on_leave="manual")
    assert ends(two.plan) == {"B": MERGED, "C": CUT}
    two.migrate(family_strategies={"A.k = B.k": "mem-opt"})
    assert ends(two.plan) == {"B": CUT, "C": CUT}
    two.migrate(strategy="cpu-opt")
    assert ends(two.plan) == {"B": CUT, "C": MERGED}, "one has a strategy of its own"


def test_a_rollback_is_about_all(two: Desk) -> None:
    version = two.plan.version
    two.migrate(strategy="cpu-opt")
    assert ends(two.plan) == {"B": MERGED, "C": MERGED}
    two.migrate(rollback_to=version)
    assert ends(two.plan) == {"B": CUT, "C": CUT}


def test_a_cleanup_that_comes_by_itself_is_about_what_was_left(two: Desk) -> None:
    two.migrate(on_leave={"after": 1})
    two.add("qB60", 60, streams="A B")
    two.remove("qB60")
    assert ends(two.plan) == {"B": [30, 60], "C": CUT}
    assert two.migrations.tick(10 * SECOND_US) is not None
    assert ends(two.plan) == {"B": MERGED, "C": CUT}


@pytest.mark.parametrize(
    "body", [{"cleanup": True}, {"family_strategies": {"A.k = B.k": "cpu-opt"}}, {"on_leave": "manual"}]
)
def test_a_dry_run_keeps_what_the_migration_keeps(two: Desk, body: dict[str, Any]) -> None:
    expected = two.migrations.dry_run(request(**body)).preview.plan
    two.migrate(**body)
    assert two.plan == expected


def previewed(of: Desk, **wanted: Any) -> dict[str, list[float]]:
    store, versions = of.store, of.versions
    found = preview_change(
        store, versions.statistician, versions.objective, calibration_of(store), PreviewRequest(**wanted)
    )
    return ends(found.plan)


def test_a_preview_shows_the_chains_that_the_change_then_makes(two: Desk) -> None:
    cql = "SELECT A.k FROM A [RANGE 20 SECONDS], B [RANGE 20 SECONDS] WHERE A.k = B.k"
    shown = previewed(two, add=(NewQuery("qB20", cql),))
    two.add("qB20", 20, streams="A B")
    assert shown == ends(two.plan) == {"B": MERGED, "C": CUT}


def test_a_preview_with_a_strategy_or_numbers_of_its_own_plans_anew(two: Desk) -> None:
    assert previewed(two) == {"B": CUT, "C": CUT}
    assert previewed(two, family_strategies={"A.k = B.k": "cpu-opt"}) == {"B": MERGED, "C": CUT}
    assert previewed(two, strategy="cpu-opt") == {"B": MERGED, "C": MERGED}
    assert previewed(two, statistics=StatisticsDocument(batch_s=1.0)) == {"B": MERGED, "C": MERGED}
    assert previewed(two, c_sys=DEAR) == {"B": MERGED, "C": MERGED}


_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["B", "C"]), st.sampled_from([5, 10, 20, 30, 60]), st.sampled_from([FREE, 50.0, DEAR])
    ),
    min_size=2,
    max_size=10,
)


@settings(max_examples=examples(12), deadline=None)
@given(_CHANGES)
def test_whatever_comes_and_goes_the_joins_of_the_same_queries_are_the_same(
    changes: list[tuple[str, int, float]],
) -> None:
    with tempfile.TemporaryDirectory() as directory, desk(Path(directory), base=BASE) as found:
        before: dict[str, FamilyPlan] = {}
        running: set[str] = set()
        for stream, window_s, c_sys in changes:
            reprice(found, c_sys)
            name = f"q{stream}{window_s}"
            if name in running:
                found.remove(name)
            else:
                found.add(name, window_s, streams=f"A {stream}")
            running ^= {name}
            now = {f.id: f for f in found.plan.families}
            kept = [f for f in now.values() if f.id in before and before[f.id].queries == f.queries]
            assert [f.joins for f in kept] == [before[f.id].joins for f in kept]
            before = now
