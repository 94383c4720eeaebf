"""The report: README.md and its plots, written from the CSV files alone.

Sentences with numbers are computed; what is said without numbers holds by construction of engine and
experiment, whatever the machine.
"""

from __future__ import annotations

import os
import platform
import textwrap
from collections.abc import Sequence
from pathlib import Path

from tests.bench.paper.comparisons import mean, percent
from tests.bench.paper.figure_11 import Saving, draw_figure_11
from tests.bench.paper.measure import Measurement
from tests.bench.paper.report_many import figure_19_section, figure_19_verdict
from tests.bench.paper.report_spark import spark_section
from tests.bench.paper.report_three import (
    economics_section,
    figure_17_section,
    figure_18_section,
    three_query_verdict,
)
from tests.bench.paper.setting import key_shares
from tests.bench.paper.spark_runs import SparkRun
from tests.bench.paper.system_overhead import system_overhead_section, system_overhead_verdict
from tests.bench.reports import read_rows

FIGURE_11, FIGURE_17_18, LOAD = "figure11.csv", "figure17_18.csv", "figure18_load.csv"
FIGURE_19, C_SYS, SPARK = "figure19.csv", "figure19_c_sys.csv", "figure18_spark.csv"


def write_report(directory: Path) -> Path:
    """Draw the plots, write README.md, and return its path; figures without a CSV file are left out.

    Args:
        directory: Where the CSV files are, and the report goes.
    """
    three = read_rows(directory / FIGURE_17_18, Measurement)
    load = read_rows(directory / LOAD, Measurement)
    many = read_rows(directory / FIGURE_19, Measurement)
    overhead = read_rows(directory / C_SYS, Measurement)
    spark = read_rows(directory / SPARK, SparkRun)
    savings = read_rows(directory / FIGURE_11, Saving)
    parts = [_INTRODUCTION]
    verdicts = [*(three_query_verdict(three) if three else ()), *(figure_19_verdict(many) if many else ())]
    if overhead:
        verdicts.append(system_overhead_verdict(overhead))
    if verdicts:
        parts.append("## What came out\n\n" + "\n".join(_bullet(v) for v in verdicts))
    if three:
        parts.append(_setting(three))
    if savings:
        parts.append(_figure_11(directory, savings))
    if three:
        parts += [figure_17_section(directory, three), figure_18_section(directory, three, load)]
    if many:
        parts.append(figure_19_section(directory, many))
    if overhead:
        parts.append(system_overhead_section(overhead))
    if spark:
        parts.append(spark_section(spark))
    if three:
        parts.append(economics_section([*three, *load, *many]))
    path = directory / "README.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


_INTRODUCTION = """# State-Slice, section 7, on this engine

Figures 11, 17, 18 and 19 of *State-Slice: New Paradigm of Multi-query Optimization of Window-based Stream
Queries* (Wang, Rundensteiner, Ganguly, Bhatnagar, VLDB 2006). `make bench-paper` measures and writes this
page; the numbers in its sentences are computed from the CSV files beside it. State and comparisons are
counted and the same on every machine; times are those of the machine named below."""


def _setting(rows: Sequence[Measurement]) -> str:
    factor = dict(sorted({m.join_selectivity: m.factor for m in rows}.items()))
    factors = ", ".join(f"{factor[join]:g} for S₁ = {join:g}" for join in factor)
    keys = "; ".join(f"{_keys(join)} for S₁ = {join:g}" for join in factor)
    batch_s, seconds = rows[0].seconds / rows[0].batches, rows[0].seconds + 30
    busiest = max(2 * (80 * factor[join]) ** 2 * 30 * join for join in factor) / 1e6
    return f"""## How it was measured

- **Queries.** Q1 = A[W1] ⋈ B[W1], Q2 = σ(A)[W2] ⋈ B[W2], Q3 = σ(A)[W3] ⋈ B[W3]; windows 5/10/30 s (mostly
  small), 10/20/30 s (uniform), 20/25/30 s (mostly large); S_σ 0.2, 0.5, 0.8; S₁ 0.025, 0.1, 0.4: Table 3,
  all combinations.
- **Input.** Poisson arrivals, {seconds:g} s of event time, one seed. P(equal keys) is S₁ exactly:
  {keys}.
- **Rates.** 20, 40, 60, 80 rows/s per stream (the paper's range, in steps of ours), **times {factors}**.
  A join makes 2 λ² W S₁ pairs per second, so these factors give every S₁ the same work: at 80 rows/s a window
  of 30 s makes {busiest:.2g} million pairs per second of event time, hundreds for each row. The engine never
  waits for input: it takes the next batch as soon as it is done, and the service rate is what it gets
  through.
- **Pipeline.** PACK, packets, bucket (chains), segments, manifest and result files written: the workers'
  own code in one process (`tests/pipeline.py`), one bucket, micro-batches of {batch_s:g} s of event time.
  Reading input and Spark itself are left out; they are the same for every strategy. A subset runs through
  `sluice run` below.
- **Turns.** The strategies of a setting take turns batch by batch over the same rows, and must agree on the
  number of results of every query. Nothing is measured before the largest window is full; the paper runs 90 s
  from empty states (§7.1). As many settings are measured at a time as there are cores, each on one.
- **Service rate** is input rows per second of wall clock, of the median batch. The paper divides the total
  throughput by the running time (§7.1) and does not say whether input or results are counted; strategies give
  the same results, so the ratio of two service rates is the same for both.
- **Comparisons** are the paper's: probe (males times rows of the slices they meet, as nested loops compare),
  purge (a male and a slice each), route (pairs times windows that end inside their slice), filter
  (selections judged, on rows between slices, on pairs of merged slices, on rows that are split), union (a
  male per union, or a pair that is merged from several joins). Rows and pairs are counted by the engine; how
  often one is compared follows from the plan (`tests/bench/paper/counted.py`).
- **Machine.** {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}."""


def _bullet(sentence: str) -> str:
    return textwrap.fill(sentence, 110, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _keys(join_selectivity: float) -> str:
    shares = key_shares(join_selectivity)
    if max(shares) - min(shares) < 1e-9:
        return f"{len(shares)} keys"
    return f"{len(shares)} keys with shares " + ", ".join(f"{share:.3f}" for share in shares)


def _figure_11(directory: Path, savings: list[Saving]) -> str:
    draw_figure_11(savings, directory / "figure11.png")
    memory, cpu = (
        f"{percent(mean([getattr(s, f'{what}_over_pullup') for s in savings]))} over pull-up and "
        f"{percent(mean([getattr(s, f'{what}_over_pushdown') for s in savings]))} over push-down"
        for what in ("memory", "cpu")
    )
    return f"""## Figure 11: savings by Equation 4

![Savings of state-slice over both alternatives](figure11.png)

[{FIGURE_11}]({FIGURE_11}). The equation is the paper's (§4.3); our copy of its text lacks the drawing, so
the axes and the values of S₁ (Table 3's) are ours.

Memory: up to 50% over pull-up (ρ, S_σ → 0) and a third over push-down (ρ → 1). CPU: up to 100% over pull-up.
Over push-down it is S₁/(1 + S₁) for ρ → 0 and nothing for S_σ = 0: push-down probes no more than state-slice
does, it only routes and merges more. No point is negative.

The paper says that 20% to 30% of memory and 10% to 40% of CPU are saved "on average" over the alternatives.
Over all points drawn here the mean saving of memory is {memory},
of CPU {cpu}."""
