"""Which columns earlier rows lack for a query that comes with ``backfill: state``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.values.batch import BatchManifest, StreamCounters
from catalog.values.change import AddQuery, PauseQuery, RemoveQuery, ResumeQuery, UpdateQuery
from service.query_status import query_statuses
from tests.service.test_changes import World, cql

SECOND = 1_000_000


class Job:
    """Commits batches in which both streams come to the same event time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.epoch = world.store.new_epoch("test")
        self.batch = 0

    def commit(self, second: int) -> None:
        """Commit a batch under the newest plan, at the end of which both watermarks are ``second``."""
        now_us = second * SECOND
        self.world.store.commit_batch(
            BatchManifest(
                batch=self.batch,
                epoch=self.epoch,
                plan_version=self.world.plan().version,
                files=(),
                late_files=(),
                routes=(),
                streams=tuple(StreamCounters(i, 1, 0, 0, now_us, now_us) for i in (1, 2)),
                slices=(),
                query_rows=(),
                started_at_us=now_us,
                committed_at_us=now_us,
            )
        )
        self.batch += 1


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "catalog.db")
    yield made
    made.store.close()


@pytest.fixture
def job(world: World) -> Job:
    return Job(world)


def missing(world: World, name: str, text: str) -> tuple[str, ...]:
    (record,) = world.change(AddQuery(name, text, "state")).records
    return record.missing


def test_without_backfill_and_without_a_family_before_no_earlier_row_takes_part(world: World) -> None:
    assert missing(world, "q1", cql(10)) == ("*",)
    (record,) = world.change(AddQuery("q2", cql(20))).records
    assert record.missing == ("*",)
    (status,) = query_statuses(world.store, (record,))
    assert (status.missing_columns, status.complete_from_us) == ((), None), "not before it is in force"


def test_key_and_event_time_are_always_there(world: World, job: Job) -> None:
    world.change(AddQuery("q1", cql(10, select="b.v AS x")))
    job.commit(1)
    assert missing(world, "q2", cql(20, select="a.k, a.ts, b.v")) == ()


def test_a_column_that_no_query_needed_is_missing_until_its_rows_are_out_of_reach(
    world: World, job: Job
) -> None:
    world.change(AddQuery("q1", cql(100)))
    job.commit(0)
    assert missing(world, "q2", cql(10, select="a.v")) == ("a.v",)
    job.commit(5)
    assert missing(world, "q3", cql(10, select="a.v")) == ("a.v",), "rows of second 0 are in reach"
    job.commit(9)
    assert missing(world, "q4", cql(10, select="a.v")) == ("a.v",)
    job.commit(10)
    assert missing(world, "q5", cql(10, select="a.v")) == ()
    assert missing(world, "q6", cql(11, select="a.v")) == ("a.v",), "its window reaches further back"


def test_a_gap_between_two_queries_that_kept_a_column_counts(world: World, job: Job) -> None:
    world.change(AddQuery("q1", cql(100)), AddQuery("q2", cql(100, " AND b.v < 1")))
    job.commit(0)
    world.change(RemoveQuery("q2"))
    job.commit(1)
    world.change(AddQuery("q3", cql(100, " AND b.v < 1")))
    job.commit(2)
    assert missing(world, "q4", cql(50, select="b.v")) == ("b.v",)
    job.commit(52)
    assert missing(world, "q5", cql(50, select="b.v")) == ()


def test_a_column_handed_on_from_query_to_query_is_not_missing(world: World, job: Job) -> None:
    world.change(AddQuery("q1", cql(100)), AddQuery("q2", cql(100, " AND b.v < 1")))
    job.commit(0)
    (record,) = world.change(UpdateQuery("q2", cql(50, " AND b.v < 0.5"))).records
    assert record.missing == ()
    job.commit(1)
    world.change(RemoveQuery("q2"), AddQuery("q3", cql(20, " AND b.v < 2")))
    job.commit(2)
    assert missing(world, "q4", cql(50, select="b.v")) == ()


def test_a_resumed_query_misses_what_was_not_kept_meanwhile(world: World, job: Job) -> None:
    world.change(AddQuery("q1", cql(100)), AddQuery("q2", cql(100, " AND b.v < 1")))
    job.commit(0)
    world.change(PauseQuery("q2"))
    job.commit(1)
    (record,) = world.change(ResumeQuery("q2")).records
    assert record.missing == ("b.v",)
    job.commit(2)
    (status,) = query_statuses(world.store, (record,))
    assert (status.missing_columns, status.complete_from_us) == (("b.v",), 2 * SECOND)
    assert (status.observed, status.desired) == ("running", "running")


def test_a_family_that_was_gone_holds_nothing_of_before(world: World, job: Job) -> None:
    world.change(AddQuery("q1", cql(100)))
    job.commit(0)
    world.change(RemoveQuery("q1"))
    job.commit(1)
    world.change(AddQuery("q2", cql(100, " AND b.v < 1")))
    job.commit(2)
    assert missing(world, "q3", cql(100, select="b.v")) == ()
