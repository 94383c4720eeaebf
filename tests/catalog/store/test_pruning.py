"""Pruning: what can replay stays, numbers go on, and what kept results need is there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from catalog.errors import PlanVersionNotFound, QueryNotFound, StreamNotFound
from catalog.store import pruning
from catalog.store.pruning import REPLAYED_BATCHES, Pruned
from catalog.store.store import Store
from catalog.values.control import Heartbeat
from catalog.values.source_file import SourceFile
from catalog.values.stream import Stream
from planner.bind.bind import bind
from tests.catalog import examples
from tests.catalog.examples import add_query, manifest, plan, stream
from tests.epochs import begin_epoch


def append_plans(store: Store, first: int, last: int) -> None:
    """Append plan versions with an entry each in the history."""
    for version in range(first, last + 1):
        record = store.control_log.append(plan=plan(version))
        store.plan_history.add(version, record.seq, "anonymous", f"change {version}")


def kept_versions(store: Store) -> list[int]:
    """Return the versions of the plans that are kept."""
    latest = store.control_log.latest_plan()
    numbers = range(1, 1 if latest is None else latest.version + 1)
    return [version for version in numbers if store.control_log.kept_plan(version) is not None]


def commit(store: Store, version: int, batches: int = 1, rows: dict[int, int] | None = None) -> None:
    """Commit batches under a plan version; watermarks of stream 1 rise by 1000 µs a batch."""
    epoch = store.lease.epoch() or begin_epoch(store)
    for _ in range(batches):
        last = store.batches.last_manifest()
        number = 0 if last is None else last.batch + 1
        assert examples.commit(store, replace(manifest(number, epoch, rows), plan_version=version))


def test_nothing_goes_before_there_are_so_many_batches(store: Store) -> None:
    append_plans(store, 1, 5)
    commit(store, 5, REPLAYED_BATCHES)
    assert store.pruning.prune() == Pruned()
    assert kept_versions(store) == [1, 2, 3, 4, 5]


def test_the_base_is_the_plan_of_the_oldest_batch_that_may_replay(store: Store) -> None:
    append_plans(store, 1, 9)
    commit(store, 3)
    commit(store, 4)
    commit(store, 7, REPLAYED_BATCHES)
    # The oldest batch that may replay is the one under version 4; its own start needs nothing before it.
    assert store.pruning.prune() == Pruned(records=3, plans=3)
    assert kept_versions(store) == [4, 5, 6, 7, 8, 9]
    assert [record.seq for record in store.control_log.records(4)] == [5, 6, 7, 8, 9]
    assert [store.control_log.plan_at(seq) for seq in range(4, 10)] == [plan(v) for v in range(4, 10)]
    assert store.pruning.prune() == Pruned()
    commit(store, 9, REPLAYED_BATCHES + 1)
    assert store.pruning.prune() == Pruned(records=5, plans=5)
    assert store.control_log.latest_plan() == store.control_log.plan_at(10**6) == plan(9)


def test_numbers_go_on_without_gaps(store: Store) -> None:
    append_plans(store, 1, 6)
    beat = store.control_log.append(heartbeat=Heartbeat(1, -7))
    commit(store, 6, REPLAYED_BATCHES + 1)
    assert store.pruning.prune() == Pruned(records=5, plans=5)
    assert store.control_log.head() == beat.seq == 7
    assert store.control_log.append(heartbeat=Heartbeat(1, 10**9)).seq == 8
    assert store.control_log.append(plan=plan(7)).seq == 9
    # Now that it is not the newest any more, the beat that stood behind the watermark goes, too.
    commit(store, 7, REPLAYED_BATCHES + 1)
    assert store.pruning.prune() == Pruned(records=3, plans=1)
    assert [record.seq for record in store.control_log.records(0)] == [9]
    assert (store.control_log.head(), kept_versions(store)) == (9, [7])


def test_heartbeats_go_once_the_watermark_stands_beyond_them(store: Store) -> None:
    append_plans(store, 1, 1)
    commit(store, 1, REPLAYED_BATCHES + 1)
    watermark = 1_000  # of the oldest batch that may replay
    for n in range(40):
        store.control_log.append(heartbeat=Heartbeat(1, watermark + 20 - n))
    for n in range(3):
        store.control_log.append(heartbeat=Heartbeat(2, n))
    # Of stream 1 those at or behind its watermark; of stream 2, which has none yet, all stay.
    assert store.pruning.prune() == Pruned(records=20)
    assert [record.seq for record in store.control_log.records(0)] == [1, *range(2, 22), 42, 43, 44]


def test_a_plan_that_is_pruned_says_so(store: Store, url: str) -> None:
    append_plans(store, 1, 3)
    commit(store, 3, REPLAYED_BATCHES + 1)
    store.pruning.prune()
    with Store.open(url) as fresh:
        with pytest.raises(PlanVersionNotFound, match="plan version 1 is not kept any more"):
            fresh.control_log.plan(1)
        with pytest.raises(PlanVersionNotFound, match="plan version 4 does not exist"):
            fresh.control_log.plan(4)
        assert (fresh.control_log.kept_plan(1), fresh.control_log.kept_plan(3)) == (None, plan(3))
    assert [entry.cause for entry in store.plan_history.page()] == ["change 1", "change 2", "change 3"]


def test_the_history_keeps_its_last_entries(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "HISTORY_ENTRIES", 7)
    append_plans(store, 1, 20)
    commit(store, 20, REPLAYED_BATCHES + 1)
    assert store.pruning.prune().history == 13
    assert [entry.version for entry in store.plan_history.page()] == list(range(14, 21))


def test_a_removed_query_without_results_goes_and_one_with_results_stays(store: Store) -> None:
    a, b = store.streams.add(stream("a")), store.streams.add(stream("b"))
    append_plans(store, 1, 4)
    names = ("runs", "silent", "gave", "late")
    ids = {name: add_query(store, name, a, b).query.id for name in names}
    commit(store, 1, 1, {ids["gave"]: 3, ids["runs"]: 1})
    store.queries.remove("silent", 2)
    store.queries.remove("gave", 3)
    store.queries.remove("late", 4)
    commit(store, 3, REPLAYED_BATCHES + 1)
    assert store.pruning.prune().queries == 1
    with pytest.raises(QueryNotFound):
        store.queries.newest("silent")
    assert store.queries.newest("gave").query.id == ids["gave"]
    assert store.routes.of_query(ids["gave"], (0,)).tolist() == [1000 + ids["gave"]]
    # Its removal is not in force at the oldest batch that may replay.
    assert store.queries.newest("late").query.id == ids["late"]
    commit(store, 4, REPLAYED_BATCHES + 1)
    assert store.pruning.prune().queries == 1
    assert [r.query.name for r in store.queries.all()] == ["runs", "gave"]
    assert store.queries.reserve_ids(1)[0] == ids["late"] + 1


def test_a_removed_query_can_be_asked_about_for_a_while(store: Store) -> None:
    a, b = store.streams.add(stream("a")), store.streams.add(stream("b"))
    append_plans(store, 1, 2)
    add_query(store, "q", a, b)
    store.queries.remove("q", 2)
    commit(store, 2, REPLAYED_BATCHES + 1)
    assert store.pruning.prune(grace_us=10_000).queries == 0  # the clock of these tests ticks once per look
    assert store.pruning.prune().queries == 1


def test_a_series_goes_as_a_whole(store: Store) -> None:
    a, b = store.streams.add(stream("a")), store.streams.add(stream("b"))
    append_plans(store, 1, 9)

    def follow(name: str, series: int, version: int) -> int:
        before = store.queries.find(name)
        assert before is not None
        store.queries.leave(before.query.id, version, "update")
        query = replace(before.query, id=store.queries.reserve_ids(1)[0])
        return store.queries.add(query, version, series=series).query.id

    alive = add_query(store, "alive", a, b).query.id
    later = [follow("alive", alive, version) for version in (2, 3, 4)]
    gone = add_query(store, "gone", a, b).query.id
    follow("gone", gone, 5)
    store.queries.remove("gone", 6)
    gave = add_query(store, "gave", a, b).query.id
    commit(store, 4, 1, {gave: 2})
    gave_last = follow("gave", gave, 6)
    store.queries.remove("gave", 7)
    waits = add_query(store, "waits", a, b).query.id
    store.queries.leave(waits, 8, "pause")
    commit(store, 9, REPLAYED_BATCHES + 1)
    assert store.pruning.prune().queries == 4
    # Of a series that lives the first and the newest stay, of one with results what leads to them.
    assert [r.query.id for r in store.queries.all()] == [alive, later[-1], gave, gave_last, waits]
    assert store.queries.find("waits") is not None
    assert store.queries.find("gone") is None


def test_what_is_pruned_is_gone_for_other_processes_too(store: Store, url: str) -> None:
    append_plans(store, 1, 50)
    commit(store, 50, REPLAYED_BATCHES + 1)
    store.pruning.prune()
    with Store.open(url, migrate=False) as other:
        assert [record.plan for record in other.control_log.records(0)] == [plan(50)]
        assert other.control_log.append(plan=plan(51)).seq == 51


def removed_stream(store: Store, name: str) -> Stream:
    """Register a stream and remove it."""
    return store.streams.remove(store.streams.add(stream(name)).name)


def known(store: Store, *streams: Stream) -> list[str]:
    """Return the names of the streams that still have a row."""
    names = []
    for each in streams:
        with suppress(StreamNotFound):
            names.append(store.streams.by_id(each.id).name)
    return names


def test_a_removed_stream_goes_once_nothing_names_it(store: Store) -> None:
    live, other = store.streams.add(stream("live")), store.streams.add(stream("other"))
    unused, planned = removed_stream(store, "unused"), store.streams.add(stream("planned"))
    gave, listed = store.streams.add(stream("gave")), store.streams.add(stream("listed"))
    third = store.streams.add(stream("third"))
    store.source_files.append(listed.id, [SourceFile(0, "x", 1, 1, 1, 0, 0)])
    given = add_query(store, "given", live, gave).query.id
    streams = {each.name: each for each in (live, other, third)}
    of_three = "SELECT x.k FROM live [RANGE 9 SECONDS] x JOIN other [RANGE 9 SECONDS] y ON x.k = y.k "
    text = f"{of_three}JOIN third [RANGE 9 SECONDS] z ON y.k = z.k"
    joined = bind(text, streams, name="joined", query_id=store.queries.reserve_ids(1)[0])
    store.queries.add(joined, 1)
    store.control_log.append(plan=plan(1, (live, planned)))
    store.control_log.append(plan=plan(2, (live,)))
    commit(store, 1, 1, {given: 2})
    for name, version in (("given", 1), ("joined", 2)):
        store.queries.remove(name, version)
    for each in (planned, gave, listed, third):
        store.streams.remove(each.name)
    removed = (unused, planned, gave, listed, third)
    commit(store, 1, REPLAYED_BATCHES)
    assert store.pruning.prune(grace_us=10**9).streams == 0
    assert store.pruning.prune().streams == 1
    assert known(store, *removed) == ["planned", "gave", "listed", "third"]
    assert store.pruning.prune() == Pruned()
    commit(store, 2, REPLAYED_BATCHES + 1)
    assert store.pruning.prune().streams == 2
    assert known(store, *removed) == ["gave", "listed"], "a query with results, and a file"
    store.source_files.forget_all(listed.id)
    assert store.pruning.prune().streams == 1
    assert known(store, live, other, *removed) == ["live", "other", "gave"]
    assert store.streams.add(stream("unused")).id == third.id + 1
    assert {counters.stream_id for counters in store.batches.stream_totals()} <= {live.id, other.id, gave.id}
