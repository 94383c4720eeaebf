"""The sketches benchmark: join sizes from basic AGMS and from skimmed sketches, at equal memory.

    python -m tests.bench.sketches                about a minute on one core; writes docs/bench/sketches.*
    python -m tests.bench.sketches --domain 4096 --rows 100000 --seeds 3 --out build/bench/sketches

The synthetic experiment of Ganguly, Garofalakis, Rastogi (EDBT 2004, §5): a Zipf stream joins another whose
values are shifted to the right, so the larger the shift the smaller the join. Per seed both streams are drawn
anew and sketched with new signs.

Sketches are linear in the frequency vector, so they are made from it and not row by row, which gives the
same counters. The basic sketch of a smaller memory is the first part of the largest one's counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from operators.kernels.keys import Int64s
from operators.sketches.sketch import AgmsSketch, HashSketch, update_together
from operators.sketches.skimmed_sketch import paper_threshold, skim_dense, skimmed_join_size
from tests.bench.plots import MARKERS, drawn, legend_below
from tests.bench.reports import fill_page, table

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


@dataclass(frozen=True, slots=True)
class Shape:
    """What is drawn.

    Attributes:
        domain: Values of the join key.
        rows: Rows per stream.
        seeds: Repetitions.
    """

    domain: int = 256 * 1024
    rows: int = 4_000_000
    seeds: int = 9


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


def draw_zipf(random: np.random.Generator, skew: float, shape: Shape) -> Int64s:
    """Draw the frequencies of a Zipf stream: value i has a share in proportion to 1 / (i + 1)^skew."""
    weights = 1.0 / np.arange(1, shape.domain + 1) ** skew
    return random.multinomial(shape.rows, weights / weights.sum())


def measure(skew: float, shape: Shape, seed: int) -> list[dict[str, float | str]]:
    """Draw the streams of one skew and estimate every join at every size by every method."""
    random = np.random.default_rng((seed, round(skew * 1000)))
    domain = np.arange(shape.domain, dtype=np.int64)
    left = draw_zipf(random, skew, shape)
    shifts = SETTINGS[skew]
    streams = [left, *(np.roll(draw_zipf(random, skew, shape), shift) for shift in shifts)]
    exact = [float(left @ right) for right in streams[1:]]
    basic = [AgmsSketch(max(BUCKETS), TABLES, seed=seed) for _ in streams]
    # Values without rows add nothing; on Zipf 1.5 most are.
    present = np.flatnonzero(np.any(streams, axis=0))
    update_together(basic, domain[present], [frequencies[present] for frequencies in streams])
    rows: list[dict[str, float | str]] = []
    for buckets in BUCKETS:
        hashed = [HashSketch(buckets, TABLES, seed=seed) for _ in streams]
        for sketch, frequencies in zip(hashed, streams, strict=True):
            sketch.update(domain[present], frequencies[present])
        skimmed = [skim_dense(sketch, domain) for sketch in hashed]
        once = [
            skim_dense(sketch, domain, threshold=paper_threshold(shape.rows, buckets)) for sketch in hashed
        ]
        for place, (shift, size) in enumerate(zip(shifts, exact, strict=True), start=1):
            estimates = {
                "basic": _basic(basic[0], basic[place], buckets, TABLES),
                **{f"basic/{m}": _basic(basic[0], basic[place], buckets, m) for m in SPLITS},
                "hash": hashed[0].join_size(hashed[place]),
                "skimmed, T = n/√s1": skimmed_join_size(once[0], once[place]).pairs,
                "skimmed": skimmed_join_size(skimmed[0], skimmed[place]).pairs,
            }
            dense = {"skimmed": len(skimmed[0].keys), "skimmed, T = n/√s1": len(once[0].keys)}
            rows += [
                {
                    "zipf": skew,
                    "shift": shift,
                    "buckets": buckets,
                    "method": method,
                    "seed": seed,
                    "error": symmetric_error(estimate, size),
                    "dense_keys": dense.get(method, 0),
                    "join_size": size,
                }
                for method, estimate in estimates.items()
            ]
    return rows


def _basic(a: AgmsSketch, b: AgmsSketch, averages: int, medians: int) -> float:
    """Estimate with ``averages * TABLES`` counters, in as many medians as asked."""
    products = a.counters[:, :averages].astype(np.float64) * b.counters[:, :averages]
    if medians == TABLES:
        return float(np.median(products.mean(axis=1)))
    # Atomic sketches are independent, so they can be grouped anew; a rest that fills no group is left out.
    flat = products.reshape(-1)
    size = len(flat) // medians
    return float(np.median(flat[: size * medians].reshape(medians, size).mean(axis=1)))


def summarise(samples: pd.DataFrame) -> pd.DataFrame:
    """Reduce to one row per setting, size and method: median, quartiles and mean of the error over seeds.

    Of the splits of AGMS the best in hindsight is kept, as "basic, best split"; this favours the baseline.
    """
    groups = samples.groupby(["zipf", "shift", "buckets", "method"], sort=True)
    summary = groups.agg(
        median_error=("error", "median"),
        quartile_1=("error", lambda e: e.quantile(0.25)),
        quartile_3=("error", lambda e: e.quantile(0.75)),
        mean_error=("error", "mean"),
        dense_keys=("dense_keys", "median"),
        join_size=("join_size", "median"),
        seeds=("error", "size"),
    ).reset_index()
    split = summary["method"].str.startswith("basic/")
    best = summary[split].sort_values("median_error").groupby(["zipf", "shift", "buckets"]).head(1)
    summary = pd.concat([summary[~split], best.assign(method="basic, best split")])
    summary.insert(3, "counters", summary["buckets"] * TABLES)
    return summary.sort_values(["zipf", "shift", "buckets", "method"]).reset_index(drop=True)


def advantage(summary: pd.DataFrame, skew: float, *, over: str, method: str = "skimmed") -> float:
    """Return the error of ``over`` divided by that of ``method``: geometric mean over shifts and sizes."""
    table = summary[summary["zipf"] == skew].pivot(
        index=["shift", "buckets"], columns="method", values="median_error"
    )
    return float(np.exp(np.log(table[over] / table[method]).mean()))


def write_report(summary: pd.DataFrame, out: Path) -> dict[float, float]:
    """Write sketches.csv and .png and the tables of sketches.md; return the gain over basic AGMS by skew."""
    out.mkdir(parents=True, exist_ok=True)
    summary.to_csv(out / "sketches.csv", index=False, float_format="%.6g", lineterminator="\n")
    _plot(summary, out / "sketches.png")
    others = list(METHODS)[:-1]
    gains = {skew: [advantage(summary, skew, over=over) for over in others] for skew in SETTINGS}
    errors = summary.pivot(index=["zipf", "shift", "buckets"], columns="method", values="median_error")
    dense = summary.groupby(["zipf", "method"])["dense_keys"].agg(["min", "max"])
    facts = [
        ("seeds of each setting", f"{summary['seeds'].max()}"),
        ("settings with a lower error than basic AGMS", f"{(errors['skimmed'] < errors['basic']).sum()}"),
        ("settings", f"{len(errors)}"),
    ]
    facts += [
        (f"dense keys, Zipf {skew}, {method}", "{:.0f} to {:.0f}".format(*dense.loc[skew, method]))
        for skew in SETTINGS
        for method in [*others[-1:], "skimmed"]
    ]
    rows = [(f"Zipf {skew}", *(f"{gain:.1f}" for gain in own)) for skew, own in gains.items()]
    header = ("Zipf", "shift", "exact join", "s1", *METHODS.values())
    sizes = summary.groupby(["zipf", "shift", "buckets"])["join_size"].first()
    lines = [
        (*key[:2], f"{sizes[key]:.3g}", key[2], *(f"{errors.loc[key, method]:.3f}" for method in METHODS))
        for key in errors.index
    ]
    parts = {
        "gains": table(("", *(METHODS[method] for method in others)), rows),
        "facts": table(("", ""), facts),
        "median errors": table(header, lines, texts=0),
    }
    fill_page(out / "sketches.md", parts)
    return {skew: own[0] for skew, own in gains.items()}


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
    domain: Annotated[int, typer.Option(help="Values of the join key.")] = Shape().domain,
    rows: Annotated[int, typer.Option(help="Rows per stream.")] = Shape().rows,
    seeds: Annotated[int, typer.Option(help="Repetitions; their median is reported.")] = Shape().seeds,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("docs/bench"),
) -> None:
    """Measure and write sketches.md, .png and .csv; exit 1 if skimming is not several times more accurate."""
    shape = Shape(domain=domain, rows=rows, seeds=seeds)
    samples: list[dict[str, float | str]] = []
    for seed in range(seeds):
        for skew in SETTINGS:
            samples += measure(skew, shape, seed)
        print(f"seed {seed} done", flush=True)
    gains = write_report(summarise(pd.DataFrame(samples)), out)
    print(f"error of basic AGMS over that of skimmed sketches, by skew: {gains}")
    if min(gains.values()) < FLOOR:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
