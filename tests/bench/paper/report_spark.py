"""The report's part on `sluice run`."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.paper.spark_runs import SHAPE, SparkRun
from tests.bench.reports import table


def spark_section(runs: Sequence[SparkRun]) -> str:
    """Return the section on the subset that ran in the Spark job."""
    header = ["windows", "queries", "strategy", "slices", "rows held", "1,000 rows/s", "CPU s", "wall s"]
    lines = (
        [
            r.distribution,
            str(r.queries),
            r.strategy,
            str(r.slices),
            f"{r.state_rows:,.0f}",
            f"{r.service_rate / 1e3:.1f}",
            f"{r.cpu_s:.1f}",
            f"{r.wall_s:.1f}",
        ]
        for r in runs
    )
    return f"""## Through Spark: `sluice run`

The same queries and strategies in the Spark job, two buckets, {SHAPE.batch_s:g} s of event time per
micro-batch, 80 rows/s times {runs[0].factor:g} and {runs[-1].factor:g}; three queries with S_σ = 0.5 and
S₁ = 0.1, 36 without selection and S₁ = 0.025 (CPU-Opt by statistics that `sluice run` samples itself). Wall
clock from commit to commit once the windows are full; CPU is that of the job's Python. A
micro-batch costs Spark about half a second whatever is in it, so ratios of wall clock are nearer to 1 than
above.

{table(header, lines)}"""
