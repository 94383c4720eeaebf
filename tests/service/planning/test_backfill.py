"""Which columns earlier rows lack for a query that comes with ``backfill: state``."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete

from catalog.store.database import tables
from catalog.store.results import retention
from catalog.store.store import Store
from catalog.values.change import AddQuery, PauseQuery, RemoveQuery, ResumeQuery, UpdateQuery
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.query import Side
from catalog.values.stream import HttpSource, Stream
from service.planning.backfill import first_version_in_reach
from service.statistics.queries.query_status import query_statuses
from tests.builders import EMPTY_BATCH
from tests.catalog.examples import manifest
from tests.epochs import begin_epoch
from tests.service.planning.test_changes import COLUMNS, World, cql

SECOND = 1_000_000


class Job:
    """Commits batches in which both streams come to the same event time.

    Args:
        world: Catalog and queries.
        drops: Whether the results of all batches but the last one are dropped, and what can go with them.
    """

    def __init__(self, world: World, *, drops: bool = False) -> None:
        self.world = world
        self.drops = drops
        self.epoch = begin_epoch(world.store)
        self.batch = 0

    def commit(self, second: int) -> None:
        """Commit a batch under the newest plan, at the end of which both watermarks are ``second``."""
        now_us = second * SECOND
        self.world.store.batches.commit(
            replace(
                EMPTY_BATCH,
                batch=self.batch,
                epoch=self.epoch,
                plan_version=self.world.plan().version,
                streams=tuple(StreamCounters(i, 1, 0, 0, now_us, now_us) for i in (1, 2)),
                started_at_us=now_us,
                committed_at_us=now_us,
            )
        )
        self.batch += 1
        if self.drops:
            self.world.store.retention.drop(2**62)
            self.world.store.retention.thin_manifests()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "catalog.db")
    yield made
    made.store.close()


@pytest.fixture(params=["keeps all", "drops"])
def job(world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(retention, "KEPT_BATCHES", 1)
    return Job(world, drops=request.param == "drops")


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


def test_rows_that_a_tree_keeps_in_a_later_step_lack_what_it_does_not_read(world: World, job: Job) -> None:
    for name in ("C", "D"):
        world.store.streams.add(Stream(0, name, COLUMNS, "ts", 0, HttpSource()))
    tree = (
        "SELECT d.v FROM A a, B b, C c, D d WHERE a.k = b.k AND b.k = c.k AND c.k = d.k WINDOW 100 SECONDS "
        "TREE ((a, b), (c, d))"
    )
    world.change(AddQuery("tree", tree))
    job.commit(0)
    two = "SELECT c.v, d.v AS w FROM C c, D d WHERE c.k = d.k WINDOW 10 SECONDS"
    assert missing(world, "two", two) == ("c.v",)


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


@pytest.mark.parametrize("seed", range(4))
def test_the_oldest_batch_in_reach_is_found_whatever_manifests_are_gone(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = tmp_path / "catalog.db"
    count = rng.randint(1, 90)
    with Store.open(f"sqlite:///{path}") as store:
        epoch = begin_epoch(store)
        for batch in range(count):
            # Plan version b + 1 is that of batch b alone; every batch brings 2 ms of event time.
            store.batches.commit(dataclasses.replace(manifest(batch, epoch), plan_version=batch + 1))
        tail = rng.randrange(count)
        kept = {*rng.sample(range(count), min(count, rng.randint(0, 8))), *range(tail, count)}
        with store._database.write() as connection:
            connection.execute(delete(tables.batches).where(tables.batches.c.batch.not_in(kept)))
    with Store.open(f"sqlite:///{path}", migrate=False) as store:
        watermark_us = 1_000 * count
        for window_us in [0, 1, *(rng.randrange(3_000 * count) for _ in range(60))]:
            side = Side(1, "A", "a", window_us, None, (), ())
            reached = [b for b in sorted(kept) if 2_000 * (b + 1) + window_us > watermark_us]
            assert first_version_in_reach(store, side, 1) == reached[0] + 1
