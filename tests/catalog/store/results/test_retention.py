"""Retention in the catalog: what is too old goes whole, and what others ask of old batches stays true."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest

from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.results.retention import KEPT_BATCHES, Dropped, DroppedOfSeries
from catalog.store.store import Store
from catalog.values.batch import ResultFile
from service.planning.migrating.migration_outcome import MEDIAN_OF
from service.statistics.profile import RECENT_BATCHES
from tests.catalog.examples import add_query, commit, manifest, plan, stored_routes, stream, undone
from tests.epochs import begin_epoch

#: Batches of these tests are a second apart.
SECOND_US = 1_000_000


class Job:
    """Commits batches of a catalog with one family.

    Args:
        store: The catalog.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.a, self.b = store.streams.add(stream("a")), store.streams.add(stream("b"))
        self.epoch = begin_epoch(store)
        self.version = 0
        self.batch = 0

    def replan(self) -> int:
        """Append a plan version and return it; the next batch is under it."""
        self.version += 1
        self.store.control_log.append(plan=plan(self.version))
        return self.version

    def add(self, name: str) -> int:
        """Add a query as a plan version of its own and return its id."""
        return add_query(self.store, name, self.a, self.b, self.replan()).query.id

    def remove(self, name: str) -> None:
        """Remove a query as a plan version of its own."""
        self.store.queries.remove(name, self.replan())

    def update(self, name: str) -> int:
        """Let a query of the same series follow another and return its id."""
        version = self.replan()
        before = self.store.queries.get(name)
        self.store.queries.leave(before.query.id, version, "update")
        following = replace(before.query, id=self.store.queries.reserve_ids(1)[0])
        return self.store.queries.add(following, version, series=before.series).query.id

    def commit(self, rows: dict[int, int] | None = None, batches: int = 1) -> None:
        """Commit batches that give each query so many rows, one second after the other."""
        given = rows or {}
        ids = tuple(given)
        for _ in range(batches):
            made = replace(
                manifest(self.batch, self.epoch, given),
                plan_version=self.version,
                committed_at_us=self.batch * SECOND_US,
                late_files=(ResultFile(f"late-{self.batch}.parquet", "a", 1),),
            )
            assert commit(self.store, made, {zlib.crc32(repr(ids).encode()): ids} if ids else {})
            self.batch += 1

    def drop(self, kept_from: int, **options: int) -> Dropped:
        """Drop what is older than a batch."""
        return self.store.retention.drop(kept_from * SECOND_US - 1, **options)


@pytest.fixture
def job(store: Store) -> Job:
    return Job(store)


def kept_batches(store: Store) -> list[int]:
    """Return the numbers of the batches that have a manifest."""
    return [m.batch for m in store.batches.manifests(0, 10**6)]


def prune(store: Store) -> int:
    """Prune and return how many queries went."""
    return store.pruning.prune().queries


def test_so_many_batches_are_kept_that_everybody_who_looks_at_the_last_ones_finds_them() -> None:
    assert max(REPLAYED_BATCHES, RECENT_BATCHES, MEDIAN_OF) < KEPT_BATCHES


def test_nothing_goes_before_the_first_batch_nor_while_there_are_few(job: Job) -> None:
    assert job.drop(10**6) == Dropped()
    assert job.store.retention.kept_from() == (0, None)
    q = job.add("q")
    job.commit({q: 1}, KEPT_BATCHES)
    assert not job.drop(10**6)
    job.commit({q: 1})
    dropped = job.drop(10**6)
    assert (dropped.batches, dropped.results, dropped.kept_from) == (1, 1, 1)
    assert dropped.files == ("part-0-1.parquet",)
    assert dropped.late_files == ("late-0.parquet",)
    assert job.store.retention.kept_from() == (1, SECOND_US)


