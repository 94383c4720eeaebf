"""From what the buckets of a batch count to the batch's manifest, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errors import BatchDiffers, InvariantBroken
from catalog.store.store import Store
from catalog.values.batch import BatchManifest, ResultFile
from catalog.values.counters.batch_counters import CpuCounters
from catalog.values.counters.family_counters import FilterCounters, KeyCounters
from catalog.values.plan import Plan
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from service.checkpoint.spark_log import SparkLog
from service.commit.commit import BatchCommitter
from service.commit.reporting.bucket_report import BucketReport
from service.job.chain_processor import bucket_report
from service.results.files.result_check import length_and_checksum
from tests.builders import a_query, a_stream
from tests.epochs import begin_epoch
from tests.operators.harness import Runner
from tests.operators.queries import Row, a_table
from tests.service.spark_logs import log_of, none_voided, write_begun

STREAMS = {1: a_stream(1), 2: a_stream(2)}
LOW = '"v" < 5'


@pytest.fixture
def store(store: Store) -> Store:
    store.control_log.append(plan=a_plan())
    return store


def a_plan() -> Plan:
    return build_plan(
        [a_query(1, 10, filter_a=LOW), a_query(2, 30)], STREAMS, objective=Objective("unshared")
    )


def committed(store: Store, reports: Sequence[BucketReport], directory: Path) -> BatchManifest:
    """Commit a batch and read its manifest back."""
    epoch = begin_epoch(store)
    committer = BatchCommitter(
        store, directory, directory, epoch, str(directory / "lock"), log_of(directory), none_voided
    )
    committer(reports)
    manifest = store.batches.last_manifest()
    assert manifest is not None
    return manifest


def reports_of_a_batch() -> list[BucketReport]:
    """Three buckets, two joins; ten rows of a with keys 0, 1 and 2 (and one without), two of b with key 1."""
    runner = Runner(STREAMS, buckets=3)
    a = [Row(n, 10, {"k": None if n == 9 else n % 3, "m": None, "v": n, "w": None}) for n in range(10)]
    b = [Row(n, 10, {"k": 1, "m": None, "v": n, "w": None}) for n in range(2)]
    outputs = runner.step({1: a_table(STREAMS[1], a), 2: a_table(STREAMS[2], b)}, [a_plan()])
    reports = []
    for number, (bucket, output) in enumerate(zip(runner.state, outputs, strict=True), 1):
        report = bucket_report(bucket, output, number=number, batch=0)
        routes = tuple(counted.table().encode() for counted in output.routes.values())
        began_us = None if number == 1 else 1_000 * number
        reports.append(
            replace(report, began_us=began_us, routes=routes, cpu=CpuCounters(number, 10 * number))
        )
    return reports


def test_counters_of_the_buckets_add_up_in_the_manifest(store: Store, tmp_path: Path) -> None:
    manifest = committed(store, reports_of_a_batch(), tmp_path)
    family = manifest.slices[0].family
    assert [(s.join, s.side, s.slice) for s in manifest.slices] == [
        ("q1", "a", 1),
        ("q1", "b", 1),
        ("q2", "a", 1),
        ("q2", "b", 1),
    ]
    # Key 1 has positions 1, 4 and 7, of which v < 5 passes two; whatever else is in the bucket of key 1 is a
    # candidate, too.
    assert [s.rows for s in manifest.slices] == [5, 2, 9, 2]
    assert [s.touched for s in manifest.slices] == [4, 0, 6, 0]
    assert manifest.slices[0].product >= 4
    assert manifest.slices[2].product >= 6
    assert manifest.filters == (FilterCounters(family, "a", 0, rows=10, passed=5),)
    assert manifest.keys == (
        KeyCounters(family, "a", rows=9, keys=3, largest=3, squares=27, copies=9),
        KeyCounters(family, "b", rows=2, keys=1, largest=2, squares=4, copies=2),
    )
    assert manifest.cpu == CpuCounters(pack_us=6, chain_us=60)
    # The first bucket was not told.
    assert manifest.started_at_us == 2_000
    # Eleven rows came and ten pairs were made, all pairs and five rows or more in the bucket of key 1.
    assert (manifest.buckets.buckets, manifest.buckets.work, manifest.buckets.hottest_us) == (3, 21, 30)
    assert 15 <= manifest.buckets.hottest_work <= 21
    assert manifest.query_rows == ()
    assert store.counts.totals() == {1: 4, 2: 6}


def test_buckets_that_disagree_are_refused(store: Store, tmp_path: Path) -> None:
    reports = reports_of_a_batch()
    reports[1] = replace(reports[1], plan_version=7)
    with pytest.raises(InvariantBroken, match="several plan versions"):
        committed(store, reports, tmp_path)


def test_a_batch_that_comes_again_with_other_input_or_results_is_refused(
    store: Store, tmp_path: Path
) -> None:
    first = committed(store, reports_of_a_batch(), tmp_path)
    assert committed(store, reports_of_a_batch(), tmp_path) == first
    fewer = [replace(report, query_rows=()) for report in reports_of_a_batch()]
    with pytest.raises(
        BatchDiffers, match="batch 0 was committed before with other input or other results"
    ) as no:
        committed(store, fewer, tmp_path)
    assert "gave 10 results; now: 12 rows up to offset (1 1, batch 1, control 1) gave 0 results" in str(
        no.value
    )
    write_begun(SparkLog(tmp_path / "checkpoint"), 0, {"1": 9, "batch": 1, "control": 1})
    with pytest.raises(BatchDiffers, match="batch 0"):
        BatchCommitter(
            store,
            tmp_path,
            tmp_path,
            store.lease.epoch(),
            str(tmp_path / "lock"),
            SparkLog(tmp_path / "checkpoint"),
            none_voided,
        )(reports_of_a_batch())
    assert store.batches.last_manifest() == first


def test_damaged_files_are_replaced_by_those_of_the_repetition(store: Store, tmp_path: Path) -> None:
    def report(name: str) -> list[BucketReport]:
        (tmp_path / name).write_bytes(b"results")
        file = ResultFile(name, "f", 1, *length_and_checksum(tmp_path / name))
        reports = reports_of_a_batch()
        return [replace(reports[0], files=(file,)), *reports[1:]]

    committed(store, report("first.parquet"), tmp_path)
    assert committed(store, report("second.parquet"), tmp_path).files[0].path == "first.parquet"
    assert not (tmp_path / "second.parquet").exists()
    (tmp_path / "first.parquet").write_bytes(b"")
    healed = committed(store, report("third.parquet"), tmp_path)
    assert [file.path for file in healed.files] == ["third.parquet"]
    assert not (tmp_path / "first.parquet").exists()


def test_input_is_that_of_the_batch_where_sparks_numbers_are_ahead(store: Store, tmp_path: Path) -> None:
    log = SparkLog(tmp_path / "checkpoint")
    write_begun(log, 0, {"batch": 0, "control": 0})
    write_begun(log, 1, {"1": 7, "batch": 1, "control": 1})
    lock = str(tmp_path / "lock")
    epoch = begin_epoch(store)
    BatchCommitter(store, tmp_path, tmp_path, epoch, lock, log, none_voided)(reports_of_a_batch())
    manifest = store.batches.last_manifest()
    assert manifest is not None
    assert dict(manifest.input_end) == {"1": 7, "batch": 1, "control": 1}


def test_a_batch_that_spark_has_not_begun_is_refused(store: Store, tmp_path: Path) -> None:
    log = SparkLog(tmp_path / "checkpoint")
    write_begun(log, 0, {"batch": 0, "control": 0})
    epoch = begin_epoch(store)
    committer = BatchCommitter(store, tmp_path, tmp_path, epoch, str(tmp_path / "lock"), log, none_voided)
    with pytest.raises(InvariantBroken, match="batch 0 runs, but Spark's offset log does not contain it"):
        committer(reports_of_a_batch())
