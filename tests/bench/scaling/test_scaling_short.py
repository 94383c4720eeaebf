"""The scaling bench, small: the model is the sum it says, a fit finds its constants, the report stands."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from tests.bench.reports import rounded
from tests.bench.scaling.__main__ import QUICK_PHASES, in_spark, main
from tests.bench.scaling.driver import Serial, measure_partitions, measure_reports
from tests.bench.scaling.in_process import measure_points
from tests.bench.scaling.in_spark import CHECKED, PHASES, RUNS, Phase, SparkRun, phase_facts
from tests.bench.scaling.load import GRID, Case, Point, workload
from tests.bench.scaling.measured import Measured, bucket_deviation, read, shape_of, slope
from tests.bench.scaling.model import (
    PARALLEL,
    Cluster,
    Shape,
    at_interval,
    batch_s,
    cost_s,
    fitted,
    left_out,
    predicted,
)
from tests.bench.scaling.report import CORES, INTERVALS_S, MANY_CORES, driver_model, write_report

#: Seconds, of a machine that does not exist.
TRUE = {
    "pack": {"piece": 1e-3, "payload": 5e-5, "payload's column": 1e-5, "row": 1e-7, "value": 1e-8},
    "chain": {
        "bucket": 2e-3,
        "segment": 5e-5,
        "segment's column": 5e-6,
        "payload": 8e-5,
        "row": 3e-7,
        "row and segment": 1e-9,
        "value": 2e-8,
        "pair": 1e-7,
        "value of a pair": 1e-8,
    },
    "spark": {"piece": 5e-3, "task": 8e-3, "bucket": 1e-3, "block": 1e-4, "payload": 2e-5, "byte": 1e-9},
    "serial": {"batch": 0.1, "piece": 1e-3, "task": 2e-3, "bucket": 2e-4},
}


def own_of(point: Point) -> Case:
    """Return what a point takes on that machine."""
    own = point.facts() | {"segments": 50.0 * point.buckets, "results": point.rows * point.matches}
    return own | {f"{part}_s": cost_s(TRUE, SimpleNamespace(**own), part) for part in ("pack", "chain")}


def seen_of(run: SparkRun, phase: Phase) -> Case:
    """Return what a phase takes on that machine; tasks of the JVM are half of what Spark takes."""
    seen = phase_facts(run, phase) | {
        "hottest": 1.2,
        "jvm_s": 0.0,
        "shuffled_bytes": 20.0 * phase.batch_rows + 300.0 * phase.partitions * run.buckets,
        "results": 0.1 * phase.batch_rows,
        "segments": 50.0 * run.buckets,
    }
    load = SimpleNamespace(**seen)
    pack_s, chain_s, spark_s = (cost_s(TRUE, load, part) for part in PARALLEL)
    return seen | {
        "pack_s": pack_s,
        "chain_s": chain_s,
        "workers_s": pack_s + chain_s + spark_s / 2,
        "tasks_s": spark_s / 2,
        "wall_s": batch_s(TRUE, load),
    }


@pytest.fixture(scope="module")
def measured() -> Measured:
    return Measured(
        machine="a machine",
        conditions="nobody else",
        own=list(map(own_of, GRID)),
        reports=[Serial(4, 0.002, 4_000), Serial(1004, 0.202, 1_004_000)],
        partitions=[Serial(4, 0.001, 4_000), Serial(104, 0.002, 104_000)],
        seen=[seen_of(run, phase) for run in RUNS for phase in PHASES],
        checked=[seen_of(run, phase) for run in CHECKED for phase in PHASES],
    )


def test_a_fit_finds_the_constants_that_made_the_measurements(measured: Measured) -> None:
    own = pd.DataFrame(measured.own)
    model = fitted(own, pd.DataFrame(measured.seen))

    for part in ("pack", "spark", "serial"):
        assert model[part] == pytest.approx(TRUE[part], rel=0.01)
    # Segments are as many as buckets here, fifty each, so that one stands for the other.
    assert cost_s(model, own.loc[3], "chain") == pytest.approx(own.loc[3].chain_s)


def test_what_was_left_out_is_predicted(measured: Measured) -> None:
    checked = left_out(*(pd.DataFrame(of) for of in (measured.own, measured.seen, measured.checked)))

    assert set(checked.what) == {"pack", "chain", "cpu", "batch"}
    assert len(checked) == 2 * (len(GRID) + len(measured.seen) + len(measured.checked))
    assert (checked.predicted_s / checked.measured_s - 1).abs().max() < 0.02


def test_a_batch_on_a_cluster_is_serial_time_work_over_cores_and_network() -> None:
    shape = Shape(matches=0.1, segments_per_bucket=50, bytes_per_row=20, bytes_per_payload=300)
    one = predicted(TRUE, Cluster(10), shape, 1e7)
    many = predicted(TRUE, Cluster(320), shape, 1e7)

    assert one.load.buckets == 40
    assert one.load.partitions == one.load.tasks == 10
    assert one.serial_s == pytest.approx(cost_s(TRUE, one.load, "serial"))
    assert one.own_s == pytest.approx(cost_s(TRUE, one.load, "pack", "chain") / 10)
    assert one.network_s == 0, "a machine sends itself nothing"
    assert many.network_s == pytest.approx(many.load.shuffled_bytes * 19 / 20 / (20 * 1.25e9))
    assert many.serial_s == pytest.approx(0.1 + 0.32 + 0.64 + 0.256)
    assert many.waiting_s == 0, "buckets that are alike take as long"


def test_uneven_buckets_are_waited_for_and_cores_without_a_piece_idle() -> None:
    shape = Shape(matches=0.1, segments_per_bucket=50, bytes_per_row=20, bytes_per_payload=300)
    uneven = predicted(TRUE, Cluster(100, bucket_deviation=0.2), shape, 1e7)
    few = predicted(TRUE, Cluster(100), replace(shape, rows_per_piece=1e6), 1e7)
    enough = predicted(TRUE, Cluster(100), replace(shape, rows_per_piece=1e5), 1e7)

    assert uneven.waiting_s == pytest.approx((uneven.own_s + uneven.spark_s) * 0.1 * 3.035, rel=0.01)
    assert few.load.partitions == 10
    assert few.own_s > enough.own_s


def test_the_batch_of_an_interval_takes_that_long_and_an_interval_may_be_too_short() -> None:
    shape = Shape(matches=0.1, segments_per_bucket=50, bytes_per_row=20, bytes_per_payload=300)
    found = at_interval(TRUE, Cluster(100), shape, 5.0)

    assert found is not None
    assert found.batch_s == pytest.approx(5.0, rel=1e-3)
    assert at_interval(TRUE, Cluster(1000), shape, 1.0) is None


def test_the_report_is_written_of_what_the_file_holds(measured: Measured, tmp_path: Path) -> None:
    text = write_report(tmp_path, measured)

    assert rounded(asdict(read(tmp_path))) == rounded(asdict(measured))
    assert "| the driver, clock | batch | 100,000 |" in text
    assert "| buckets reported | 1,004 | 202.0 | 1,004 |" in text
    assert {p.name for p in tmp_path.iterdir()} == {"scaling.md", "scaling.json", "scaling-checked.png"}
    assert slope(measured.reports) == pytest.approx(2e-4)
    assert shape_of(measured).bytes_per_row == pytest.approx(20)
    assert shape_of(measured).bytes_per_payload == pytest.approx(300)
    # The hottest of 32 is 2.63 standard deviations above the mean.
    assert bucket_deviation(measured) == pytest.approx(0.2 / 2.63, rel=0.01)


def test_the_report_says_how_many_cores_an_interval_keeps_half_as_busy_as_the_best(
    measured: Measured, tmp_path: Path
) -> None:
    text = write_report(tmp_path, measured)

    found = re.search(r"\| 1 s \| (\d+) \| the driver \|", text)
    assert found is not None
    most = int(found[1])
    more = MANY_CORES[MANY_CORES.index(most) + 1]
    model, shape = driver_model(measured), shape_of(measured)
    per_core = {}
    for cores, interval_s in ((CORES[0], INTERVALS_S[-1]), (most, 1.0), (more, 1.0)):
        cluster = Cluster(cores, bucket_deviation=bucket_deviation(measured))
        prediction = at_interval(model, cluster, shape, interval_s)
        assert prediction is not None
        per_core[cores] = prediction.rows_per_s / cores
    assert per_core[more] < 0.5 * per_core[CORES[0]] <= per_core[most]


def test_a_batch_of_a_load_comes_in_as_many_pieces_as_the_point_says(tmp_path: Path) -> None:
    point = Point(2_000, cuts=4)
    (batches,) = zip(range(1), workload(point).batches(tmp_path, at_once=2), strict=False)
    first, second = batches[1]

    assert (first.number, second.number) == (0, 1)
    assert len(first.pieces) == point.partitions == 8
    assert sum(piece.rows for piece in first.pieces) == pytest.approx(2_000, rel=0.1)
    newest = [piece.t_max_us for piece in first.pieces if piece.stream_id == 1]
    assert newest == [250_000, 500_000, 750_000, 1_000_000]


@pytest.mark.slow
def test_our_own_code_and_the_driver_are_measured() -> None:
    one, four = measure_points((Point(1_000, 1), Point(1_000, 4, cuts=2)), batches=4)
    assert (one["partitions"], four["partitions"]) == (2, 4)
    assert one["segments"] < four["segments"]
    assert all(o["pack_s"] > 0 and o["chain_s"] > 0 and o["results"] > 0 for o in (one, four))
    assert [s.count for s in measure_reports((2, 8))] == [2, 8]
    small, large = measure_partitions((4, 16))
    assert small.bytes < large.bytes


@pytest.mark.slow
@pytest.mark.spark
def test_phases_of_the_job_are_measured() -> None:
    seen = in_spark((SparkRun(4, 2),), QUICK_PHASES, batches=5)
    few, lone = (SimpleNamespace(**case) for case in seen)

    assert (few.partitions, lone.partitions) == (2, 4)
    assert lone.pack_s > few.pack_s
    assert lone.shuffled_bytes > few.shuffled_bytes > 0
    assert all(0 < s.tasks_s < s.jvm_s and s.workers_s > 0 and s.wall_s > 0 for s in (few, lone))


@pytest.mark.bench
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_scaling_at_full_size() -> None:
    main(out=Path("docs/bench"), quick=False, report_only=False, conditions="")
