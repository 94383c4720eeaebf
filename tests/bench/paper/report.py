"""The report: tables of README.md and its pictures, made from the CSV files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from tests.bench.paper.experiments import C_SYS, CPU_OPT_CALIBRATED, CPU_OPT_PAPER, MEM_OPT
from tests.bench.paper.savings import savings
from tests.bench.paper.setting import RATES_PER_S, THREE_WINDOWS_S
from tests.bench.plots import grid_of_lines, surfaces
from tests.bench.reports import fill_page, table

FIGURE_11, SPARK = "figure11", "figure18_spark"
SLICE, OTHERS = "state-slice", ["pullup", "pushdown"]
#: Columns that name a setting, and how tables call them.
SETTING = ["distribution", "queries", "filter_selectivity", "join_selectivity", "rate_per_s", "factor"]
NAMES = {"filter_selectivity": "S_σ", "join_selectivity": "S₁", "factor": "load", "distribution": "windows"}
#: Service rates closer than this are equal: repeated measurements differ as much.
SAME = 0.03
RATE_LABEL = "rate of each stream (the paper's, rows/s)"

#: Draws the pictures of a CSV file and yields its tables.
Section = Callable[[Path, pd.DataFrame], Iterator[tuple[str, str]]]


def read(directory: Path, name: str) -> pd.DataFrame:
    """Return the measurements of a CSV file, none without the file; no selection passes all rows, S_σ = 1."""
    path = directory / f"{name}.csv"
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame()
    if "wall_s" in rows:
        rows["filter_selectivity"] = rows["filter_selectivity"].fillna(1.0)
        rows["service_rate"] = rows["input_rows"] / rows["wall_s"]
    return rows


def by_strategy(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return a value by setting, a column for each strategy."""
    return rows.pivot(index=SETTING, columns="strategy", values=value)


def above(rows: pd.DataFrame, value: str, of: str, over: Sequence[str]) -> pd.DataFrame:
    """Return by which fraction a strategy's value is above those of some others."""
    wide = by_strategy(rows, value)
    return wide[[of] * len(over)].set_axis(list(over), axis=1) / wide[list(over)] - 1


def below(rows: pd.DataFrame, value: str, of: str, over: Sequence[str]) -> pd.DataFrame:
    """Return by which fraction a strategy's value is below those of some others."""
    return -above(rows, value, of, over)


def percents(fractions: pd.Series, form: str = "z.0%") -> str:
    """Return smallest to largest in percent: ``8 to 27%``."""
    low, high = f"{fractions.min():{form}}", f"{fractions.max():{form}}"
    return low if low == high else f"{low.removesuffix('%')} to {high}"


def spread_of(fractions: pd.Series, form: str = "z.0%") -> str:
    """Return smallest to largest, and the mean."""
    return f"{percents(fractions, form)} (mean {fractions.mean():{form}})"


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
    means = [f"{rows[column].mean():.0%}" for column in columns]
    yield "mean savings by Equation 4", table([c.replace("_over_", ", over ") for c in columns], [means], 0)


