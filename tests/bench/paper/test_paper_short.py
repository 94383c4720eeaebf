"""State-Slice §7 at small sizes: what must come out in counted rows and comparisons, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import duckdb
import pyarrow as pa
import pytest

from catalog.values.plan import Plan, Strategy
from planner.costs.paper_savings import savings
from planner.families.families import side_chain
from tests.bench.paper.arrivals import STREAMS
from tests.bench.paper.comparisons import Point, mean, points
from tests.bench.paper.counted import expected_cost
from tests.bench.paper.figure_11 import Saving, figure_11_savings
from tests.bench.paper.many_queries import (
    C_SYS_AT_PAPER_RATES,
    CPU_OPT_CALIBRATED,
    CPU_OPT_PAPER,
    MEM_OPT,
    measure_many_queries,
)
from tests.bench.paper.measure import Measurement, Shape, batches_of, measure
from tests.bench.paper.plans import BY_NAME, plan_of
from tests.bench.paper.report import FIGURE_11, FIGURE_17_18, FIGURE_19, write_report
from tests.bench.paper.setting import (
    FILTER_SELECTIVITIES,
    JOIN_SELECTIVITIES,
    MANY_QUERIES_JOIN_SELECTIVITY,
    RATES_PER_S,
    THREE_WINDOWS_S,
    TWELVE_WINDOWS_S,
    Setting,
    key_shares,
    many_windows_s,
)
from tests.bench.paper.three_queries import measure_three_queries, three_query_settings
from tests.bench.reports import read_rows, write_rows
from tests.pipeline import race

#: Large batches and the paper's own rates, or less: a cell takes a tenth of a second.
SHAPE = Shape(seconds=36.0, batch_s=3.0)
FACTORS = {0.025: 1.0, 0.1: 0.5, 0.4: 0.25}
#: C_sys of the paper's model, one chain each.
C_SYS = (0.0, 0.5, 5.0)
#: Rows are random and come in batches: of two chains of one cost by the model, one counts a little more.
TIE = 0.002


@pytest.fixture(scope="module")
def three() -> list[Point]:
    """Every combination of Table 3, with the four rates in turn."""
    settings = list(three_query_settings(FACTORS))
    chosen = [s for n, s in enumerate(settings) if n % len(RATES_PER_S) == n // len(RATES_PER_S) % 4]
    assert len(chosen) == 27
    return points(row for setting in chosen for row in measure_three_queries(setting, SHAPE))


@pytest.fixture(scope="module")
def many() -> list[Point]:
    """Skewed and even windows, with and without selection; a chain per C_sys."""
    chosen = (
        ("uniform", 12, None),
        ("mostly-small", 24, None),
        ("mostly-small", 24, 0.5),
        ("small-large", 36, None),
    )
    settings = [
        Setting(distribution, many_windows_s(distribution, queries), 20, 1.0, 0.025, sigma)
        for distribution, queries, sigma in chosen
    ]
    return points(row for setting in settings for row in measure(setting, _chains(setting), SHAPE))


def _chains(setting: Setting) -> dict[str, Plan]:
    """Return Mem-Opt, and CPU-Opt by C_sys."""
    batch_s = SHAPE.batch_s
    cpu_opt = {str(c): plan_of(setting, "cpu-opt", batch_s, c) for c in C_SYS}
    return {MEM_OPT: plan_of(setting, "mem-opt", batch_s)} | cpu_opt


def test_windows_and_selectivities_are_those_printed_in_tables_3_and_4() -> None:
    """The rows of both tables as our copy of the paper's text has them."""
    table_3 = {"mostly-small": "5, 10, 30", "uniform": "10, 20, 30", "mostly-large": "20, 25, 30"}
    table_4 = {
        "uniform": "2.5, 5, 7.5, 10, 12.5, 15, 17.5, 20, 22.5, 25, 27.5, 30",
        "mostly-small": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30",
        "small-large": "1, 2, 3, 4, 5, 6, 25, 26, 27, 28, 29, 30",
    }
    for printed, windows_s in ((table_3, THREE_WINDOWS_S), (table_4, TWELVE_WINDOWS_S)):
        assert {name: tuple(map(float, row.split(", "))) for name, row in printed.items()} == windows_s
    assert (FILTER_SELECTIVITIES, JOIN_SELECTIVITIES) == ((0.2, 0.5, 0.8), (0.025, 0.1, 0.4))
    assert (RATES_PER_S[0], RATES_PER_S[-1], MANY_QUERIES_JOIN_SELECTIVITY) == (20, 80, 0.025)


