"""Previews of a running service: costs of every strategy under given statistics; nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.running_service import RunningService
from tests.builders import stream_document
from tests.planner.costs.paper import TwoQueries, pullup_cost, pushdown_cost, state_slice_cost

pytestmark = pytest.mark.spark

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}
FAMILY = "pv_a.k = pv_b.k"
SETTING = TwoQueries(rate_per_s=50, w1_s=10, w2_s=30, filter_selectivity=0.2, join_selectivity=0.025)
STATISTICS = {
    "streams": {"pv_a": {"rate": 50.0, "row_bytes": 48}, "pv_b": {"rate": 50.0, "row_bytes": 48}},
    "filters": {"0.2 > pv_a.v": 0.2},
    "join_selectivity": 0.025,
}


def cql(seconds: int, condition: str = "") -> str:
    window = f"[RANGE {seconds} SECONDS]"
    return f"SELECT a.k FROM pv_a {window} a, pv_b {window} b WHERE a.k = b.k{condition}"


@pytest.fixture(scope="module")
def running(service: RunningService) -> RunningService:
    """Two streams and the paper's two queries."""
    for name in ("pv_a", "pv_b"):
        body = stream_document(name, COLUMNS)
        service.ok("POST", "/streams", 201, json=body)
    service.ok("POST", "/queries", 202, json={"name": "pv_q1", "cql": cql(10)})
    service.ok("POST", "/queries", 202, json={"name": "pv_q2", "cql": cql(30, " AND a.v < 0.2")})
    return service


def family_of(plan: dict[str, Any]) -> dict[str, Any]:
    (found,) = (family for family in plan["families"] if family["title"] == FAMILY)
    assert isinstance(found, dict)
    return found


def test_every_strategy_costs_what_the_paper_s_equations_say(running: RunningService) -> None:
    version = running.ok("GET", "/plan", 200)["version"]
    body = {"statistics": STATISTICS, "cost_model": "paper"}
    answer = running.ok("POST", "/plan:preview", 200, json=body)
    costs = family_of(answer["plan"])["costs"]
    for strategy, paper in (
        ("pullup", pullup_cost(SETTING)),
        ("pushdown", pushdown_cost(SETTING)),
        ("mem-opt", state_slice_cost(SETTING)),
    ):
        assert costs[strategy]["memory_rows"] == pytest.approx(paper.memory_rows)
        assert costs[strategy]["memory_bytes"] == pytest.approx(48 * paper.memory_rows)
        assert costs[strategy]["cpu_comparisons_per_s"] == pytest.approx(paper.cpu_comparisons_per_s)
    assert set(costs) == {"unshared", "pullup", "pushdown", "mem-opt", "cpu-opt"}
    assert (answer["previous_version"], answer["primitives"]) == (version, [])
    assert answer["statistics"]["filters"]["pv_a.v < 0.2"] == {"value": 0.2, "origin": "given", "age_s": None}
    assert running.ok("GET", "/plan", 200)["version"] == version


def test_a_preview_names_the_steps_of_a_change(running: RunningService) -> None:
    body = {"add": [{"name": "pv_q3", "cql": cql(20)}], "remove": ["pv_q2"]}
    answer = running.ok("POST", "/plan:preview", 200, json=body)
    assert [step["text"] for step in answer["primitives"]] == [
        "split pv_a at 20s",
        "truncate pv_a from 30s to 20s",
        "set filter of pv_a [10s, 20s): every row",
        "split pv_b at 20s",
        "truncate pv_b from 30s to 20s",
        "set routes to pv_q1, pv_q3",
    ]
    names = {item["name"] for item in running.ok("GET", "/queries", 200, params={"limit": 1000})["items"]}
    assert "pv_q2" in names
    assert "pv_q3" not in names


def test_no_chain_beats_cpu_opt_and_what_decided_is_named(running: RunningService) -> None:
    body = {"statistics": STATISTICS, "cost_model": "paper", "c_sys": 5.0, "strategy": "cpu-opt"}
    chains = ([30], [10, 30], [5, 10, 30], [10, 20, 30])
    for ends in chains:
        chain = {"family": FAMILY, "boundaries_s": ends}
        answer = running.ok("POST", "/plan:preview", 200, json=body | {"chain": chain})
        family = family_of(answer["plan"])
        assert family["strategy"] == "cpu-opt"
        assert family["chain"]["joins"][0]["boundaries_s"]["a"] == ends
        best = family["costs"]["cpu-opt"]["cpu_comparisons_per_s"]
        assert family["chain"]["cpu_comparisons_per_s"] >= best * (1 - 1e-9)
        assert family["decided_by"]["unit"] == "comparisons/s"
    short = running.ok(
        "POST", "/plan:preview", 200, json=body | {"chain": {"pv_a": [30], "pv_b": [30]} | {"family": FAMILY}}
    )
    assert family_of(short["plan"])["chain"]["joins"][0]["boundaries_s"] == {"a": [30.0], "b": [30.0]}


def test_a_family_can_have_a_strategy_of_its_own(running: RunningService) -> None:
    body = {"family_strategies": {"pv_b.k = pv_a.k": "unshared"}}
    plan = running.ok("POST", "/plan:preview", 200, json=body)["plan"]
    assert plan["strategy"] == "mem-opt"
    family = family_of(plan)
    assert family["strategy"] == "unshared"
    assert len(family["joins"]) == 2
    assert "chains" not in family


def test_the_plan_carries_costs_of_every_strategy_and_terms_of_every_slice(running: RunningService) -> None:
    for path in ("/plan", f"/plan/versions/{running.ok('GET', '/plan', 200)['version']}"):
        family = family_of(running.ok("GET", path, 200))
        assert set(family["costs"]) == {"unshared", "pullup", "pushdown", "mem-opt", "cpu-opt"}
        assert {"memory_rows", "memory_bytes", "cpu_comparisons_per_s", "cpu_s_per_s"} <= set(family["cost"])
        for piece in family["chains"]["a"]:
            for unit in ("comparisons_per_s", "cpu_s_per_s"):
                assert set(piece["cost"][unit]) == {"probe", "purge", "route", "union", "filter", "system"}
