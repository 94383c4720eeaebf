"""Updates, pauses and resumes by script on real Spark, against DuckDB over the whole input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.oracle import Oracle
from tests.sluice_run import Mode, assert_equals_oracle, run
from tests.workload_spec import (
    SECOND_US,
    Col,
    Lit,
    QuerySpec,
    SideSpec,
    Step,
    StreamSpec,
    WorkloadSpec,
    call,
)
from tests.workloads import write_workload

BATCHES, ROWS = 9, 60


def table(rng: np.random.Generator, batch: int, start: int) -> pa.Table:
    """A file of a batch: two seconds of event time, some disorder, few keys."""
    ts = (batch * 2 * SECOND_US + rng.integers(0, 2 * SECOND_US, ROWS)).astype(np.int64)
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us")),
            "id": pa.array(range(start, start + ROWS), pa.int64()),
            "k": pa.array(rng.integers(0, 6, ROWS), pa.int64()),
            "v": pa.array(rng.random(ROWS).round(3), pa.float64()),
        }
    )


def query(name: str, window_s: int, below: float | None = None) -> QuerySpec:
    """A join of A and B on k that delivers both ids and both values."""
    filters = () if below is None else (call("<", Col("l", "v"), Lit(below)),)
    return QuerySpec(
        name=name,
        left=SideSpec("A", "a", window_s * SECOND_US, filters),
        right=SideSpec("B", "b", window_s * SECOND_US),
        key=(("k", "k"),),
        outputs=(
            ("lid", Col("l", "id")),
            ("rid", Col("r", "id")),
            ("lv", Col("l", "v")),
            ("rv", Col("r", "v")),
        ),
    )


def workload(directory: Path) -> tuple[WorkloadSpec, dict[str, list[pa.Table]]]:
    rng = np.random.default_rng(11)
    files = {name: [table(rng, batch, 1000 * batch) for batch in range(BATCHES)] for name in ("A", "B")}
    columns = {"ts": "timestamp", "id": "bigint", "k": "bigint", "v": "double"}
    streams = tuple(
        StreamSpec(name, columns, "ts", SECOND_US // 2, str(directory / "data" / name)) for name in files
    )
    q1, q2 = query("q1", 4), query("q2", 6, 0.5)
    script = (
        Step(2, update=replace(query("q1", 8), backfill="state")),
        Step(2, pause="q2"),
        Step(3, add=query("q3", 3, 0.8)),
        Step(4, update=replace(query("q1", 2, 0.3), backfill="state")),
        Step(5, resume="q2"),
        Step(5, migrate="cpu-opt"),
        Step(6, pause="q1"),
        Step(6, update=replace(query("q2", 9, 0.9), backfill="state")),
        Step(7, resume="q1"),
        Step(7, remove="q3"),
    )
    return WorkloadSpec(streams, (q1, q2), script), files


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("mode", ["per-query", "shared"])
def test_a_script_of_updates_pauses_and_resumes_equals_the_oracle(mode: Mode, tmp_path: Path) -> None:
    spec, files = workload(tmp_path)
    write_workload(spec, files, tmp_path)
    oracle = Oracle(spec, files)
    assert all(count > 100 for count in oracle.counts().values()), oracle.counts()
    outcome = run(tmp_path / "WORKLOAD.yaml", tmp_path / "out", mode=mode)
    assert_equals_oracle(outcome, tmp_path / "out", oracle, mode)
    assert outcome.summary["plan_version"] == 7, "one version per batch of the script"
