"""The report: tables of README.md and its pictures, made from the CSV files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from tests.bench.paper.experiments import (
    C_SYS,
    C_SYS_TRIED,
    CPU_OPT_CALIBRATED,
    CPU_OPT_PAPER,
    MEM_OPT,
    cpu_opt_at,
)
from tests.bench.paper.savings import savings
from tests.bench.paper.setting import RATES_PER_S, THREE_WINDOWS_S
from tests.bench.plots import grid_of_lines, surfaces
from tests.bench.reports import fill_page, table

FIGURE_11, SPARK = "figure11", "figure18_spark"
SLICE, OTHERS = "state-slice", ["pullup", "pushdown"]
#: Columns that name a setting.
SETTING = ["distribution", "queries", "filter_selectivity", "join_selectivity", "rate_per_s", "factor"]
NAMES = {"distribution": "windows", "filter_selectivity": "S_σ", "join_selectivity": "S₁", "factor": "load"}
#: Service rates closer than this are equal: repeated measurements differ as much.
SAME = 0.03
RATE_LABEL = "rate of each stream (the paper's, rows/s)"


def read(directory: Path, name: str) -> pd.DataFrame:
    """Return the measurements of a CSV file, none without the file; no selection passes all rows, S_σ = 1."""
    path = directory / f"{name}.csv"
    if not path.exists():
        return pd.DataFrame()
    rows = pd.read_csv(path)
    if "wall_s" in rows:
        rows["filter_selectivity"] = rows["filter_selectivity"].fillna(1.0)
        rows["service_rate"] = rows["input_rows"] / rows["wall_s"]
    return rows


def by_strategy(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return a value by setting, a column for each strategy."""
    return rows.pivot(index=SETTING, columns="strategy", values=value)


def savings_over(rows: pd.DataFrame, value: str, of: str, over: Sequence[str]) -> pd.DataFrame:
    """Return by which fraction a strategy needs less than each of some others."""
    wide = by_strategy(rows, value)
    return 1 - wide[[of] * len(over)].set_axis(list(over), axis=1) / wide[list(over)]


def gains_over(rows: pd.DataFrame, of: str, over: Sequence[str]) -> pd.DataFrame:
    """Return by which fraction a strategy's service rate is above those of some others."""
    wide = by_strategy(rows, "service_rate")
    return wide[[of] * len(over)].set_axis(list(over), axis=1) / wide[list(over)] - 1


def percent(fraction: float, *, signed: bool = False) -> str:
    """Return a fraction in percent: ``12%``."""
    return f"{round(100 * fraction):{'+' if signed else ''}d}%"


def percents(fractions: pd.Series, *, signed: bool = False) -> str:
    """Return smallest to largest in percent: ``8 to 27%``."""
    low, high = percent(fractions.min(), signed=signed), percent(fractions.max(), signed=signed)
    return low if low == high else f"{low.removesuffix('%')} to {high}"


def spread_of(fractions: pd.Series, *, signed: bool = False) -> str:
    """Return smallest to largest, and the mean."""
    return f"{percents(fractions, signed=signed)} (mean {percent(fractions.mean(), signed=signed)})"


def write_report(directory: Path) -> str:
    """Draw the pictures and fill in the tables of README.md; figures without a CSV file stay as they are."""
    parts: dict[str, str] = {}
    for name, section in SECTIONS.items():
        rows = read(directory, name)
        if len(rows):
            parts |= dict(section(directory, rows))
    return fill_page(directory / "README.md", parts)


