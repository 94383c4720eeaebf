"""The scaling bench, small: a fit finds the constants that made the measurements, the model is its sum."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.bench.options import DOCS
from tests.bench.scaling.__main__ import QUICK_PHASES, main, tables
from tests.bench.scaling.model import PARALLEL, TERMS, Shape, batch_s, cost_s, fitted, predicted, rows_at
from tests.bench.scaling.phases import PHASES, RUNS, Phase, SparkRun, measure

#: Seconds, of a machine that does not exist, by part, in the order of the terms.
_SECONDS = {
    "pack": (1e-3, 5e-5, 1e-7, 1e-8),
    "chain": (2e-3, 8e-5, 3e-7, 2e-8),
    "spark": (5e-3, 8e-3, 1e-3, 1e-4, 2e-5, 1e-9),
    "serial": (0.1, 1e-3, 2e-3, 2e-4),
}
TRUE = {part: dict(zip(TERMS[part], seconds, strict=True)) for part, seconds in _SECONDS.items()}
SHAPE = Shape(bytes_per_row=20, bytes_per_payload=300, bucket_deviation=0.0)


def seen_of(run: SparkRun, phase: Phase) -> dict[str, Any]:
    """Return what a phase takes on that machine; tasks of the JVM are half of what Spark takes."""
    seen = run.facts(phase)
    payloads = seen["partitions"] * run.buckets
    seen |= {"hottest": 1.2, "jvm_s": 1.0, "shuffled_bytes": 20.0 * seen["rows"] + 300.0 * payloads}
    load = SimpleNamespace(**seen)
    pack_s, chain_s, spark_s = (cost_s(TRUE, load, part) for part in PARALLEL)
    seen |= {"pack_s": pack_s, "chain_s": chain_s, "workers_s": pack_s + chain_s + spark_s / 2}
    return seen | {"tasks_s": spark_s / 2, "wall_s": batch_s(TRUE, load)}


def test_a_fit_finds_the_constants_that_made_the_measurements_and_the_report_shows_them() -> None:
    seen = pd.DataFrame(seen_of(run, phase) for run in RUNS for phase in PHASES)
    found = fitted(seen[seen.fitted])
    for part in TRUE:
        assert found[part] == pytest.approx(TRUE[part], rel=0.01)
    shape = Shape.of(seen)
    # The hottest of 32 is 2.63 standard deviations above the mean.
    assert shape == Shape(pytest.approx(20), pytest.approx(300), pytest.approx(0.2 / 2.63, rel=0.01))
    report = tables(seen)
    assert "| the driver, clock | batch | 100,000 |" in report["constants"]
    assert "| 1 s |" in report["limits"]


def test_a_batch_on_a_cluster_is_serial_time_work_over_cores_and_network() -> None:
    one, many = (predicted(TRUE, cores, SHAPE, 1e7) for cores in (10, 320))
    assert one["the network"] == 0, "a machine sends itself nothing"
    shuffled_bytes = 20 * 1e7 + 300 * 320 * 1280
    assert many["the network"] == pytest.approx(shuffled_bytes * 19 / 20 / (20 * 1.25e9))
    assert many["the driver"] == pytest.approx(0.1 + 0.32 + 0.64 + 0.256)
    assert many["waiting for the last task"] == 0, "buckets that are alike take as long"
    uneven = predicted(TRUE, 100, replace(SHAPE, bucket_deviation=0.2), 1e7)
    work_s = uneven["our own code"] + uneven["Spark's part of the tasks"]
    assert uneven["waiting for the last task"] == pytest.approx(work_s * 0.1 * 3.035, rel=0.01)
    few, enough = (predicted(TRUE, 100, replace(SHAPE, rows_per_piece=rows), 1e7) for rows in (1e6, 1e5))
    assert few["our own code"] > enough["our own code"], "cores without a piece idle"


def test_the_batch_of_an_interval_takes_that_long_and_an_interval_may_be_too_short() -> None:
    rows = rows_at(TRUE, 100, SHAPE, 5.0)
    assert rows is not None
    assert sum(predicted(TRUE, 100, SHAPE, rows).values()) == pytest.approx(5.0, rel=1e-3)
    assert rows_at(TRUE, 1000, SHAPE, 1.0) is None


@pytest.mark.slow
@pytest.mark.spark
def test_phases_of_the_job_are_measured() -> None:
    few, lone = (SimpleNamespace(**seen) for seen in measure(SparkRun(4, 2), QUICK_PHASES, batches=5))
    assert (few.partitions, lone.partitions) == (2, 4)
    assert lone.shuffled_bytes > few.shuffled_bytes > 0
    assert all(0 < s.tasks_s < s.jvm_s and s.workers_s > 0 and s.wall_s > 0 for s in (few, lone))


@pytest.mark.bench
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_scaling_at_full_size() -> None:
    main(out=DOCS)
