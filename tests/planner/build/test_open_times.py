"""CPU-Opt knows that the slices of streams that close keys are the emptier the older their rows are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.values.plan import Plan
from catalog.values.statistics import FamilyProfile, Measure, Profile
from catalog.values.stream import Punctuations
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from planner.costs.cost import CostModelName
from planner.explain.preview import explain_plan
from planner.families.families import family_of
from tests.builders import SECOND_US, a_query_s
from tests.planner.values import STREAMS

QUERIES = [a_query_s(number, 60 * number) for number in (1, 2, 4, 8, 16, 32)]


def planned(
    open_s: int | None, on: str = "k", model: CostModelName = "paper", profile: Profile | None = None
) -> Plan:
    open_time_us = None if open_s is None else open_s * SECOND_US
    contract = Punctuations(((on,),), open_time_us=open_time_us)
    streams = {i: replace(stream, punctuations=contract) for i, stream in STREAMS.items()}
    objective = Objective("cpu-opt", cost_model=model)
    return build_plan(QUERIES, streams, objective=objective, profile=profile or Profile())


def ends_s(plan: Plan) -> list[int]:
    return [piece.w_end_us // SECOND_US for piece in plan.families[0].joins[0].chain_a]


def rows(plan: Plan, profile: Profile | None = None) -> list[float]:
    models = Objective("cpu-opt", cost_model="paper").models(SHIPPED)
    (report,) = explain_plan(plan, profile or Profile(), models).values()
    join = plan.families[0].joins[0]
    return [report.slices[join.id, "a", piece.w_start_us].memory_rows for piece in join.chain_a]


def test_far_slices_that_are_nearly_empty_are_merged() -> None:
    assert ends_s(planned(None)) == [60, 120, 240, 480, 960, 1920]
    assert ends_s(planned(30)) == [60, 120, 240, 1920]
    assert rows(planned(30)) == pytest.approx([25_940, 3_511, 539, 10], abs=1)
    assert ends_s(planned(300, model="calibrated")) == [1920]
    assert ends_s(planned(30, model="calibrated")) == [240, 1920]


def test_punctuations_that_close_no_key_change_no_plan() -> None:
    assert ends_s(planned(30, on="v")) == ends_s(planned(None))
    assert rows(planned(30, on="v")) == rows(planned(None))


def test_a_measured_open_time_counts_and_a_declared_one_counts_more() -> None:
    known = FamilyProfile(family_of(QUERIES[0]), Measure(1e-3), open_a_s=Measure(30.0, "measured"))
    profile = Profile(families=(known,))
    assert rows(planned(None, profile=profile), profile) == pytest.approx([25_940, 3_511, 539, 10], abs=1)
    assert sum(rows(planned(5, profile=profile), profile)) == pytest.approx(5_000)
