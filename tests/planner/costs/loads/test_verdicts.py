"""Expected marks, verdicts and rows of absence joins, against counts of the engine's own pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.values.statistics import FamilyProfile, Measure
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.cost_models import CostModels
from planner.costs.loads.verdicts import VerdictLoad, verdict_load
from planner.costs.paper_model import PaperModel
from planner.costs.rates import FamilyRates, SideRates, Unmatched, family_rates
from service.calibrate.workload import SyntheticWorkload, WindowQuery
from tests.pipeline import Pipeline, Ran

BATCH_S, RATE, KEYS, LONGEST_S = 1.0, 2_000.0, 20_000, 6
WINDOWS_S = (2, 4, LONGEST_S)


@given(
    st.lists(st.tuples(st.floats(0.1, 5), st.floats(0, 2), st.floats(0, 9)), max_size=3),
    st.none() | st.floats(0.5, 50),
    st.floats(0, 20),
)
def test_rows_last_as_long_as_they_are_left(
    pieces: list[tuple[float, float, float]], open_s: float | None, age_s: float
) -> None:
    starts = np.cumsum([0.0, *(length for length, _, _ in pieces)])
    unmatched = tuple(
        Unmatched(start, rate, behind)
        for start, (_, rate, behind) in zip(starts.tolist(), pieces, strict=False)
    )
    side = SideRates(
        Measure(1), Measure(1), {}, open_s=None if open_s is None else Measure(open_s), unmatched=unmatched
    )
    ages = (np.arange(40_000) + 0.5) * age_s / 40_000
    summed = side.left(ages).sum() * age_s / 40_000
    assert side.lasting_s(np.array([age_s]))[0] == pytest.approx(summed, rel=1e-3, abs=1e-3)


def planned_and_run(join: str, directory: Path) -> tuple[FamilyRates, VerdictLoad, list[Ran], float]:
    """Run queries of one kind until their windows are full, and ten batches more."""
    rows = SyntheticWorkload("keys", (WindowQuery(LONGEST_S, LONGEST_S),), RATE, RATE, BATCH_S, KEYS)
    selected = "A.ts AS ats, B.ts AS bts" if join == "LEFT JOIN" else "A.ts AS ats"
    texts = [
        f"SELECT {selected} FROM A [RANGE {w} SECONDS] {join} B [RANGE {w} SECONDS] ON A.k = B.k"
        for w in WINDOWS_S
    ]
    queries = [bind(text, rows.streams, name=f"q{n}", query_id=n) for n, text in enumerate(texts, 1)]
    streams = {stream.id: stream for stream in rows.streams.values()}
    plan = build_plan(
        queries, streams, objective=Objective("mem-opt", cost_model="paper"), profile=rows.profile
    )
    family = plan.families[0]
    known = replace(rows.profile, families=(FamilyProfile(family.id, Measure(1 / KEYS)),))
    rates = family_rates(family, family.stream_a, family.stream_b, known)
    cost = CostModels(PaperModel(), PaperModel()).family_cost(family, rates)
    fill = rows.batches_to_fill + 2
    pipeline = Pipeline(plan, rows.buckets, directory)
    made = next(rows.batches(directory, at_once=fill + 10))
    ran = [pipeline.step(batch.pieces) for batch in made][fill:]
    pipeline.close()
    return rates, verdict_load(family, rates), ran, cost.memory_rows


def per_s(ran: list[Ran], of: str) -> float:
    return float(
        np.mean([sum(getattr(c, of) for report in batch.reports for c in report.absence) for batch in ran])
        / BATCH_S
    )


def test_absent_rows_and_marks_come_as_often_as_expected(tmp_path: Path) -> None:
    rates, load, ran, memory_rows = planned_and_run("LEFT JOIN", tmp_path)
    assert load.verdicts_per_s == RATE * len(WINDOWS_S)
    assert per_s(ran, "absent") == pytest.approx(load.given_per_s, rel=0.05)
    assert per_s(ran, "marks") * BATCH_S == pytest.approx(load.marks_held, rel=0.25)
    assert rates.a.unmatched == rates.b.unmatched == ()
    assert np.mean([batch.state_rows for batch in ran]) == pytest.approx(memory_rows, rel=0.1)


@pytest.mark.parametrize("join", ["LEFT SEMI JOIN", "LEFT ANTI JOIN"])
def test_rows_of_semi_and_anti_joins_leave_as_early_as_expected(join: str, tmp_path: Path) -> None:
    rates, load, ran, memory_rows = planned_and_run(join, tmp_path)
    assert [each.from_s for each in rates.a.unmatched] == [0.0, 2.0, 4.0]
    assert rates.b.unmatched == ()
    whole = 2 * RATE * LONGEST_S
    held = np.mean([batch.state_rows for batch in ran])
    assert memory_rows < 0.9 * whole
    # The engine looks for rows to drop now and then, so it holds some more.
    assert memory_rows < held < 1.2 * memory_rows
    given = np.mean([batch.pairs for batch in ran]) / BATCH_S
    assert given == pytest.approx(load.given_per_s, rel=0.1)