def _three_queries(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    middle, half = rows[rows["join_selectivity"] == 0.1], rows[rows["filter_selectivity"] == 0.5]
    for name, own, value, column, label in (
        ("figure17", middle, "state_rows", "filter_selectivity", "rows"),
        ("figure17_comparisons", middle, "comparisons", "filter_selectivity", "comparisons per s"),
        ("figure18_filter", middle, "service_rate", "filter_selectivity", "rows/s"),
        ("figure18_join", half, "service_rate", "join_selectivity", "rows/s"),
    ):
        labels = {"x_label": RATE_LABEL, "y_label": label}
        grid_of_lines(directory / f"{name}.png", own, "rate_per_s", value, column=column, **labels)
    highest, lowest = (rows[rows["rate_per_s"] == rate] for rate in (RATES_PER_S[-1], RATES_PER_S[0]))
    lines = []
    for what in ("rows", "comparisons"):
        saved = below(rows, "state_rows" if what == "rows" else what, SLICE, OTHERS)
        spreads = (spread_of(saved[o]) for o in OTHERS)
        lines.append((f"fewer {what} than", f"{(saved.min(axis=1) > 0).sum()} of {len(saved)}", *spreads))
    for what, some in (("all rates", rows), ("the highest rate", highest)):
        gained = above(some, "service_rate", SLICE, OTHERS)
        first = f"{(gained.min(axis=1) >= -SAME).sum()} of {len(gained)}"
        lines.append((f"service rate, {what}, over", first, *(spread_of(gained[o], "+z.0%") for o in OTHERS)))
    yield "three queries", table(("state-slice", "settings in which it is first", *OTHERS), lines)
    both = ["distribution", "filter_selectivity"]
    yield "rows held", _pairs(below(rows, "state_rows", SLICE, OTHERS), both[:1], both[1])
    yield "off the model", _off_the_model(rows)
    saved = below(highest, "comparisons", SLICE, OTHERS)
    yield "comparisons at the highest rate", _pairs(saved, both, "join_selectivity")
    for name, some in (("highest", highest), ("lowest", lowest)):
        gained = above(some, "service_rate", SLICE, OTHERS)
        yield f"service rate at the {name} rate", _pairs(gained, both, "join_selectivity", "+z.0%")
    yield "prices", _prices(pd.concat([rows, *(read(directory, n) for n in ("figure18_load", "figure19"))]))


def _off_the_model(rows: pd.DataFrame) -> str:
    lines = []
    for what in ("state_rows", "comparisons"):
        off = rows[what] / rows[f"expected_{what}"] - 1
        lines.append((what.replace("_", " "), percents(off, "+z.0%")))
    settings = rows[["distribution", "filter_selectivity", "join_selectivity"]].drop_duplicates()
    found = pd.DataFrame(
        savings(THREE_WINDOWS_S[d][0] / THREE_WINDOWS_S[d][-1], sigma, join)
        for d, sigma, join in settings.itertuples(index=False)
    )
    for other in OTHERS:
        lines.append((f"Equation 4, memory over {other}", percents(found[f"memory_over_{other}"])))
    return table(("counted, off the paper's model", ""), lines)


def _pairs(fractions: pd.DataFrame, down: list[str], across: str, form: str = "z.0%") -> str:
    """Return means as ``over pull-up / over push-down``, some columns of the setting by another one."""
    grouped = fractions.groupby([*down, across], sort=False).mean()
    cells = grouped.apply(lambda row: " / ".join(f"{v:{form}}" for v in row), axis=1)
    wide = cells.unstack(across, sort=False)
    header = [*(NAMES[c] for c in down), *(f"{NAMES[across]} = {value:g}" for value in wide.columns)]
    return table(header, wide.reset_index().itertuples(index=False))


def _prices(rows: pd.DataFrame) -> str:
    """Fit the CPU time of a micro-batch by least squares: what each kind of work costs."""
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
    error = np.median(np.abs(work.to_numpy() @ constants / cpu_s - 1))
    header = (f"{len(rows)} measurements, median error {error:.0%}", "µs of CPU time")
    return table(header, zip(work.columns, 1e6 * constants, strict=True))


def _load(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    labels = {"x_label": "times 80 rows/s of each stream", "y_label": "rows/s"}
    grid_of_lines(
        directory / "figure18_load.png", rows, "factor", "service_rate", column="filter_selectivity", **labels
    )
    gained = above(rows, "service_rate", SLICE, OTHERS)
    yield "load", _pairs(gained, ["distribution"], "factor", "+z.0%")


def _many_queries(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    rows = rows.assign(comparisons=rows["comparisons"] + C_SYS * rows["operator_males"])
    own = (CPU_OPT_PAPER, CPU_OPT_CALIBRATED)
    fewer = below(rows, "comparisons", CPU_OPT_PAPER, [MEM_OPT])[MEM_OPT]
    gained = {name: above(rows, "service_rate", name, [MEM_OPT])[MEM_OPT] for name in own}
    lines = [(f"comparisons of {CPU_OPT_PAPER}, fewer", spread_of(fewer), (fewer < -0.001).sum())]
    for name, found in gained.items():
        lines.append((f"service rate of {name}", spread_of(found, "+z.0%"), (found < -SAME).sum()))
    slices = by_strategy(rows, "slices")
    noise = gained[CPU_OPT_PAPER][slices[CPU_OPT_PAPER] == slices[MEM_OPT]]
    if len(noise):
        what = f"noise: service rate in the {len(noise)} settings whose chain is Mem-Opt's own"
        lines.append((what, spread_of(noise, "+z.0%"), (noise < -SAME).sum()))
    yield "many queries", table(("CPU-Opt over Mem-Opt", "", f"worse in, of {len(fewer)}"), lines)
    for name, chosen in (
        ("figure19", rows[rows["filter_selectivity"] == 1.0]),
        ("figure19_selection", rows[rows["filter_selectivity"] != 1.0]),
    ):
        if len(chosen):
            labels = {"x_label": RATE_LABEL, "y_label": "rows/s"}
            grid_of_lines(
                directory / f"{name}.png", chosen, "rate_per_s", "service_rate", column="queries", **labels
            )
            yield name, _chains(chosen, own)


def _chains(rows: pd.DataFrame, own: Sequence[str]) -> str:
    lines = []
    for (distribution, queries), some in rows.groupby(["distribution", "queries"], sort=False):
        slices = by_strategy(some, "slices").sort_index(level="rate_per_s")
        values = [("comparisons", CPU_OPT_PAPER)]
        values += [(value, name) for value in ("state_rows", "service_rate") for name in own]
        shown = (percents(above(some, value, name, [MEM_OPT])[MEM_OPT], "+z.0%") for value, name in values)
        chains = (", ".join(map(str, dict.fromkeys(slices[name]))) for name in own)
        lines.append((distribution, queries, slices[MEM_OPT].iloc[0], *chains, *shown))
    header = ("windows", "queries", "slices: mem-opt", "paper", "calibrated", "comparisons (paper)")
    header += (
        "rows held (paper)",
        "rows held (calibrated)",
        "service rate (paper)",
        "service rate (calibrated)",
    )
    return table(header, lines)


def _through_spark(directory: Path, rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    rows = rows.assign(thousand=rows["service_rate"] / 1e3)
    columns = ["distribution", "queries", "strategy", "slices", "state_rows", "thousand", "cpu_s", "wall_s"]
    header = ("windows", "queries", "strategy", "slices", "rows held", "1,000 rows/s", "CPU s", "wall s")
    yield "through Spark", table(header, rows[columns].itertuples(index=False))


#: What is told of each CSV file.
SECTIONS: dict[str, Section] = {
    FIGURE_11: _figure_11,
    "figure17_18": _three_queries,
    "figure18_load": _load,
    "figure19": _many_queries,
    SPARK: _through_spark,
}
