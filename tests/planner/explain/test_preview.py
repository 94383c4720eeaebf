"""Previews: costs of every strategy, what decided, and what would have to be done."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from catalog.values.calibration import Calibration
from catalog.values.plan import Boundaries
from catalog.values.query import UNBOUNDED_US, Query
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.cost import CostModelName
from planner.errors import InvalidChain
from planner.explain.documents.preview_document import dry_run_document, preview_document
from planner.explain.explain import decisive
from planner.explain.preview import Preview, preview
from planner.explain.rendering.cost_table import cost_table, decision_text, statistics_text
from planner.families.texts.display import family_text
from tests.builders import SECOND_US, a_query_s
from tests.planner.costs.paper import TwoQueries, pullup_cost, pushdown_cost, state_slice_cost
from tests.planner.values import STREAMS

LOW = '"v" < 0.2'
FAMILY = build_plan([a_query_s(1)], STREAMS).families[0].id

#: The paper's setting: Q1 without, Q2 with a selection on A.
SETTING = TwoQueries(rate_per_s=50, w1_s=10, w2_s=30, filter_selectivity=0.2, join_selectivity=0.025)
QUERIES = [a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW)]
PROFILE = Profile(
    streams=(
        StreamProfile(1, Measure(50.0), Measure(48.0)),
        StreamProfile(2, Measure(50.0, "measured", 4_000_000), Measure(40.0)),
    ),
    filters=(FilterProfile(1, LOW, Measure(0.2, "sampled", 1_000_000)),),
    families=(FamilyProfile(FAMILY, Measure(0.025)),),
)


PRICES = Calibration(**{f.name: 1e-6 for f in fields(Calibration) if f.name.startswith("per_")})


BY_PAPER = Objective(cost_model="paper")


def weighing(c_sys: float, cost_model: CostModelName = "paper") -> Objective:
    return Objective("cpu-opt", cost_model=cost_model, c_sys=c_sys)


def previewed(
    queries: list[Query] | None = None,
    objective: Objective = BY_PAPER,
    **options: Any,
) -> Preview:
    options = {"calibration": PRICES, "profile": PROFILE} | options
    return preview(QUERIES if queries is None else queries, STREAMS, objective=objective, **options)


def costs(found: Preview) -> dict[str, Any]:
    (family,) = preview_document(found, now_us=5_000_000)["plan"]["families"]
    assert isinstance(family, dict)
    return family["costs"]


def test_the_paper_s_setting_costs_what_its_equations_say() -> None:
    found = costs(previewed())
    for strategy, paper in (
        ("pullup", pullup_cost(SETTING)),
        ("pushdown", pushdown_cost(SETTING)),
        ("mem-opt", state_slice_cost(SETTING)),
    ):
        assert found[strategy]["memory_rows"] == pytest.approx(paper.memory_rows), strategy
        assert found[strategy]["cpu_comparisons_per_s"] == pytest.approx(paper.cpu_comparisons_per_s), (
            strategy
        )


def test_terms_add_up_to_the_cost_of_a_strategy() -> None:
    for name, cost in costs(previewed(objective=Objective(cost_model="paper", c_sys=0.5))).items():
        terms = cost["terms"]
        assert cost["cpu_comparisons_per_s"] == pytest.approx(sum(terms["comparisons_per_s"].values())), name
        assert cost["cpu_s_per_s"] == pytest.approx(sum(terms["cpu_s_per_s"].values())), name


def test_slices_carry_their_terms_and_what_they_hold() -> None:
    (family,) = preview_document(previewed(), now_us=0)["plan"]["families"]
    slices = [s for side in ("a", "b") for s in family["chains"][side]]
    assert sum(s["cost"]["memory_rows"] for s in slices) == pytest.approx(family["cost"]["memory_rows"])
    assert slices[0]["cost"]["comparisons_per_s"]["probe"] == pytest.approx(50 * 50 * 10)
    assert set(slices[0]["cost"]["cpu_s_per_s"]) == {"probe", "purge", "route", "union", "filter", "system"}


def test_a_dry_run_sets_the_costs_before_beside_those_after() -> None:
    before = previewed(QUERIES[:1])
    after = previewed(previous=before.plan, held={})
    document = dry_run_document(after, before.reports)
    assert (document["previous_version"], document["plan_version"]) == (1, 2)
    assert [document["rows_to_move"], document["bytes_to_move"]] == [0, None]
    for when, found in (("before", before), ("after", after)):
        (report,) = found.reports
        (of_family,) = document["cost"][when]["families"].values()
        assert of_family["memory_rows"] == pytest.approx(report.cost.memory_rows), when
        assert document["cost"][when]["cpu_s_per_s"] == pytest.approx(report.cost.cpu_s.total), when


def test_rows_decide_for_mem_opt_and_a_term_for_cpu_opt() -> None:
    (report,) = previewed().reports
    assert report.decided_by is not None
    assert (report.decided_by.term, report.decided_by.unit) == ("memory_rows", "rows")
    (report,) = previewed(objective=weighing(c_sys=100)).reports
    assert report.decided_by is not None
    assert report.decided_by.unit == "comparisons/s"


def test_overhead_per_slice_merges_slices_and_is_named() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 11)]
    (report,) = previewed(queries, weighing(c_sys=100)).reports
    assert [len(j.chain_a) for j in report.family.joins] == [1]
    mem_opt = next(a for a in report.alternatives if a.name == "mem-opt")
    chosen = next(a for a in report.alternatives if a.name == "cpu-opt")
    decision = decisive(chosen, mem_opt, "paper")
    assert decision is not None
    assert (decision.term, decision.against) == ("system", "mem-opt")
    assert decision.other > decision.chosen


def test_equal_costs_are_set_apart_by_nothing() -> None:
    (report,) = previewed([a_query_s(1)]).reports
    by_name = {a.name: a for a in report.alternatives}
    assert decisive(by_name["mem-opt"], by_name["cpu-opt"], "paper") is None
    assert report.decided_by is None or report.decided_by.against != "cpu-opt"


def test_no_chain_beats_cpu_opt() -> None:
    queries = [a_query_s(i, w) for i, w in enumerate((5, 10, 30, 60), start=1)]
    for objective in ("paper", "calibrated"):
        priced = weighing(20, "paper" if objective == "paper" else "calibrated")
        best = costs(previewed(queries, priced))["cpu-opt"]
        unit = "cpu_comparisons_per_s" if objective == "paper" else "cpu_s_per_s"
        for mask in range(8):
            ends = [w * SECOND_US for n, w in enumerate((5, 10, 30)) if mask >> n & 1] + [60 * SECOND_US]
            chains = {FAMILY: {"a": ends, "b": ends}}
            (family,) = preview_document(previewed(queries, priced, chains=chains), now_us=0)["plan"][
                "families"
            ]
            assert family["chain"][unit] >= best[unit] * (1 - 1e-9)


def test_a_chain_that_ends_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidChain, match="largest window"):
        previewed(chains={FAMILY: {"a": [10 * SECOND_US], "b": [30 * SECOND_US]}})


def test_a_preview_names_what_has_to_be_done_and_how_many_rows_it_moves() -> None:
    running = build_plan([a_query_s(1, 10), a_query_s(2, 30)], STREAMS)
    held = {(FAMILY, "shared", side, number): 100.0 for side in ("a", "b") for number in (1, 2)}
    found = previewed([a_query_s(1, 10), a_query_s(2, 30), a_query_s(3, 20)], previous=running, held=held)
    document = preview_document(found, now_us=0)
    assert document["previous_version"] == 1
    assert document["rows_moved"] == 100
    assert [p["text"] for p in document["primitives"]] == [
        "split A at 20s",
        "split B at 20s",
        "set routes to q1, q2, q3",
    ]
    assert document["primitives"][0] == {
        "type": "split",
        "family": "A.k = B.k",
        "family_id": FAMILY,
        "join": "shared",
        "side": "a",
        "at_us": 20 * SECOND_US,
        "text": "split A at 20s",
    }


def test_rows_that_nobody_counted_are_not_guessed() -> None:
    running = build_plan([a_query_s(1, 10)], STREAMS)
    changed = previewed([a_query_s(1, 10), a_query_s(2, 30)], previous=running)
    assert preview_document(changed, now_us=0)["rows_moved"] is None
    assert preview_document(previewed(), now_us=0)["rows_moved"] == 0


def test_every_statistic_tells_its_origin_and_age() -> None:
    found = preview_document(previewed(), now_us=5_000_000)["statistics"]
    assert found["streams"]["A"]["rate"] == {"value": 50.0, "origin": "given", "age_s": None}
    assert found["streams"]["B"]["rate"] == {"value": 50.0, "origin": "measured", "age_s": 1.0}
    assert found["filters"] == {"A.v < 0.2": {"value": 0.2, "origin": "sampled", "age_s": 4.0}}
    assert found["join_selectivity"]["A.k = B.k"]["value"] == 0.025
    assert found["batch_s"]["origin"] == "assumed"


def test_a_preview_is_json_and_has_no_infinity() -> None:
    query = replace(a_query_s(1), a=replace(a_query_s(1).a, window_us=UNBOUNDED_US))
    document = preview_document(previewed([query, a_query_s(2, 10)]), now_us=0)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    (family,) = document["plan"]["families"]
    assert family["costs"]["mem-opt"]["joins"][0]["boundaries_s"] == {"a": [10.0, None], "b": [10.0]}


def test_the_table_sets_every_strategy_beside_the_chosen_one() -> None:
    chains = {FAMILY: {"a": [30 * SECOND_US], "b": [30 * SECOND_US]}}
    (report,) = previewed(chains=chains).reports
    table = [line.split() for line in cost_table(report)]
    assert [row[0] for row in table] == [
        "strategy",
        "unshared",
        "pullup",
        "pushdown",
        "mem-opt",
        "cpu-opt",
        "chain",
    ]
    by_name = {row[0]: row for row in table}
    assert by_name["mem-opt"][1] == "2,200"
    assert by_name["mem-opt"][-1] == "chosen"
    assert by_name["pullup"][-3:] == ["memory", "rows", "+800"]
    assert decision_text(report).startswith(
        "mem-opt (fewest rows): decided by memory rows, 2,200 rows against "
    )
    text = family_text(report.family, {1: "A", 2: "B", 3: "C"})
    assert statistics_text(report, text) == [
        "A: 50 rows/s (given), 48 bytes/row (given)",
        "  0.2 pass A.v < 0.2 (sampled)",
        "B: 50 rows/s (measured), 40 bytes/row (given)",
        "0.025 of all pairs join (given), 1 s of event time per batch (assumed), 2 buckets",
    ]


def test_a_pinned_chain_has_its_own_cost_and_the_strategies_have_theirs() -> None:
    plain, pins = previewed(), {FAMILY: Boundaries((15 * SECOND_US,), (15 * SECOND_US,))}
    found = previewed(objective=Objective(cost_model="paper", pinned=pins))
    (own,), (report,) = plain.reports, found.reports
    assert (own.planned.name, report.planned.name) == ("mem-opt", "plan")
    assert [s.w_end_us // SECOND_US for s in report.planned.joins[0].chain_a] == [15, 30]
    assert report.planned.joins == found.plan.families[0].joins
    assert report.alternatives == own.alternatives

    (family,) = preview_document(found, now_us=0)["plan"]["families"]
    assert family["costs"].keys() == costs(plain).keys()
    for name, cost in costs(plain).items():
        assert cost["joins"] == family["costs"][name]["joins"], name
        assert cost["memory_rows"] == family["costs"][name]["memory_rows"], name
    # Rows of 10 s to 15 s need no filter any more: 5 s of A's 50 rows/s, of which a fifth passed.
    assert family["cost"]["memory_rows"] - family["costs"]["mem-opt"]["memory_rows"] == pytest.approx(
        5 * 50 * 0.8
    )
    assert family["costs"]["mem-opt"]["set_apart_by"]["term"] == "memory_rows"
    assert family["decided_by"]["against"] == "mem-opt"

    table = [line.split() for line in cost_table(report)]
    assert [row[0] for row in table[1:]] == ["unshared", "pullup", "pushdown", "mem-opt", "cpu-opt", "plan"]
    assert [row[0] for row in table if row[-1] == "chosen"] == ["plan"]
    assert decision_text(report).startswith(
        "plan (pinned or retained boundaries): beaten by mem-opt by memory"
    )


def test_a_chain_that_was_chosen_by_other_statistics_is_set_apart_from_what_its_strategy_chooses_now() -> (
    None
):
    queries = [a_query_s(1, 10), a_query_s(2, 11)]
    running = previewed(queries, weighing(c_sys=0)).plan
    found = previewed(queries, weighing(c_sys=100), previous=running, keep=[FAMILY], chains={})
    (report,) = found.reports
    assert len(report.planned.joins[0].chain_a) == 2
    assert report.planned.name == "plan"
    (best,) = (a for a in report.alternatives if a.name == "cpu-opt")
    assert len(best.joins[0].chain_a) == 1
    assert best.cost.comparisons.total < report.cost.comparisons.total
    assert decision_text(report).startswith("plan (cpu-opt on other statistics): beaten by ")
