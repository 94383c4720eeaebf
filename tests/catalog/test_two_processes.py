"""The catalog between processes: the service writes while Spark's source process reads."""

from __future__ import annotations

from pathlib import Path

from catalog.store.store import Store
from catalog.values.control import Heartbeat
from tests.catalog.examples import plan
from tests.catalog.processes import (
    SPAWN,
    TIMEOUT_S,
    append_heartbeats,
    append_in_pairs,
    die_in_a_transaction,
    finished,
    fork_and_use,
    open_and_register,
)
from tests.epochs import begin_epoch


def test_a_reader_sees_whole_transactions_in_order_while_another_process_writes(
    store: Store, url: str
) -> None:
    pairs = 12
    begin_epoch(store)
    writer = SPAWN.Process(target=append_in_pairs, args=(url, pairs))
    writer.start()
    heads = [0]
    with Store.open(url, migrate=False) as reader:
        while heads[-1] < 2 * pairs:
            log = reader.control_log.records(0)
            assert [r.seq for r in log] == list(range(1, len(log) + 1))
            assert len(log) % 2 == 0
            heads.append(len(log))
            if log:
                # What was committed with the records is there once the records are.
                assert reader.batches.manifest(len(log) // 2 - 1) is not None
                assert reader.control_log.plan_at(len(log)) == plan(len(log) // 2, queries=3)
                assert reader.batches.totals().batches >= len(log) // 2
            assert writer.is_alive() or reader.control_log.head() == 2 * pairs
    assert heads == sorted(heads)
    assert finished(writer) == 0


def test_processes_number_control_records_without_gaps(store: Store, url: str) -> None:
    writers, each = 2, 20
    processes = [SPAWN.Process(target=append_heartbeats, args=(url, w, each)) for w in range(writers)]
    for process in processes:
        process.start()
    for n in range(each):
        store.control_log.append(heartbeat=Heartbeat(writers, n))
    assert [finished(process) for process in processes] == [0] * writers
    log = store.control_log.records(0)
    assert [record.seq for record in log] == list(range(1, (writers + 1) * each + 1))
    for writer in range(writers + 1):
        beats = [r.heartbeat.watermark_us for r in log if r.heartbeat and r.heartbeat.stream_id == writer]
        assert beats == list(range(each))


def test_processes_that_open_a_new_catalog_at_once_migrate_it_once(url: str) -> None:
    ends = []
    processes = []
    for _ in range(3):
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=open_and_register, args=(url, theirs))
        process.start()
        ends.append(ours)
        processes.append(process)
    for end in ends:
        assert end.poll(TIMEOUT_S)
        assert end.recv() == "ready"
    for end in ends:
        end.send("go")
    epochs = []
    for end in ends:
        assert end.poll(TIMEOUT_S)
        epochs.append(end.recv())
    assert [finished(process) for process in processes] == [0, 0, 0]
    assert sorted(epochs) == [1, 2, 3]


def test_a_process_killed_in_a_transaction_leaves_nothing_and_no_lock(url: str, tmp_path: Path) -> None:
    process = SPAWN.Process(target=die_in_a_transaction, args=(url,))
    process.start()
    assert finished(process) == -9
    with Store.open(url, busy_timeout_s=5) as store:
        assert store.control_log.head() == 0
        assert store.control_log.append(plan=plan(1)).seq == 1


def test_a_forked_child_must_open_its_own_store(url: str) -> None:
    ours, theirs = SPAWN.Pipe()
    # Spawned first, so that nothing but the store is forked.
    parent = SPAWN.Process(target=fork_and_use, args=(url, theirs))
    parent.start()
    assert ours.poll(TIMEOUT_S)
    assert ours.recv() == "catalog was opened in another process"
    assert ours.poll(TIMEOUT_S)
    assert ours.recv() == 2
    assert finished(parent) == 0