@pytest.mark.parametrize(
    ("strategy", "joins"),
    [("pullup", [(30,)]), ("pushdown", [(5,), (30,)]), ("mem-opt", [(5, 10, 30)])],
)
def test_three_queries_have_the_joins_of_section_7_2(
    strategy: Strategy, joins: list[tuple[float, ...]]
) -> None:
    """Pull-up joins A[W3] and B[W3]; push-down A[W1], B[W1] and A[W3], B[W3]; Mem-Opt has three slices."""
    setting = Setting("mostly-small", THREE_WINDOWS_S["mostly-small"], 20, 1.0, 0.1, 0.5)
    for side in ("a", "b"):
        assert sorted(_ends_s(plan_of(setting, strategy, SHAPE.batch_s), side)) == joins


def _ends_s(plan: Plan, side: Literal["a", "b"] = "a") -> list[tuple[float, ...]]:
    """Return the ends of the slices of each join, seconds."""
    (family,) = plan.families
    return [tuple(s.w_end_us / 1e6 for s in side_chain(join, side)) for join in family.joins]


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


def _cpu_opt_ends_s(distribution: str, rate_per_s: float, c_sys: float) -> tuple[float, ...]:
    windows_s = TWELVE_WINDOWS_S[distribution]
    setting = Setting(distribution, windows_s, rate_per_s, 1.0, MANY_QUERIES_JOIN_SELECTIVITY, None)
    (ends_s,) = _ends_s(plan_of(setting, "cpu-opt", SHAPE.batch_s, c_sys))
    return ends_s


@pytest.mark.parametrize("rate_per_s", RATES_PER_S)
def test_uniform_windows_are_not_merged_as_in_figure_19_a(rate_per_s: float) -> None:
    ends_s = _cpu_opt_ends_s("uniform", rate_per_s, C_SYS_AT_PAPER_RATES)
    assert ends_s == TWELVE_WINDOWS_S["uniform"]


@pytest.mark.parametrize("rate_per_s", RATES_PER_S)
def test_no_c_sys_gives_all_chains_that_section_7_3_reports(rate_per_s: float) -> None:
    """Uniform windows stay apart up to a C_sys at which small-large ones have more than two slices.

    Merging the first two uniform slices, 5 s, saves 2 λ each of purge, union and C_sys and routes 2 λ² 5 S_1.
    A higher C_sys merges more, so none leaves the uniform windows apart and small-large ones in two slices.
    """
    largest = rate_per_s * 5 * MANY_QUERIES_JOIN_SELECTIVITY - 2
    assert len(_cpu_opt_ends_s("uniform", rate_per_s, largest - 0.01)) == 12
    assert len(_cpu_opt_ends_s("uniform", rate_per_s, largest + 0.01)) < 12
    assert len(_cpu_opt_ends_s("small-large", rate_per_s, largest + 0.01)) > 2


@pytest.mark.slow
def test_state_slice_holds_the_fewest_rows_in_every_setting(three: list[Point]) -> None:
    assert {p.least(lambda m: m.state_rows) for p in three} == {"state-slice"}


@pytest.mark.slow
def test_state_slice_needs_the_fewest_comparisons_in_every_setting(three: list[Point]) -> None:
    assert {p.least(lambda m: m.comparisons) for p in three} == {"state-slice"}


@pytest.mark.slow
def test_what_is_counted_of_three_queries_is_what_the_paper_expects(three: list[Point]) -> None:
    check_counts(three)


def test_what_is_counted_of_many_queries_is_what_the_paper_expects(many: list[Point]) -> None:
    check_counts(many)


