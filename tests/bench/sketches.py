"""The sketches benchmark: join sizes from basic AGMS and from skimmed sketches, at equal memory.

    python -m tests.bench.sketches                about a minute on one core; writes docs/bench/sketches.*
    python -m tests.bench.sketches --domain 4096 --rows 100000 --seeds 3 --out build/bench/sketches

The synthetic experiment of Ganguly, Garofalakis, Rastogi (EDBT 2004, §5): a Zipf stream joins another whose
values are shifted to the right, so the larger the shift the smaller the join. Per seed both streams are drawn
again and sketched with new signs.

Sketches are linear in the frequency vector, so they are made from it and not row by row, which gives the
same counters. The basic sketch of a smaller memory is the first part of the largest one's counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from operators.kernels.keys import Int64s
from tests.bench.options import DOCS, Out
from tests.bench.plots import MARKERS, drawn, legend_below
from tests.bench.reports import fill_page, table, write_rows
from tests.sketches.sketch import AgmsSketch, HashSketch, update_together
from tests.sketches.skimmed_sketch import paper_threshold, skim_dense, skimmed_join_size

#: Methods of the report.
METHODS = {
    "basic": "basic AGMS",
    "basic, best split": "basic AGMS, best s2 in hindsight",
    "hash": "hash sketch, not skimmed",
    "skimmed, T = n/√s1": "skimmed, T = n/√s1",
    "skimmed": "skimmed",
}

#: Skew and the shifts measured with it, as in the paper.
SETTINGS = {1.0: (100, 200, 300), 1.5: (30, 40, 50)}
#: Medians and tables (s2); averages and buckets (s1). Both methods have s1 * s2 counters of 8 bytes.
TABLES = 11
BUCKETS = (50, 100, 200, 400, 800)
#: Numbers of medians among which AGMS's best is looked for.
SPLITS = (1, 3, 5, 11)
#: What an estimate of nothing or less counts for, and the largest error otherwise.
SANITY = 10.0
#: Basic over skimmed error, geometric mean over shifts and sizes, that is asked of every skew.
FLOOR = 3.0


def symmetric_error(estimate: float, exact: float) -> float:
    """Return |estimate - exact| / min(estimate, exact), at most ``SANITY``.

    The paper's measure: the usual relative error is at most 1 for an underestimate and has no bound for an
    overestimate.

    >>> symmetric_error(50.0, 100.0), symmetric_error(200.0, 100.0), symmetric_error(-1.0, 100.0)
    (1.0, 1.0, 10.0)
    """
    if estimate <= 0:
        return SANITY
    return min(abs(estimate - exact) / min(estimate, exact), SANITY)


def draw_zipf(random: np.random.Generator, skew: float, domain: int, rows: int) -> Int64s:
    """Draw the frequencies of a Zipf stream: value i has a share in proportion to 1 / (i + 1)^skew."""
    weights = 1.0 / np.arange(1, domain + 1) ** skew
    return random.multinomial(rows, weights / weights.sum())


def measure(skew: float, domain: int, rows: int, seed: int) -> Iterator[dict[str, float | str]]:
    """Draw the streams of one skew and estimate every join at every size by every method."""
    random = np.random.default_rng((seed, round(skew * 1000)))
    values, shifts = np.arange(domain, dtype=np.int64), SETTINGS[skew]
    left = draw_zipf(random, skew, domain, rows)
    streams = [left, *(np.roll(draw_zipf(random, skew, domain, rows), shift) for shift in shifts)]
    basic = [AgmsSketch(max(BUCKETS), TABLES, seed=seed) for _ in streams]
    # Values without rows add nothing; on Zipf 1.5 most are.
    present = np.flatnonzero(np.any(streams, axis=0))
    update_together(basic, values[present], [frequencies[present] for frequencies in streams])
    for buckets in BUCKETS:
        hashed = [HashSketch(buckets, TABLES, seed=seed) for _ in streams]
        for sketch, frequencies in zip(hashed, streams, strict=True):
            sketch.update(values[present], frequencies[present])
        skimmed = [skim_dense(sketch, values) for sketch in hashed]
        threshold = paper_threshold(rows, buckets)
        once = [skim_dense(sketch, values, threshold=threshold) for sketch in hashed]
        dense = {"skimmed": len(skimmed[0].keys), "skimmed, T = n/√s1": len(once[0].keys)}
        for place, shift in enumerate(shifts, start=1):
            size = float(left @ streams[place])
            estimates = {
                "basic": _basic(basic[0], basic[place], buckets, TABLES),
                **{f"basic/{m}": _basic(basic[0], basic[place], buckets, m) for m in SPLITS},
                "hash": hashed[0].join_size(hashed[place]),
                "skimmed, T = n/√s1": skimmed_join_size(once[0], once[place]).pairs,
                "skimmed": skimmed_join_size(skimmed[0], skimmed[place]).pairs,
            }
            for method, estimate in estimates.items():
                yield {
                    "zipf": skew,
                    "shift": shift,
                    "buckets": buckets,
                    "method": method,
                    "seed": seed,
                    "error": symmetric_error(estimate, size),
                    "dense_keys": dense.get(method, 0),
                    "join_size": size,
                }


def _basic(a: AgmsSketch, b: AgmsSketch, averages: int, medians: int) -> float:
    """Estimate with ``averages * TABLES`` counters, in as many medians as asked."""
    products = a.counters[:, :averages].astype(np.float64) * b.counters[:, :averages]
    if medians == TABLES:
        return float(np.median(products.mean(axis=1)))
    # Atomic sketches are independent, so they can be grouped again; a rest that fills no group is left out.
    flat = products.reshape(-1)
    size = len(flat) // medians
    return float(np.median(flat[: size * medians].reshape(medians, size).mean(axis=1)))


def summarise(samples: pd.DataFrame) -> pd.DataFrame:
    """Reduce to one row per setting, size and method: medians over seeds.

    Of the splits of AGMS the best in hindsight is kept, as "basic, best split"; this favours the baseline.
    """
    setting = ["zipf", "shift", "buckets"]
    summary = samples.groupby([*setting, "method"])[["error", "dense_keys", "join_size"]].median()
    summary = summary.rename(columns={"error": "median_error"}).reset_index()
    split = summary["method"].str.startswith("basic/")
    best = summary[split].sort_values("median_error").groupby(setting).head(1)
    summary = pd.concat([summary[~split], best.assign(method="basic, best split")])
    summary.insert(3, "counters", summary["buckets"] * TABLES)
    return summary.sort_values([*setting, "method"]).reset_index(drop=True)


def write_report(summary: pd.DataFrame, out: Path) -> dict[float, float]:
    """Write sketches.csv and .png and the tables of sketches.md; return the gain over basic AGMS by skew."""
    write_rows(out / "sketches.csv", summary)
    _plot(summary, out / "sketches.png")
    errors = summary.pivot(index=["zipf", "shift", "buckets"], columns="method", values="median_error")
    # Error of a method over that of skimmed sketches: geometric mean over shifts and sizes.
    ratios = np.log(errors.div(errors["skimmed"], axis=0)).groupby("zipf").mean()
    gains = np.exp(ratios[list(METHODS)[:-1]])
    dense = summary[summary["method"].str.startswith("skimmed")].groupby(["zipf", "method"])["dense_keys"]
    dense = dense.agg(["min", "max"]).reset_index()
    sizes = summary.groupby(["zipf", "shift", "buckets"])["join_size"].first()
    lines = [(*key, sizes[key], *(errors.loc[key, method] for method in METHODS)) for key in errors.index]
    parts = {
        "gains": table(("Zipf", *(METHODS[method] for method in gains)), gains.itertuples()),
        "facts": table(("Zipf", "method", "dense keys, least", "most"), dense.itertuples(index=False), 2),
        "median errors": table(("Zipf", "shift", "s1", "exact join", *METHODS.values()), lines, texts=0),
    }
    fill_page(out / "sketches.md", parts)
    return dict(gains["basic"])


def _plot(summary: pd.DataFrame, path: Path) -> None:
    skews = sorted(summary["zipf"].unique())
    with drawn(path, len(skews), 3, size=(12, 3.6 * len(skews)), sharex=True, sharey="row") as axes:
        for row, skew in zip(axes, skews, strict=True):
            of_skew = summary[summary["zipf"] == skew]
            for axis, (shift, group) in zip(row, of_skew.groupby("shift"), strict=True):
                for (method, label), marker in zip(METHODS.items(), MARKERS, strict=False):
                    line = group[group["method"] == method].sort_values("counters")
                    axis.plot(line["counters"] * 8 / 1024, line["median_error"], marker=marker, label=label)
                axis.set_title(f"Zipf {skew}, shift {shift}", fontsize=10)
                axis.set(xscale="log", yscale="log", xlabel="memory per stream, KiB", ylabel="median error")
                axis.grid(alpha=0.3)
        legend_below(axes)


def main(
    domain: Annotated[int, typer.Option(help="Values of the join key.")] = 256 * 1024,
    rows: Annotated[int, typer.Option(help="Rows per stream.")] = 4_000_000,
    seeds: Annotated[int, typer.Option(help="Repetitions; their median is reported.")] = 9,
    out: Out = DOCS,
) -> None:
    """Measure and write sketches.md, .png and .csv; exit 1 if skimming is not several times more accurate."""
    samples = [
        sample for seed in range(seeds) for skew in SETTINGS for sample in measure(skew, domain, rows, seed)
    ]
    gains = write_report(summarise(pd.DataFrame(samples)), out)
    typer.echo(f"error of basic AGMS over that of skimmed sketches, by skew: {gains}")
    if min(gains.values()) < FLOOR:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