def _figure_11(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    columns = [c for c in rows.columns if "_over_" in c]
    axes = ("rho", "filter_selectivity")
    panels = {
        f"{column.replace('_over_', ', over ')}, S₁ = {join:g}": (*(own[a] for a in axes), 100 * own[column])
        for column in columns
        for join, own in rows.groupby("join_selectivity")
        if column.startswith("cpu") or join == rows["join_selectivity"].iloc[0]
    }
    surfaces(directory / f"{FIGURE_11}.png", panels, ("ρ = W1/W2", "S_σ", "saving, %"))
    means = [percent(rows[column].mean()) for column in columns]
    yield "mean savings by Equation 4", table([c.replace("_over_", ", over ") for c in columns], [means], 0)


def _three_queries(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    middle = rows[rows["join_selectivity"] == 0.1]
    by_filter = {"row": "distribution", "column": "filter_selectivity", "x_label": RATE_LABEL}
    grid_of_lines(directory / "figure17.png", middle, "rate_per_s", "state_rows", y_label="rows", **by_filter)
    grid_of_lines(
        *(directory / "figure17_comparisons.png", middle, "rate_per_s", "comparisons"),
        **by_filter,
        y_label="comparisons per s of event time",
    )
    grid_of_lines(
        directory / "figure18_filter.png", middle, "rate_per_s", "service_rate", y_label="rows/s", **by_filter
    )
    grid_of_lines(
        *(directory / "figure18_join.png", rows[rows["filter_selectivity"] == 0.5]),
        *("rate_per_s", "service_rate"),
        **by_filter | {"column": "join_selectivity"},
        y_label="rows/s",
    )
    highest, lowest = (rows[rows["rate_per_s"] == rate] for rate in (RATES_PER_S[-1], RATES_PER_S[0]))
    yield "three queries", _verdict(rows, highest)
    saved = savings_over(rows, "state_rows", SLICE, OTHERS)
    yield "rows held", _pairs(saved, ["distribution"], "filter_selectivity")
    yield "off the model", _off_the_model(rows)
    both = ["distribution", "filter_selectivity"]
    saved = savings_over(highest, "comparisons", SLICE, OTHERS)
    yield "comparisons at the highest rate", _pairs(saved, both, "join_selectivity")
    for name, some in (("highest", highest), ("lowest", lowest)):
        gained = gains_over(some, SLICE, OTHERS)
        yield f"service rate at the {name} rate", _pairs(gained, both, "join_selectivity", signed=True)


def _verdict(rows: pd.DataFrame, highest: pd.DataFrame) -> str:
    lines = []
    for what in ("state_rows", "comparisons"):
        least = (by_strategy(rows, what).idxmin(axis=1) == SLICE).sum()
        saved = savings_over(rows, what, SLICE, OTHERS)
        what = f"fewer {what.replace('state_', '')} than"
        lines.append((what, f"{least} of {len(saved)}", *(spread_of(saved[o]) for o in OTHERS)))
    for what, some in (("all rates", rows), ("the highest rate", highest)):
        gained = gains_over(some, SLICE, OTHERS)
        first = (gained.min(axis=1) >= -SAME).sum()
        shown = (spread_of(gained[o], signed=True) for o in OTHERS)
        lines.append((f"service rate, {what}, over", f"{first} of {len(gained)}", *shown))
    return table(("state-slice", "settings in which it is first", *OTHERS), lines)


def _off_the_model(rows: pd.DataFrame) -> str:
    lines = []
    for what in ("state_rows", "comparisons"):
        off = rows[what] / rows[f"expected_{what}"] - 1
        lines.append((what.replace("_", " "), percents(off, signed=True)))
    settings = rows[["distribution", "filter_selectivity", "join_selectivity"]].drop_duplicates()
    found = pd.DataFrame(
        savings(THREE_WINDOWS_S[d][0] / THREE_WINDOWS_S[d][-1], sigma, join)
        for d, sigma, join in settings.itertuples(index=False)
    )
    for other in OTHERS:
        lines.append((f"Equation 4, memory over {other}", percents(found[f"memory_over_{other}"])))
    return table(("counted, off the paper's model", ""), lines)


def _pairs(fractions: pd.DataFrame, down: list[str], across: str, *, signed: bool = False) -> str:
    """Return means as ``over pull-up / over push-down``, some columns of the setting by another one."""
    grouped = fractions.groupby([*down, across], sort=False).mean()
    cells = grouped.apply(lambda row: " / ".join(percent(v, signed=signed) for v in row), axis=1)
    wide = cells.unstack(across, sort=False).fillna("")
    names = {
        "filter_selectivity": "S_σ",
        "join_selectivity": "S₁",
        "factor": "load",
        "distribution": "windows",
    }
    header = [*(names[c] for c in down), *(f"{names[across]} = {value:g}" for value in wide.columns)]
    lines = [(*(key if isinstance(key, tuple) else (key,)), *row) for key, *row in wide.itertuples()]
    return table(header, lines)


def _load(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    grid_of_lines(
        *(directory / "figure18_load.png", rows, "factor", "service_rate"),
        row="distribution",
        column="filter_selectivity",
        x_label="times 80 rows/s of each stream",
        y_label="rows/s",
    )
    yield "load", _pairs(gains_over(rows, SLICE, OTHERS), ["distribution"], "factor", signed=True)


def _with_c_sys(rows: pd.DataFrame, c_sys: float) -> pd.DataFrame:
    return rows.assign(comparisons=rows["comparisons"] + c_sys * rows["operator_males"])


def _many_queries(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    every = pd.DataFrame(
        {
            "slices": by_strategy(rows, "slices")[CPU_OPT_PAPER],
            "fewer": savings_over(_with_c_sys(rows, C_SYS), "comparisons", CPU_OPT_PAPER, [MEM_OPT])[MEM_OPT],
            "same": by_strategy(rows, "slices")[CPU_OPT_PAPER] == by_strategy(rows, "slices")[MEM_OPT],
        }
    )
    own = (CPU_OPT_PAPER, CPU_OPT_CALIBRATED)
    gained = {name: gains_over(rows, name, [MEM_OPT])[MEM_OPT] for name in own}
    lines = [
        (f"comparisons of {CPU_OPT_PAPER}, fewer", spread_of(every["fewer"]), (every["fewer"] < -0.001).sum())
    ]
    for name, found in gained.items():
        lines.append((f"service rate of {name}", spread_of(found, signed=True), (found < -SAME).sum()))
    noise = gained[CPU_OPT_PAPER][every["same"]]
    if len(noise):
        lines.append(
            (
                f"noise: service rate in the {len(noise)} settings whose chain is Mem-Opt's own",
                *(spread_of(noise, signed=True), (noise < -SAME).sum()),
            )
        )
    yield "many queries", table(("CPU-Opt over Mem-Opt", "", f"worse in, of {len(every)}"), lines)
    for name, chosen in (
        ("figure19", rows[rows["filter_selectivity"] == 1.0]),
        ("figure19_selection", rows[rows["filter_selectivity"] != 1.0]),
    ):
        if not len(chosen):
            continue
        grid_of_lines(
            *(directory / f"{name}.png", chosen, "rate_per_s", "service_rate"),
            row="distribution",
            column="queries",
            x_label=RATE_LABEL,
            y_label="rows/s",
        )
        yield name, _chains(chosen)


def _chains(rows: pd.DataFrame) -> str:
    own = (CPU_OPT_PAPER, CPU_OPT_CALIBRATED)
    lines = []
    for (distribution, queries), some in rows.groupby(["distribution", "queries"], sort=False):
        slices = by_strategy(some, "slices").sort_index(level="rate_per_s")
        fewer = savings_over(_with_c_sys(some, C_SYS), "comparisons", CPU_OPT_PAPER, [MEM_OPT])[MEM_OPT]
        held = [savings_over(some, "state_rows", name, [MEM_OPT])[MEM_OPT] for name in own]
        speeds = [gains_over(some, name, [MEM_OPT])[MEM_OPT] for name in own]
        lines.append(
            (
                *(distribution, queries, slices[MEM_OPT].iloc[0]),
                *(", ".join(map(str, dict.fromkeys(slices[name]))) for name in own),
                *(percents(-f, signed=True) for f in (fewer, *held)),
                *(percents(f, signed=True) for f in speeds),
            )
        )
    header = ("windows", "queries", "slices: mem-opt", "paper", "calibrated", "comparisons (paper)")
    header += tuple(
        f"{what} ({by})" for what in ("rows held", "service rate") for by in ("paper", "calibrated")
    )
    return table(header, lines)


def _system_overhead(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    lines = []
    for (distribution, queries), some in rows.groupby(["distribution", "queries"], sort=False):
        cells = []
        for c_sys in C_SYS_TRIED:
            saved = savings_over(_with_c_sys(some, c_sys), "comparisons", cpu_opt_at(c_sys), [MEM_OPT])
            cells.append(percents(saved[MEM_OPT]))
        lines.append((distribution, queries, *cells))
    yield (
        "comparisons and C_sys",
        table(("windows", "queries", *(f"C_sys = {c:g}" for c in C_SYS_TRIED)), lines),
    )


def _through_spark(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    columns = [
        "distribution",
        "queries",
        "strategy",
        "slices",
        "state_rows",
        "service_rate",
        "cpu_s",
        "wall_s",
    ]
    lines = [
        (*row[:4], f"{row[4]:,.0f}", f"{row[5] / 1e3:.1f}", f"{row[6]:.1f}", f"{row[7]:.1f}")
        for row in rows[columns].itertuples(index=False)
    ]
    header = ("windows", "queries", "strategy", "slices", "rows held", "1,000 rows/s", "CPU s", "wall s")
    yield "through Spark", table(header, lines)


def prices(rows: pd.DataFrame) -> tuple[dict[str, float], float]:
    """Fit the CPU time of a micro-batch, by least squares: seconds of each kind of work, and the error."""
    work = pd.DataFrame(
        {
            "batch": 1.0,
            "one-way slice": 2.0 * rows["slices"],
            "segment held": rows["segments"],
            "pair of equal key looked at": rows["touched"] * rows["seconds"] / rows["batches"],
            "pair written": rows["pairs"] * rows["seconds"] / rows["batches"],
            "input row": rows["input_rows"] / rows["batches"],
        }
    )
    cpu_s = (rows["cpu_s"] / rows["batches"]).to_numpy()
    # Each measurement weighs the same, whatever its size.
    constants, _ = nnls(work.to_numpy() / cpu_s[:, None], np.ones(len(rows)))
    error = float(np.median(np.abs(work.to_numpy() @ constants / cpu_s - 1)))
    return dict(zip(work.columns, constants.tolist(), strict=True)), error


def _prices(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    others = [read(directory, name) for name in ("figure18_load", "figure19")]
    rows = pd.concat([rows, *others])
    constants, error = prices(rows)
    lines = [(name, f"{seconds * 1e6:,.3g}") for name, seconds in constants.items()]
    yield (
        "prices",
        table((f"{len(rows)} measurements, median error {percent(error)}", "µs of CPU time"), lines),
    )


def _three_and_prices(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    yield from _three_queries(directory, rows)
    yield from _prices(directory, rows)


Section = Callable[[Path, pd.DataFrame], Iterator[tuple[str, str]]]
#: What is told of each CSV file.
SECTIONS: dict[str, Section] = {
    FIGURE_11: _figure_11,
    "figure17_18": _three_and_prices,
    "figure18_load": _load,
    "figure19": _many_queries,
    "figure19_c_sys": _system_overhead,
    SPARK: _through_spark,
}