def check_counts(measured: list[Point]) -> None:
    """A few rows per second for a few seconds vary much, but not on average over settings."""
    rows = [m for point in measured for m in point.by_strategy.values()]
    assert mean([m.state_rows / m.expected_state_rows for m in rows]) == pytest.approx(1, abs=0.05)
    assert mean([m.comparisons / m.expected_comparisons for m in rows]) == pytest.approx(1, abs=0.1)


def test_cpu_opt_never_needs_more_comparisons_than_mem_opt(many: list[Point]) -> None:
    for point in many:
        for c_sys in C_SYS:
            saved = point.saving(lambda m, c=c_sys: m.with_c_sys(c), str(c_sys), MEM_OPT)
            assert saved >= -TIE, (point.setting, c_sys)


def test_cpu_opt_saves_clearly_where_windows_are_skewed_and_operators_cost(many: list[Point]) -> None:
    skewed = [p for p in many if p.setting.distribution != "uniform"]
    assert all(p.saving(lambda m: m.with_c_sys(5.0), "5.0", MEM_OPT) > 0.05 for p in skewed)


@pytest.mark.parametrize("strategy", ["pullup", "pushdown", "mem-opt", "cpu-opt", "unshared"])
def test_results_are_those_of_duckdb(strategy: Strategy, tmp_path: Path) -> None:
    setting = Setting("uniform", (10.0, 20.0, 30.0), 20, 0.5, 0.4, 0.5)
    rows = batches_of(setting, SHAPE)
    ran = race({strategy: plan_of(setting, strategy, SHAPE.batch_s)}, rows, tmp_path)[strategy]
    with duckdb.connect() as connection:
        for name in STREAMS:
            tables = [r.table for batch in rows for r in batch if r.stream_id == BY_NAME[name].id]
            connection.register(name, pa.concat_tables(tables))
        for number, window_s in enumerate(setting.windows_s, 1):
            passes = "true" if number == 1 else "A.v < 0.5"
            found = sum(batch.results.get(number, 0) for batch in ran)
            counted = connection.execute(
                f"SELECT count(*) FROM A, B WHERE A.k = B.k AND {passes} "
                f"AND abs(epoch_us(A.ts) - epoch_us(B.ts)) < {round(window_s * 1_000_000)}"
            ).fetchone()
            assert counted == (found,)


@pytest.mark.parametrize("join_selectivity", [0.025, 0.1, 0.4, 0.3, 1.0])
def test_shares_of_keys_give_the_join_selectivity_exactly(join_selectivity: float) -> None:
    shares = key_shares(join_selectivity)
    assert sum(shares) == pytest.approx(1)
    assert sum(share**2 for share in shares) == pytest.approx(join_selectivity)


@pytest.mark.parametrize("distribution", TWELVE_WINDOWS_S)
def test_more_queries_have_the_windows_of_12_and_others_between(distribution: str) -> None:
    twelve, more = many_windows_s(distribution, 12), many_windows_s(distribution, 36)
    assert twelve == TWELVE_WINDOWS_S[distribution]
    assert set(twelve) < set(more)
    assert len(set(more)) == 36
    assert list(more) == sorted(more)


@pytest.mark.slow
def test_the_report_is_written_from_its_csv_files(three: list[Point], tmp_path: Path) -> None:
    rows = [m for p in three for m in p.by_strategy.values()]
    write_rows(tmp_path / FIGURE_17_18, rows)
    setting = Setting("mostly-small", many_windows_s("mostly-small", 12), 20, 1.0, 0.025, None)
    write_rows(tmp_path / FIGURE_19, measure_many_queries(setting, SHAPE))
    write_rows(tmp_path / FIGURE_11, figure_11_savings())
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "state-slice in 27 of 27 settings" in text
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures
    assert all(f"({name})" in text for name in pictures)
    assert all(name in text for name in (CPU_OPT_PAPER, CPU_OPT_CALIBRATED))
    assert "sluice run`" not in text.rsplit("##", 1)[1]
    assert [m.strategy for m in read_rows(tmp_path / FIGURE_17_18, Measurement)] == [m.strategy for m in rows]
    assert read_rows(tmp_path / FIGURE_11, Saving)[0].rho == 0.0
