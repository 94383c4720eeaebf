"""The report of the sketches benchmark: Markdown, a plot and a CSV."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tests.bench.plots import drawn, legend_below
from tests.bench.reports import table

#: Methods in the plot and the tables, with line styles.
METHODS = {
    "basic": ("basic AGMS", "o-", "tab:red"),
    "basic, best split": ("basic AGMS, best s2 in hindsight", "o:", "tab:orange"),
    "hash": ("hash sketch, not skimmed", "s--", "tab:gray"),
    "skimmed, T = n/√s1": ("skimmed, T = n/√s1", "^--", "tab:green"),
    "skimmed": ("skimmed", "D-", "tab:blue"),
}
_BYTES = 8

_TEXT = """# Join sizes from sketches

The synthetic experiment of Ganguly, Garofalakis and Rastogi, *Processing Data-Stream Join Aggregates Using
Skimmed Sketches* (EDBT 2004): a Zipf stream joins one whose values are shifted to the right. Written by
`make bench-sketches` (`tests/bench/sketches.py`); all figures are in `sketches.csv`.

- Domain of {domain:,} values, {rows:,} rows per stream; both drawn anew for each of {seeds} seeds, of which
  medians are given.
- Error is |estimate - exact| / min(estimate, exact), at most 10, and 10 for an estimate of 0 or less.
- Equal memory: s1 x s2 counters of 8 bytes per stream and method, s2 = {tables} tables or medians. Seeds of
  the hash functions are not counted: 3 words per counter for AGMS, 6 per table for the others. Dense keys are
  found by a scan of the domain and kept only while a join is estimated.
- Sketches are made from frequency vectors; being linear, they are the same as row by row.

| method | |
|---|---|
| basic AGMS | median of {tables} averages of s1 products |
| basic AGMS, best s2 in hindsight | the same counters in 1, 3, 5 or 11 groups: the least median error |
| hash sketch, not skimmed | the median of {tables} tables with s1 counters each |
| skimmed, T = n/√s1 | skimmed once; keys with 2 T rows or more are dense, T as in the paper's theorems |
| skimmed | T = the sketch's own noise, in rounds (`operators/sketches/skimmed_sketch.py`): what Sluice uses |

![Error against memory](sketches.png)

How many times the error of skimmed sketches the others have (geometric mean over shifts and sizes; too low
where the baseline's error is cut off at 10):

{gains}

{verdict}

{tables_by_skew}
"""


def write_report(
    summary: pd.DataFrame,
    gains: Mapping[float, Mapping[str, float]],
    out: Path,
    *,
    domain: int,
    rows: int,
    seeds: int,
) -> None:
    """Write ``sketches.md``, ``.png`` and ``.csv``.

    Args:
        summary: One row per skew, shift, size and method.
        gains: Per skew and method, its error over that of skimmed sketches.
        out: Directory.
        domain: Values of the join key.
        rows: Rows per stream.
        seeds: Repetitions.
    """
    summary.to_csv(out / "sketches.csv", index=False, float_format="%.6g", lineterminator="\n")
    _plot(summary, out / "sketches.png")
    tables = int((summary["counters"] / summary["buckets"]).iloc[0])
    text = _TEXT.format(
        domain=domain,
        rows=rows,
        seeds=seeds,
        tables=tables,
        gains=_gains_table(gains),
        verdict=_verdict(summary, gains),
        tables_by_skew="\n\n".join(_error_table(summary, skew) for skew in gains),
    )
    (out / "sketches.md").write_text(text, encoding="utf-8")


def _gains_table(gains: Mapping[float, Mapping[str, float]]) -> str:
    methods = list(next(iter(gains.values())))
    rows = [(f"Zipf {skew}", *(f"{gain[m]:.1f}" for m in methods)) for skew, gain in gains.items()]
    return table(("", *(METHODS[m][0] for m in methods)), rows)


def _verdict(summary: pd.DataFrame, gains: Mapping[float, Mapping[str, float]]) -> str:
    settings = summary.pivot(index=["zipf", "shift", "buckets"], columns="method", values="median_error")
    better = int((settings["skimmed"] < settings["basic"]).sum())
    once = summary[summary["method"] == "skimmed, T = n/√s1"].groupby("zipf")["dense_keys"]
    rounds = summary[summary["method"] == "skimmed"].groupby("zipf")["dense_keys"]
    parts = [
        f"Skimmed sketches have the lower error than basic AGMS in {better} of {len(settings)} settings.",
        *(
            f"On Zipf {skew} the paper's T makes {once.min()[skew]:.0f} to {once.max()[skew]:.0f} keys dense,"
            f" the sketch's noise {rounds.min()[skew]:.0f} to {rounds.max()[skew]:.0f}."
            for skew in gains
        ),
        "The hash sketch's line shows how much of the gain is hashing and how much skimming: the median over",
        "tables already drops the tables where dense keys happen to collide.",
    ]
    return "\n".join(parts)


def _error_table(summary: pd.DataFrame, skew: float) -> str:
    rows = []
    for (shift, buckets), group in summary[summary["zipf"] == skew].groupby(["shift", "buckets"]):
        errors, first = group.set_index("method")["median_error"], group.iloc[0]
        known = (shift, f"{first['join_size']:.3g}", buckets, f"{first['counters']:,}")
        rows.append((*known, *(f"{errors[m]:.3f}" for m in METHODS)))
    header = ("shift", "exact join", "s1", "counters", *(label for label, _, _ in METHODS.values()))
    return f"Median errors, Zipf {skew}:\n\n{table(header, rows, texts=0)}"


def _plot(summary: pd.DataFrame, path: Path) -> None:
    skews = sorted(summary["zipf"].unique())
    shared = {"sharex": True, "sharey": "row"}
    with drawn(path, len(skews), 3, size=(12, 3.6 * len(skews)), **shared) as axes:
        for row, skew in zip(axes, skews, strict=True):
            of_skew = summary[summary["zipf"] == skew]
            for axis, (shift, group) in zip(row, of_skew.groupby("shift"), strict=True):
                _draw(axis, group)
                axis.set_title(f"Zipf {skew}, shift {shift}", fontsize=10)
            row[0].set_ylabel("error (median, quartiles)")
        for axis in axes[-1]:
            axis.set_xlabel("memory per stream, KiB")
        legend_below(axes)


def _draw(axis: Any, group: pd.DataFrame) -> None:
    for method, (label, style, colour) in METHODS.items():
        line = group[group["method"] == method].sort_values("counters")
        kib = line["counters"] * _BYTES / 1024
        axis.plot(kib, line["median_error"], style, color=colour, label=label, markersize=4)
        if method in ("basic", "skimmed"):
            band = line["quartile_1"], line["quartile_3"]
            axis.fill_between(kib, *band, color=colour, alpha=0.12, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.grid(True, which="major", alpha=0.3)
