"""Transactions: all or nothing, one writer at a time, readers never wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.errors import CatalogDown, InvariantBroken, StreamNotFound
from catalog.store.store import Store
from catalog.values.plan import Heartbeat
from tests.catalog.examples import add_query, listed, manifest, plan, stream, undone


def everything(store: Store) -> tuple[object, ...]:
    """All that a store holds, to compare."""
    return (
        store.streams(),
        store.all_queries(),
        store.control(0),
        store.latest_plan(),
        store.inputs(1),
        store.current_epoch(),
        store.manifests(0, 100),
        store.totals(),
        store.query_totals(),
        store.stream_totals(),
        store.routes(),
        store.recall("k", "f"),
        store.setting("s"),
    )


def change_everything(store: Store) -> None:
    """Write to every part of the store."""
    a, b = store.add_stream(stream("A")), store.add_stream(stream("B"))
    record = add_query(store, "q1", a, b)
    store.append_control(plan=plan(1, (a, b)))
    store.append_control(heartbeat=Heartbeat(1, 5))
    store.append_inputs(a.id, [listed("/a/1")])
    store.commit_batch(manifest(0, store.new_epoch("engine"), {record.query.id: 3}))
    store.remember("k", "f", 200, "{}")
    store.set_setting("s", 1)


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
    assert store.stream("A").id == 1
    assert store.query("q1").query.id == 1
    assert store.control_head() == 2
    assert store.current_epoch() == 1


def test_a_transaction_takes_effect_as_a_whole(store: Store, url: str) -> None:
    with Store.open(url, migrate=False) as other:
        before = everything(other)
        with store.transaction():
            change_everything(store)
            assert everything(other) == before
        assert everything(other) == everything(store)


def test_the_catalogs_own_errors_undo_the_transaction_too(store: Store) -> None:
    def remove_another() -> None:
        with store.transaction():
            store.add_stream(stream("A"))
            store.remove_stream("nope")

    with pytest.raises(StreamNotFound):
        remove_another()
    assert store.streams() == ()


def test_a_part_that_fails_and_is_caught_undoes_itself_alone(store: Store) -> None:
    with store.transaction():
        store.add_stream(stream("A"))
        with undone(store):
            store.add_stream(stream("B"))
            store.append_control(plan=plan(1))
        with pytest.raises(InvariantBroken):
            store.append_control(plan=plan(7))
        store.add_stream(stream("C"))
    assert [s.name for s in store.streams()] == ["A", "C"]


def test_the_store_is_usable_after_a_transaction_failed(store: Store) -> None:
    for _ in range(20):
        with undone(store):
            store.append_control(heartbeat=Heartbeat(1, 1))
    assert store.append_control(heartbeat=Heartbeat(1, 1)).seq == 1


def test_threads_number_control_records_without_gaps(store: Store) -> None:
    writers, each = 4, 50

    def write(writer: int) -> None:
        for n in range(each):
            store.append_control(heartbeat=Heartbeat(writer, n))

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    log = store.control(0)
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
            seq = store.append_control(heartbeat=Heartbeat(1, 1)).seq
            appended.set()
            assert go_on.wait(60)
            if not commits:
                raise ZeroDivisionError
        return seq

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        assert appended.wait(60)
        two = pool.submit(lambda: store.append_control(heartbeat=Heartbeat(2, 2)).seq)
        # A reader neither waits nor sees what is not committed.
        assert store.control_head() == 0
        assert not two.done()
        go_on.set()
        assert two.result(60) == (2 if commits else 1)
        assert isinstance(one.exception(60), ZeroDivisionError) != commits
    assert store.control_head() == (2 if commits else 1)


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
                impatient.append_control(heartbeat=Heartbeat(1, 1))
            release.set()
            holding.result(60)
        assert impatient.append_control(heartbeat=Heartbeat(1, 1)).seq == 1


def test_a_thread_is_not_in_the_transaction_of_another(store: Store) -> None:
    with store.transaction():
        store.add_stream(stream("A"))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(store.streams).result(60) == ()
        assert len(store.streams()) == 1
