"""A query whose expression fails leaves the plan, and the batch in hand is begun again without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.store.store import Store
from catalog.values.change import AddQuery, ResumeQuery
from catalog.values.stream import Column, HttpSource, Stream
from operators.errors import ExpressionFailed
from planner.build.objective import Objective
from service.checkpoint.spark_log import SparkLog
from service.config.data_dir import DataDir, open_data_dir
from service.config.settings import load_settings
from service.engine.engine import Engine
from service.inputs.reading.sample import CatalogRows
from service.planning.preview import Statistician
from service.planning.versions import Versions
from service.statistics.queries.query_status import query_statuses
from service.workspace.failing_queries import pause_failing
from tests.empty_catalog import prepared
from tests.service.applying import apply_changes
from tests.service.spark_logs import write_begun, write_done

SLOW = '"v" < 1'
TRACE = (
    f"org.apache.spark.SparkException: Job aborted\n operators.errors.{ExpressionFailed(SLOW, 'is slow')!s}"
)
COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))


def cql(where: str = "") -> str:
    return f"SELECT a.k FROM A [RANGE 9 SECONDS] a, B [RANGE 9 SECONDS] b WHERE a.k = b.k{where}"


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return open_data_dir(tmp_path)


@pytest.fixture
def versions(data_dir: DataDir) -> Iterator[Versions]:
    with Store.open(prepared(data_dir.catalog_url)) as store:
        for name in ("A", "B"):
            store.streams.add(Stream(0, name, COLUMNS, "ts", 0, HttpSource()))
        versions = Versions(store, Statistician(store, CatalogRows(store), buckets=2), Objective())
        texts = {
            "side_a": cql(" AND a.v < 1"),
            "side_b": cql(" AND b.v < 1 AND a.v > 3"),
            "other": cql(" AND a.v < 2"),
            "both": cql(" AND a.v < b.v"),
        }
        apply_changes(versions, [AddQuery(name, text) for name, text in texts.items()])
        yield versions


def running(store: Store) -> set[str]:
    return {record.query.name for record in store.queries.running()}


def test_all_queries_with_the_expression_are_paused_and_say_why(versions: Versions) -> None:
    store = versions.store
    paused = pause_failing(versions, ExpressionFailed(SLOW, "").digest, "it is slow")
    assert sorted(paused) == ["side_a", "side_b"]
    assert running(store) == {"other", "both"}
    told = {s.query.name: s.paused_because for s in query_statuses(store, store.queries.paused())}
    assert told == {"side_a": "it is slow", "side_b": "it is slow"}
    apply_changes(versions, ResumeQuery("side_a"))
    (resumed,) = query_statuses(store, [store.queries.get("side_a")])
    assert (resumed.desired, resumed.paused_because) == ("running", None)


def test_a_residual_is_an_expression_too(versions: Versions) -> None:
    (residual,) = (r.query.residual for r in versions.store.queries.running() if r.query.name == "both")
    assert residual is not None
    assert pause_failing(versions, ExpressionFailed(residual, "").digest, "") == ("both",)


def test_the_batch_in_hand_is_begun_anew(versions: Versions, data_dir: DataDir) -> None:
    log = SparkLog(data_dir.checkpoint)
    # Spark's empty batch, which the job begins with: ours is in hand, and not committed.
    write_begun(log, 0, {"batch": 0, "control": 0})
    write_done(log, 0)
    write_begun(log, 1, {"1": 7, "batch": 1, "control": versions.store.control_log.head()})

    def pause(digest: str, reason: str) -> tuple[str, ...]:
        return pause_failing(versions, digest, reason)

    engine = Engine(load_settings(), data_dir, versions.store, pause_failing=pause)
    assert not engine._failed_batch.decided("another trace", "r")
    assert log.begun() == (-1, 0)
    assert engine._failed_batch.decided(TRACE, "it is slow")
    assert (log.begun(), log.done()) == ((-1,), (-1,))
    assert running(versions.store) == {"other", "both"}


@pytest.mark.parametrize("behind", [True, False])
def test_queries_that_were_paused_before_a_crash_are_not_paused_again(
    versions: Versions, data_dir: DataDir, behind: bool
) -> None:
    """The engine died between the pause and the removal of the batch from Spark's log."""
    log, head = SparkLog(data_dir.checkpoint), versions.store.control_log.head()
    pause_failing(versions, ExpressionFailed(SLOW, "").digest, "")
    write_begun(log, 0, {"batch": 1, "control": head if behind else versions.store.control_log.head()})
    engine = Engine(load_settings(), data_dir, versions.store, pause_failing=lambda *_: ())
    assert engine._failed_batch.decided(TRACE, "it is slow") == behind
    assert log.begun() == (() if behind else (0,))


def test_a_run_ends_with_the_error_instead(versions: Versions, data_dir: DataDir) -> None:
    engine = Engine(load_settings(), data_dir, versions.store)
    assert not engine._failed_batch.decided(TRACE, "it is slow")