def test_batches_younger_than_the_retention_stay_and_all_behind_them(job: Job, few: int) -> None:
    q = job.add("q")
    job.commit({q: 2}, 10)
    assert job.drop(4).kept_from == 4
    assert not job.drop(4)
    assert job.store.counts.of_query(q) == tuple((n, 2) for n in range(4, 10))
    assert job.store.retention.dropped(q) == DroppedOfSeries(results=8, batch=3, of_batch=2)
    assert job.store.counts.totals() == {q: 20}, "how many there were is known forever"
    # A clock that was set back: batch 5 counts as young, so what follows it stays.
    with job.store._database.write() as connection:
        connection.exec_driver_sql(f"UPDATE batches SET committed_at_us = {100 * SECOND_US} WHERE batch = 5")
    assert job.drop(9).kept_from == 5
    assert not job.drop(9)


def test_a_step_is_bounded_and_stops_where_a_reader_is(job: Job, few: int) -> None:
    job.commit(batches=30)
    assert job.drop(20, limit=5).kept_from == 5
    assert job.drop(20, before=8).kept_from == 8
    assert not job.drop(20, before=8)
    assert not job.drop(20, before=0)
    assert job.drop(20, before=100).kept_from == 20
    assert job.drop(100).kept_from == 30 - few


def test_the_batch_from_which_on_results_are_kept_has_everything(job: Job, few: int) -> None:
    q = job.add("q")
    job.commit({q: 1}, 10)
    before = job.store.batches.manifests(4, 9)
    job.drop(4)
    assert job.store.batches.manifests(4, 9) == before


def test_of_batches_under_the_same_queries_the_first_and_the_last_manifest_stay(job: Job, few: int) -> None:
    q1 = job.add("q1")
    job.commit({q1: 1}, 5)
    job.add("q2")
    job.commit({q1: 1}, 5)
    job.replan()  # a migration: nobody came or left
    job.commit({q1: 1}, 5)
    job.remove("q2")
    job.commit({q1: 1}, 15)
    whole = {m.batch: m for m in job.store.batches.manifests(0, 100)}
    for kept_from in range(1, 26, 3):
        job.drop(kept_from)
    assert kept_batches(job.store) == [0, 4, 5, 14, 15, *range(25, 30)]
    for old in job.store.batches.manifests(0, 24):
        full = whole[old.batch]
        assert (old.streams, old.plan_version) == (full.streams, full.plan_version)
        assert (old.started_at_us, old.committed_at_us) == (full.started_at_us, full.committed_at_us)
        assert not any((old.files, old.late_files, old.query_rows, old.slices, old.filters))
    assert [job.store.batches.first_of_version(v) for v in (1, 2, 4)] == [
        (0, 0),
        (5, 5 * SECOND_US),
        (15, 15 * SECOND_US),
    ]


def test_manifests_go_with_the_last_query_that_they_were_kept_for(job: Job, few: int) -> None:
    q1 = job.add("q1")
    job.commit({q1: 1}, 5)
    q2 = job.add("q2")
    job.commit({q1: 1, q2: 1}, 5)
    job.remove("q2")
    job.commit({q1: 1}, 20)
    job.drop(18)
    assert kept_batches(job.store)[:6] == [0, 4, 5, 9, 10, 18]
    assert job.store.retention.thin_manifests() == 0
    assert prune(job.store) == 1
    assert job.store.retention.thin_manifests() == 4
    assert kept_batches(job.store)[:2] == [0, 18]
    assert job.store.batches.first_of_version(1) == (0, 0)
    job.drop(25)
    assert kept_batches(job.store) == [0, *range(25, 30)]


def test_a_removed_query_goes_with_its_last_result(job: Job, few: int) -> None:
    q1, q2 = job.add("q1"), job.add("q2")
    job.commit({q1: 1, q2: 3}, 5)
    job.remove("q2")
    job.commit({q1: 1}, 20)
    assert prune(job.store) == 0
    job.drop(4)
    assert prune(job.store) == 0
    assert job.store.counts.of_query(q2) == ((4, 3),)
    job.drop(5)
    assert prune(job.store) == 1
    assert [record.query.name for record in job.store.queries.all()] == ["q1"]
    assert job.store.counts.totals() == {q1: 25}
    assert job.store.retention.dropped(q2) is None


