"""A subset of the settings through `sluice run`: the same plans in the Spark job, timed in steady state.

The same arrivals as elsewhere, in one Parquet file per stream and micro-batch. Time is taken from the
manifests' commits: from that of the first batch whose windows are full to that of the last.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from catalog.values.plan import Strategy
from tests.bench.paper.experiments import THREE
from tests.bench.paper.measure import Shape, arrivals
from tests.bench.paper.setting import RATE_FACTOR, STREAMS, THREE_WINDOWS_S, Setting, many_windows_s
from tests.bench.runs import manifests_of, run_workload, write_workload

#: Larger micro-batches than elsewhere: one costs Spark about 0.5 s here, whatever is in it.
SHAPE = Shape(seconds=60.0, batch_s=5.0)
STRATEGIES: dict[str, Strategy] = {name: by.strategy for name, by in THREE.items()}


def spark_settings() -> list[tuple[Setting, dict[str, Strategy]]]:
    """Return the subset: the middle of Table 3 in all distributions, 36 Mostly-Small windows."""
    middle = [
        (Setting(name, windows, 80, RATE_FACTOR[0.1], 0.1, 0.5), STRATEGIES)
        for name, windows in THREE_WINDOWS_S.items()
    ]
    windows_s = many_windows_s("mostly-small", 36)
    skewed = Setting("mostly-small", windows_s, 80, RATE_FACTOR[0.025], 0.025, None)
    return [*middle, (skewed, {"mem-opt": "mem-opt", "cpu-opt": "cpu-opt"})]


def run_subset(directory: Path, shape: Shape = SHAPE) -> list[dict[str, Any]]:
    """Run the subset, one run after the other.

    Raises:
        RuntimeError: A run failed, or two strategies gave different results.
    """
    measured = []
    for number, (setting, strategies) in enumerate(spark_settings()):
        inputs = directory / f"setting-{number}"
        _write_input(inputs, setting, shape)
        runs = [_run(inputs, setting, name, strategy, shape) for name, strategy in strategies.items()]
        if len({run["results"] for run in runs}) != 1:
            raise RuntimeError(f"the strategies do not agree on the number of results: {runs}")
        measured += runs
        shutil.rmtree(inputs)
    return measured


def _write_input(directory: Path, setting: Setting, shape: Shape) -> None:
    for name in STREAMS:
        rows = arrivals(name, setting.arrivals_per_s, setting.join_selectivity, shape.seconds, shape.seed)
        (directory / name).mkdir(parents=True)
        for number in range(round(shape.seconds / shape.batch_s)):
            part = rows.table(number * shape.batch_s, (number + 1) * shape.batch_s, positions=False)
            pq.write_table(part, directory / name / f"part-{number:05d}.parquet")


def _run(inputs: Path, setting: Setting, name: str, strategy: Strategy, shape: Shape) -> dict[str, Any]:
    out = inputs / f"out-{strategy}"
    queries = {f"q{number}": setting.cql(number) for number in range(1, len(setting.windows_s) + 1)}
    path = write_workload(inputs / f"{strategy}.yaml", inputs, queries, strategy=strategy)
    _, summary = run_workload(path, out)
    manifests = manifests_of(out)
    first = round(max(setting.windows_s) / shape.batch_s)
    steady = manifests[first:]
    seconds = len(steady) * shape.batch_s
    return {
        **setting.facts(),
        "strategy": name,
        "slices": len({(s.join, s.slice) for s in steady[-1].slices if s.side == "a"}),
        "state_rows": sum(m.state_rows for m in steady) / len(steady),
        # Within buckets: fewer than nested loops compare.
        "comparisons": sum(s.product for m in steady for s in m.slices) / seconds,
        "results": sum(summary["results"].values()),
        "input_rows": sum(s.rows for m in steady for s in m.streams),
        "wall_s": (manifests[-1].committed_at_us - manifests[first - 1].committed_at_us) / 1e6,
        "cpu_s": sum(m.cpu.pack_us + m.cpu.chain_us for m in steady) / 1e6,
    }
