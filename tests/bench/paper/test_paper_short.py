"""State-Slice §7 at small sizes: what must come out in counted rows and comparisons, on any machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.families.families import side_chain
from tests.bench.paper.counted import expected_cost
from tests.bench.paper.experiments import C_SYS_AT_PAPER_RATES, MANY, MEM_OPT, THREE, measured_in, table_3
from tests.bench.paper.measure import Shape, batches_of, measure
from tests.bench.paper.report import FIGURE_11, SLICE, below, by_strategy, read, write_report
from tests.bench.paper.savings import figure_11, savings
from tests.bench.paper.setting import (
    BY_NAME,
    FILTER_SELECTIVITIES,
    MANY_QUERIES_JOIN_SELECTIVITY,
    RATES_PER_S,
    STREAMS,
    THREE_WINDOWS_S,
    TWELVE_WINDOWS_S,
    Setting,
    many_windows_s,
    plan_of,
)
from tests.bench.reports import write_rows
from tests.pipeline import race
from tests.planner.costs.paper import PaperCost, TwoQueries, pullup_cost, pushdown_cost, state_slice_cost

#: Large batches and the paper's own rates, or less: a cell takes a tenth of a second.
SHAPE = Shape(seconds=36.0, batch_s=3.0)
FACTORS = {0.025: 1.0, 0.1: 0.5, 0.4: 0.25}
#: C_sys of the paper's model, one chain each.
C_SYS = (0.0, 0.5, 5.0)
#: Rows are random and come in batches: of two chains of one cost by the model, one counts a little more.
TIE = 0.002


@settings(deadline=None)
@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_equation_4_follows_from_equations_1_to_3_at_large_rates(
    rho: float, sigma: float, join: float
) -> None:
    # So large a λ that the terms linear in it vanish, as Eq. 4 leaves them out.
    setting = TwoQueries(1e9, rho * 1000, 1000, sigma, join)
    up, down, sliced = (f(setting) for f in (pullup_cost, pushdown_cost, state_slice_cost))

    def saved(alternative: PaperCost, what: str) -> float:
        cost = getattr(alternative, what)
        return float((cost - getattr(sliced, what)) / cost)

    found = savings(rho, sigma, join)
    assert found.memory_over_pullup == pytest.approx(saved(up, "memory_rows"), abs=1e-9)
    assert found.memory_over_pushdown == pytest.approx(saved(down, "memory_rows"), abs=1e-9)
    assert found.cpu_over_pullup == pytest.approx(saved(up, "cpu_comparisons_per_s"), abs=1e-6)
    assert found.cpu_over_pushdown == pytest.approx(saved(down, "cpu_comparisons_per_s"), abs=1e-6)


@pytest.mark.parametrize("distribution", THREE_WINDOWS_S)
@pytest.mark.parametrize("sigma", FILTER_SELECTIVITIES)
def test_state_of_three_queries_saves_what_equation_4_says(distribution: str, sigma: float) -> None:
    """Q2 and Q3 have one selection, so the state is that of two queries with the windows W1 and W3."""
    windows_s = THREE_WINDOWS_S[distribution]
    setting = Setting(distribution, windows_s, 40, 1.0, 0.1, sigma)
    up, down, sliced = (
        expected_cost(setting, plan_of(setting, strategy, SHAPE.batch_s), SHAPE.batch_s).memory_rows
        for strategy in ("pullup", "pushdown", "mem-opt")
    )
    by_equation = savings(windows_s[0] / windows_s[-1], sigma, 0.1)
    assert (up - sliced) / up == pytest.approx(by_equation.memory_over_pullup)
    assert (down - sliced) / down == pytest.approx(by_equation.memory_over_pushdown)


@pytest.mark.parametrize("rate_per_s", RATES_PER_S)
def test_no_c_sys_gives_all_chains_that_section_7_3_reports(rate_per_s: float) -> None:
    """Uniform windows stay apart up to a C_sys at which small-large ones have more than two slices.

    Merging the first two uniform slices, 5 s, saves 2 λ each of purge, union and C_sys and routes 2 λ² 5 S_1.
    A higher C_sys merges more, so none leaves the uniform windows apart and small-large ones in two slices.
    """

    def ends_s(distribution: str, c_sys: float) -> tuple[float, ...]:
        windows_s = TWELVE_WINDOWS_S[distribution]
        setting = Setting(distribution, windows_s, rate_per_s, 1.0, MANY_QUERIES_JOIN_SELECTIVITY, None)
        (family,) = plan_of(setting, "cpu-opt", SHAPE.batch_s, c_sys).families
        (join,) = family.joins
        return tuple(s.w_end_us / 1e6 for s in side_chain(join, "a"))

    assert ends_s("uniform", C_SYS_AT_PAPER_RATES) == TWELVE_WINDOWS_S["uniform"], "as in Figure 19 (a)"
    largest = rate_per_s * 5 * MANY_QUERIES_JOIN_SELECTIVITY - 2
    assert len(ends_s("uniform", largest - 0.01)) == 12
    assert len(ends_s("uniform", largest + 0.01)) < 12
    assert len(ends_s("small-large", largest + 0.01)) > 2


@pytest.mark.slow
def test_state_slice_needs_the_least_in_every_setting_and_the_report_says_so(tmp_path: Path) -> None:
    """Every combination of Table 3, with the four rates in turn."""
    cells = [replace(s, factor=FACTORS[s.join_selectivity]) for s in table_3()]
    chosen = [s for n, s in enumerate(cells) if n % len(RATES_PER_S) == n // len(RATES_PER_S) % 4]
    write_rows(tmp_path / "figure17_18.csv", (row for s in chosen for row in measured_in(s, THREE, SHAPE)))
    three = read(tmp_path, "figure17_18")
    for what in ("state_rows", "comparisons"):
        assert set(by_strategy(three, what).idxmin(axis=1)) == {SLICE}
    check_counts(three)
    setting = Setting("mostly-small", many_windows_s("mostly-small", 12), 20, 1.0, 0.025, None)
    write_rows(tmp_path / "figure19.csv", measured_in(setting, MANY, SHAPE))
    write_rows(tmp_path / f"{FIGURE_11}.csv", figure_11())
    text = write_report(tmp_path)
    assert "| fewer rows than | 27 of 27 |" in text
    assert "| mostly-small | 12 | 12 |" in text
    assert len(list(tmp_path.glob("*.png"))) == 6


def test_many_queries_are_counted_as_the_paper_expects_and_cpu_opt_never_needs_more(tmp_path: Path) -> None:
    """Skewed and even windows, with and without selection; a chain per C_sys."""
    rows = []
    for distribution, queries, sigma in (
        ("uniform", 12, None),
        ("mostly-small", 24, None),
        ("mostly-small", 24, 0.5),
        ("small-large", 36, None),
    ):
        setting = Setting(distribution, many_windows_s(distribution, queries), 20, 1.0, 0.025, sigma)
        chains = {str(c): plan_of(setting, "cpu-opt", SHAPE.batch_s, c) for c in C_SYS}
        rows += measure(setting, chains | {MEM_OPT: plan_of(setting, "mem-opt", SHAPE.batch_s)}, SHAPE)
    write_rows(tmp_path / "many.csv", rows)
    many = read(tmp_path, "many")
    check_counts(many)
    for c_sys in C_SYS:
        counted = many.assign(comparisons=many["comparisons"] + c_sys * many["operator_males"])
        saved = below(counted, "comparisons", str(c_sys), [MEM_OPT])[MEM_OPT]
        assert (saved >= -TIE).all()
        if c_sys == 5.0:
            assert (saved[saved.index.get_level_values("distribution") != "uniform"] > 0.05).all()


def check_counts(rows: pd.DataFrame) -> None:
    """A few rows per second for a few seconds vary much, but not on average over settings."""
    assert (rows["state_rows"] / rows["expected_state_rows"]).mean() == pytest.approx(1, abs=0.05)
    assert (rows["comparisons"] / rows["expected_comparisons"]).mean() == pytest.approx(1, abs=0.1)


def test_results_are_those_of_duckdb(tmp_path: Path) -> None:
    setting = Setting("uniform", (10.0, 20.0, 30.0), 20, 0.5, 0.4, 0.5)
    rows = batches_of(setting, SHAPE)
    ran = race({"mem-opt": plan_of(setting, "mem-opt", SHAPE.batch_s)}, rows, tmp_path)["mem-opt"]
    with duckdb.connect() as connection:
        for name in STREAMS:
            tables = [r.table for batch in rows for r in batch if r.stream_id == BY_NAME[name].id]
            connection.register(name, pa.concat_tables(tables))
        for number, window_s in enumerate(setting.windows_s, 1):
            passes = "true" if number == 1 else "A.v < 0.5"
            counted = connection.execute(
                f"SELECT count(*) FROM A, B WHERE A.k = B.k AND {passes} "
                f"AND abs(epoch_us(A.ts) - epoch_us(B.ts)) < {round(window_s * 1_000_000)}"
            ).fetchone()
            assert counted == (sum(batch.results.get(number, 0) for batch in ran),)
