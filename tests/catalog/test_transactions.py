"""Transactions: all or nothing, one writer at a time, readers never wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.errors import CatalogDown, InvariantBroken, StreamNotFound
from catalog.store.store import Store
from catalog.values.control import Heartbeat
from tests.catalog.examples import add_query, commit, listed, manifest, plan, stored_routes, stream, undone
from tests.epochs import begin_epoch


def everything(store: Store) -> tuple[object, ...]:
    """All that a store holds, to compare."""
    return (
        store.streams.all(),
        store.queries.all(),
        store.control_log.records(0),
        store.control_log.latest_plan(),
        store.source_files.page(1),
        store.lease.epoch(),
        store.batches.manifests(0, 100),
        store.batches.totals(),
        store.counts.totals(),
        store.batches.stream_totals(),
        stored_routes(store),
        store.idempotency.recall("k", "f"),
        store.settings.get("s"),
    )


def change_everything(store: Store) -> None:
    """Write to every part of the store."""
    a, b = store.streams.add(stream("A")), store.streams.add(stream("B"))
    record = add_query(store, "q1", a, b)
    store.control_log.append(plan=plan(1, (a, b)))
    store.control_log.append(heartbeat=Heartbeat(1, 5))
    store.source_files.append(a.id, [listed("/a/1")])
    commit(store, manifest(0, begin_epoch(store), {record.query.id: 3}))
    store.idempotency.remember("k", "f", 200, "{}")
    store.settings.set("s", 1)


def test_an_exception_in_a_transaction_leaves_nothing(store: Store) -> None:
    before = everything(store)
    with undone(store):
        change_everything(store)
        inside = everything(store)
    assert inside != before
    assert everything(store) == before
    # Ids and numbers begin where they would have.
    with store.transaction():
        change_everything(store)
    assert store.streams.get("A").id == 1
    assert store.queries.get("q1").query.id == 1
    assert store.control_log.head() == 2
    assert store.lease.epoch() == 1


def test_a_transaction_takes_effect_as_a_whole(store: Store, url: str) -> None:
    with Store.open(url, migrate=False) as other:
        before = everything(other)
        with store.transaction():
            change_everything(store)
            assert everything(other) == before
        assert everything(other) == everything(store)


def test_a_read_is_one_snapshot(store: Store, url: str) -> None:
    with Store.open(url, migrate=False) as other, other._database.read() as connection:
        # The thread's reads are transactions of their own, so this one's connection is asked itself.
        counted = "SELECT count(*) FROM control_log"
        assert connection.exec_driver_sql(counted).scalar() == 0
        store.control_log.append(heartbeat=Heartbeat(1, 1))
        assert connection.exec_driver_sql(counted).scalar() == 0
        assert other.control_log.head() == 1


def test_the_catalogs_own_errors_undo_the_transaction_too(store: Store) -> None:
    def remove_another() -> None:
        with store.transaction():
            store.streams.add(stream("A"))
            store.streams.remove("nope")

    with pytest.raises(StreamNotFound):
        remove_another()
    assert store.streams.all() == ()


def test_a_part_that_fails_and_is_caught_undoes_itself_alone(store: Store) -> None:
    with store.transaction():
        store.streams.add(stream("A"))
        with undone(store):
            store.streams.add(stream("B"))
            store.control_log.append(plan=plan(1))
        with pytest.raises(InvariantBroken):
            store.control_log.append(plan=plan(7))
        store.streams.add(stream("C"))
    assert [s.name for s in store.streams.all()] == ["A", "C"]


def test_the_store_is_usable_after_a_transaction_failed(store: Store) -> None:
    for _ in range(20):
        with undone(store):
            store.control_log.append(heartbeat=Heartbeat(1, 1))
    assert store.control_log.append(heartbeat=Heartbeat(1, 1)).seq == 1


def test_threads_number_control_records_without_gaps(store: Store) -> None:
    writers, each = 4, 50

    def write(writer: int) -> None:
        for n in range(each):
            store.control_log.append(heartbeat=Heartbeat(writer, n))

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    log = store.control_log.records(0)
    assert [record.seq for record in log] == list(range(1, writers * each + 1))
    for writer in range(writers):
        beats = [r.heartbeat.watermark_us for r in log if r.heartbeat and r.heartbeat.stream_id == writer]
        assert beats == list(range(each))


@pytest.mark.parametrize("commits", [True, False])
def test_numbers_follow_commit_order(store: Store, commits: bool) -> None:
    """A second writer waits for the first one's fate, and takes its number if it fails."""
    appended, go_on = threading.Event(), threading.Event()

    def first() -> int:
        with store.transaction():
            seq = store.control_log.append(heartbeat=Heartbeat(1, 1)).seq
            appended.set()
            assert go_on.wait(60)
            if not commits:
                raise ZeroDivisionError
        return seq

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        assert appended.wait(60)
        two = pool.submit(lambda: store.control_log.append(heartbeat=Heartbeat(2, 2)).seq)
        # A reader neither waits nor sees what is not committed.
        assert store.control_log.head() == 0
        assert not two.done()
        go_on.set()
        assert two.result(60) == (2 if commits else 1)
        assert isinstance(one.exception(60), ZeroDivisionError) != commits
    assert store.control_log.head() == (2 if commits else 1)


@pytest.mark.parametrize("same_store", [True, False])
def test_a_writer_gives_up_after_its_timeout(store: Store, url: str, same_store: bool) -> None:
    with Store.open(url, migrate=False, busy_timeout_s=0.05) as impatient:
        holder = impatient if same_store else store
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with holder.transaction():
                held.set()
                assert release.wait(60)

        with ThreadPoolExecutor(1) as pool:
            holding = pool.submit(hold)
            assert held.wait(60)
            with pytest.raises(CatalogDown):
                impatient.control_log.append(heartbeat=Heartbeat(1, 1))
            release.set()
            holding.result(60)
        assert impatient.control_log.append(heartbeat=Heartbeat(1, 1)).seq == 1


def test_a_thread_is_not_in_the_transaction_of_another(store: Store) -> None:
    with store.transaction():
        store.streams.add(stream("A"))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(store.streams.all).result(60) == ()
        assert len(store.streams.all()) == 1
