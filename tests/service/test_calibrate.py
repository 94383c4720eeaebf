"""Calibration: the pipeline without Spark, the work it counts, and the fit."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from catalog.store.store import Store
from catalog.values.calibration import Calibration
from planner.costs.calibration.calibrated import CONSTANTS, Work, input_work, slice_work
from planner.costs.calibration.shipped import SHIPPED
from planner.costs.loads.loads import join_input, slice_loads
from planner.costs.rates import family_rates
from planner.strategies.strategies import STRATEGIES
from service.calibrate.command import calibrate_command, report
from service.calibrate.counted_work import counted_work
from service.calibrate.designs import designs
from service.calibrate.fit import Fit, MeasuredRun, fit
from service.calibrate.pipeline import Measured, measure
from service.calibrate.runs import plans
from service.calibrate.workload import Selection, SyntheticWorkload, WindowQuery
from service.config.calibration import calibration_of, store_calibration
from service.config.settings import StorageSettings

QUERIES = (
    WindowQuery(4.3, 4.3),
    WindowQuery(7.9, 6.1, Selection("v", 0.3)),
    WindowQuery(12.4, 12.4, Selection("u", 0.5), Selection("v", 0.6), columns=1),
)
WORKLOAD = SyntheticWorkload("three queries", QUERIES, 300, 200, 1.0, 50, columns=2)


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    planned = plans(WORKLOAD, tuple(STRATEGIES))
    return {str(name): found for name, found in measure(WORKLOAD, planned, batches=20).items()}


def test_every_strategy_takes_time_and_makes_results(measured: dict[str, Measured]) -> None:
    for found in measured.values():
        assert found.batches == 20
        assert found.pack_s > 0.0
        assert found.chain_s > 0.0
        assert found.stored_segments > 0


def test_strategies_that_share_pairs_make_the_same_pairs(measured: dict[str, Measured]) -> None:
    pairs = {name: sum(s.results for s in found.slices.values()) for name, found in measured.items()}
    assert pairs["mem-opt"] == pairs["cpu-opt"] == pairs["pullup"] == pairs["pushdown"] > 0
    assert pairs["unshared"] > pairs["mem-opt"]  # a pair is written for each of its queries


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_work_counted_is_the_work_expected(measured: dict[str, Measured], strategy: str) -> None:
    """No clock is involved: what the operators did against what statistics say they would do."""
    (plan,) = (plan for name, plan in plans(WORKLOAD, tuple(STRATEGIES)).items() if name == strategy)
    (family,) = plan.families
    rates = family_rates(family, family.stream_a, family.stream_b, WORKLOAD.profile)
    expected = input_work(join_input(family, family.joins, rates))
    for join in family.joins:
        for load in slice_loads(family, join, rates):
            expected += slice_work(load)
    counted = counted_work(WORKLOAD, plan, measured[strategy])
    # Encoding has a head of some 500 bytes per segment, which the width of a row does not tell.
    tolerances = dict.fromkeys(CONSTANTS, 0.15) | {"per_stored_byte": 0.5}
    for name, count, hope in zip(CONSTANTS, astuple(counted), astuple(expected), strict=True):
        assert hope == pytest.approx(count, rel=tolerances[name], abs=1e-9), name


def test_a_workload_states_the_statistics_of_its_rows() -> None:
    profile = WORKLOAD.profile
    assert [s.rate_per_s.value for s in profile.streams] == [300, 200]
    assert sorted(f.selectivity.value for f in profile.filters) == [0.3, 0.5, 0.6]
    assert profile.families[0].join_selectivity.value == pytest.approx(1 / 50)
    assert profile.batch_s.value == 1.0


def _runs(calibration: Calibration, count: int, *, noise: float = 0.0) -> list[MeasuredRun]:
    """Runs of random work that cost exactly what the constants say, up to the noise."""
    rng = np.random.default_rng(1)
    constants = np.array(astuple(calibration)[: len(CONSTANTS)])
    runs = []
    for number in range(count):
        amounts = np.exp(rng.normal(0.0, 1.5, len(CONSTANTS))) / constants
        packs = np.array([name in PACK for name in CONSTANTS])
        factor = 1.0 + noise * rng.standard_normal(2)
        pack_s, chain_s = (float(amounts[of] @ constants[of]) for of in (packs, ~packs))
        runs.append(
            MeasuredRun(f"run {number}", Work(*amounts.tolist()), pack_s * factor[0], chain_s * factor[1])
        )
    return runs


PACK = {"per_partition", "per_filtered_side", "per_filter_text", "per_packed_row", "per_filter"}
KNOWN = replace(SHIPPED, **dict(zip(CONSTANTS, (1e-6 * (n + 1) for n in range(len(CONSTANTS))), strict=True)))


def test_the_fit_finds_the_constants_that_made_the_times() -> None:
    fitted = fit(_runs(KNOWN, 60), now_us=7)
    np.testing.assert_allclose(
        astuple(fitted.calibration)[: len(CONSTANTS)], astuple(KNOWN)[: len(CONSTANTS)]
    )
    assert fitted.calibration.fitted_at_us == 7
    assert fitted.calibration.median_error == pytest.approx(0.0, abs=1e-9)


def test_a_run_that_something_disturbed_moves_no_constant_much() -> None:
    runs = _runs(KNOWN, 80)
    runs[3] = replace(runs[3], chain_s=runs[3].chain_s * 20, pack_s=runs[3].pack_s * 20)
    fitted = fit(runs, now_us=0)
    assert fitted.calibration.median_error < 0.02


def test_no_constant_is_negative_however_noisy_the_clock() -> None:
    fitted = fit(_runs(KNOWN, 60, noise=0.3), now_us=0)
    assert min(astuple(fitted.calibration)) >= 0.0


def test_the_report_names_every_constant_and_the_errors() -> None:
    runs = _runs(KNOWN, 60)
    text = "\n".join(report(Fit(KNOWN, tuple(0.01 * n for n in range(60))), runs))
    assert all(name in text for name in CONSTANTS)
    assert "median 29.5%" in text
    assert "worst 59.0% (run 59)" in text


def test_a_calibration_outlives_its_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with Store.open(url) as store:
        assert calibration_of(store) == SHIPPED
        store_calibration(store, KNOWN)
    with Store.open(url, migrate=False) as store:
        assert calibration_of(store) == KNOWN


def test_designs_are_the_same_every_time_and_cover_every_constant() -> None:
    one, other = (list(designs(8, seed=3)) for _ in range(2))
    assert one == other
    assert {s for design in one for s in design.strategies} >= {"mem-opt", "pullup", "pushdown", "unshared"}


@pytest.mark.slow
def test_the_command_calibrates_keeps_and_prints(tmp_path: Path) -> None:
    said: list[str] = []
    found = calibrate_command(StorageSettings(data_dir=tmp_path), quick=True, say=said.append)
    assert found.median_error < 0.5
    assert found.per_batch > 0.0
    assert any(line.startswith("per_build ") for line in said)
    with Store.open(f"sqlite:///{tmp_path / 'catalog.db'}", migrate=False) as store:
        assert calibration_of(store) == found