def test_former_queries_of_a_living_series_leave_their_totals_to_the_first(job: Job, few: int) -> None:
    first = job.add("q")
    job.commit(batches=2)
    second = job.update("q")
    job.commit({second: 5}, 2)
    third = job.update("q")
    job.commit({third: 7})
    fourth = job.update("q")
    job.commit(batches=20)
    before = sum(job.store.counts.totals().values())
    job.drop(4)
    assert prune(job.store) == 1
    assert job.store.queries.series_ids(first) == (first, third, fourth)
    assert job.store.counts.totals() == {first: 10, third: 7}
    assert job.store.retention.dropped(first) == DroppedOfSeries(results=10, batch=3, of_batch=5)
    job.drop(5)
    assert prune(job.store) == 1
    assert job.store.queries.series_ids(first) == (first, fourth)
    assert job.store.counts.totals() == {first: 17}
    assert job.store.retention.dropped(first) == DroppedOfSeries(results=17, batch=4, of_batch=7)
    assert sum(job.store.counts.totals().values()) == before
    job.remove("q")
    job.commit(batches=20)
    assert prune(job.store) == 2
    assert job.store.counts.totals() == {}


def test_routes_go_when_no_kept_pair_can_have_them(job: Job, few: int) -> None:
    stays = job.add("stays")
    gone = [job.add(f"t{n}") for n in range(3)]
    job.commit({stays: 1})
    job.commit({stays: 1, gone[0]: 1}, 3)
    job.remove("t0")
    job.commit({stays: 1, gone[1]: 1}, 3)
    job.remove("t1")
    job.commit({stays: 1, gone[2]: 1}, 3)
    assert len(stored_routes(job.store)) == 4
    job.drop(3)
    assert len(stored_routes(job.store)) == 3, "a pair of batch 3 has a route of t0"
    job.drop(4)
    assert [ids for _, _, ids in stored_routes(job.store)] == [(stays, gone[1]), (stays, gone[2])]
    job.commit({stays: 1})
    job.commit(batches=20)
    job.drop(11)
    # Every manifest that this test writes begins a generation.
    assert [ids for _, _, ids in stored_routes(job.store)] == [(stays,)]
    assert len(job.store.routes.of_query(gone[1], (11,))) == 0
    assert len(job.store.routes.of_query(stays, (11,))) == 1


def test_what_a_query_without_kept_results_had_of_routes_goes_with_it(job: Job, few: int) -> None:
    q = job.add("q")
    job.commit({q: 1}, 2)
    job.remove("q")
    job.commit(batches=20)
    job.drop(15)
    prune(job.store)
    assert [ids for _, _, ids in stored_routes(job.store)] == [(q,)], "no other generation has begun"
    other = job.add("other")
    job.commit({other: 1})
    job.commit(batches=20)
    job.drop(30)
    assert [ids for _, _, ids in stored_routes(job.store)] == [(other,)]


def test_dropping_undone_drops_nothing(job: Job, few: int) -> None:
    q = job.add("q")
    job.commit({q: 1}, 10)
    before = job.store.batches.manifests(0, 100)
    with undone(job.store):
        assert job.drop(5)
    assert job.store.retention.kept_from() == (0, 0)
    assert job.store.batches.manifests(0, 100) == before
    assert job.store.retention.dropped(q) is None
    assert job.drop(5).results == 5


def test_committing_goes_on_where_it_was(job: Job, few: int) -> None:
    q = job.add("q")
    job.commit({q: 1}, 10)
    job.drop(10)
    totals = job.store.batches.totals()
    job.commit({q: 1})
    assert job.store.retention.kept_from() == (7, 7 * SECOND_US)
    assert job.store.batches.totals().batches == totals.batches + 1 == 11
    # A batch that was dropped is known as committed: its manifest is behind what may replay.
    assert job.store.counts.totals() == {q: 11}


def test_what_stays_of_an_old_batch_is_small(job: Job, few: int) -> None:
    job.add("q")
    job.commit(batches=10)
    job.drop(5)
    with job.store._database.read() as connection:
        text = connection.exec_driver_sql("SELECT document FROM batches WHERE batch = 0").scalar_one()
    assert len(text) < 600
    assert json.loads(text)["files"] == []
