"""Sinks in the catalog: who gets which batch, how far each is, and what must be kept for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errors import InvariantBroken
from catalog.store.store import Store
from catalog.values.sink import FilesSink, Sink, SinkRecord, WebhookSink
from tests.catalog.examples import add_query, manifest, stream

FILES = FilesSink("alerts", "ndjson")
HOOK = WebhookSink("http://127.0.0.1:1/hook")


@pytest.fixture
def q(store: Store) -> int:
    a, b = store.add_stream(stream("a")), store.add_stream(stream("b"))
    return add_query(store, "q", a, b).query.id


def commit(store: Store, version: int, rows: dict[int, int] | None = None) -> int:
    """Commit the next batch under a plan version and return its number."""
    epoch = store.current_epoch() or store.new_epoch("test")
    last = store.last_batch()
    number = 0 if last is None else last + 1
    assert store.commit_batch(replace(manifest(number, epoch, rows), plan_version=version))
    return number


def spans(store: Store, series: int) -> list[tuple[Sink | None, int | None, int | None, int]]:
    return [(s.sink, s.from_batch, s.until_batch, s.pending) for s in store.sinks_of(series)]


def deliver(store: Store, record: SinkRecord) -> list[int]:
    """Deliver all that waits for a sink; return the batches."""
    got = []
    for batch, _, rows in store.series_batches(record.series, record.next_batch):
        if record.until_batch is None or batch < record.until_batch:
            store.sink_delivered(record, batch, rows, whole=True)
            got.append(batch)
            record = next(s for s in store.sinks_of(record.series) if s.id == record.id)
    return got


def test_a_sink_begins_behind_every_committed_batch(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    assert spans(store, q) == [(FILES, 0, None, 0)]
    for _ in range(3):
        commit(store, 1, {q: 2})
    store.set_sink(q, HOOK)
    commit(store, 1, {q: 2})
    assert spans(store, q) == [(FILES, 0, 3, 3), (HOOK, 3, None, 1)]
    first, second = store.pending_sinks()
    assert (deliver(store, first), deliver(store, second)) == ([0, 1, 2], [3])
    assert store.pending_sinks() == ()
    (kept,) = store.sinks_of(q) if store.drop_spent_sinks() else ()
    assert (kept.sink, kept.rows, kept.batches, kept.last_batch, kept.next_batch) == (HOOK, 2, 1, 3, 4)


def test_a_sink_that_came_with_a_version_begins_with_its_first_batch(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    commit(store, 1, {q: 1})
    store.set_sink(q, HOOK, from_version=2)
    commit(store, 1, {q: 1})
    store.resolve_sinks()
    # Until the version is in force the former one gets everything.
    assert spans(store, q) == [(FILES, 0, None, 2), (HOOK, None, None, 0)]
    commit(store, 2, {q: 1})
    assert spans(store, q) == [(FILES, 0, 2, 2), (HOOK, 2, None, 1)]
    assert store.oldest_batch_for_sinks() == 0
    store.resolve_sinks()
    assert spans(store, q) == [(FILES, 0, 2, 2), (HOOK, 2, None, 1)]


def test_what_was_asked_for_last_counts(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    commit(store, 1, {q: 1})
    store.set_sink(q, HOOK, from_version=2)
    store.set_sink(q, None)
    commit(store, 1, {q: 1})
    commit(store, 2, {q: 1})
    store.resolve_sinks()
    assert spans(store, q) == [(FILES, 0, 1, 1), (HOOK, 2, 1, 0), (None, 1, None, 0)]
    deliver(store, store.pending_sinks()[0])
    assert store.drop_spent_sinks() == 3
    assert store.sinks() == ()


def test_a_sink_that_was_taken_away_stays_until_it_has_everything(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    commit(store, 1, {q: 4})
    store.set_sink(q, None)
    assert store.drop_spent_sinks() == 0
    (record,) = store.pending_sinks()
    store.sink_delivered(record, 0, 3, whole=False)
    (record,) = store.pending_sinks()
    assert (record.next_batch, record.next_row, record.rows, record.batches) == (0, 3, 3, 0)
    store.sink_delivered(record, 0, 1, whole=True)
    assert store.drop_spent_sinks() == 2


def test_batches_without_results_of_the_query_are_not_waited_for(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    for _ in range(5):
        commit(store, 1, {})
    assert store.pending_sinks() == ()
    assert store.oldest_batch_for_sinks() is None
    assert commit(store, 1, {q: 1}) == store.oldest_batch_for_sinks() == 5


def test_what_the_slowest_sink_needs_is_kept(store: Store, q: int) -> None:
    a, b = store.streams()
    other = add_query(store, "other", a, b).query.id
    store.set_sink(q, FILES)
    store.set_sink(other, HOOK)
    for rows in ({q: 1}, {other: 1}, {q: 1, other: 1}):
        commit(store, 1, rows)
    assert store.oldest_batch_for_sinks() == 0
    mine, theirs = store.pending_sinks()
    assert deliver(store, mine) == [0, 2]
    assert store.oldest_batch_for_sinks() == 1
    assert deliver(store, theirs) == [1, 2]
    assert store.oldest_batch_for_sinks() is None
    # Nobody knows yet with which batch the version of this one begins.
    store.set_sink(q, HOOK, from_version=9)
    assert store.oldest_batch_for_sinks() == 3


def test_results_of_a_whole_series_go_to_its_sink(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    commit(store, 1, {q: 1})
    before = store.query_by_id(q)
    store.leave_query(q, 2, "update")
    following = replace(before.query, id=store.reserve_query_id())
    store.add_query(following, 2, series=q)
    commit(store, 2, {following.id: 2})
    (record,) = store.pending_sinks()
    assert record.pending == 2
    assert deliver(store, record) == [0, 1]


def test_two_who_deliver_at_once_are_found_out(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    commit(store, 1, {q: 1})
    (record,) = store.pending_sinks()
    store.sink_delivered(record, 0, 1, whole=True)
    with pytest.raises(InvariantBroken, match="is not at batch 0 any more"):
        store.sink_delivered(record, 0, 1, whole=True)


def test_the_last_error_stays_and_the_next_delivery_ends_the_failing(store: Store, q: int) -> None:
    sink_id = store.set_sink(q, HOOK)
    commit(store, 1, {q: 1})
    store.sink_failed(sink_id, "connection refused")
    store.sink_failed(sink_id, "timed out")
    (record,) = store.pending_sinks()
    assert (record.failures, record.error, record.failing) == (2, "timed out", True)
    store.sink_delivered(record, 0, 1, whole=True)
    (record,) = store.sinks_of(q)
    assert (record.failures, record.error, record.failing) == (2, "timed out", False)


def test_sinks_of_a_series_that_was_pruned_go(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    store.set_sink(q + 1, FILES)
    assert store.drop_spent_sinks() == 1
    assert [record.series for record in store.sinks()] == [q]


def test_sinks_that_are_wanted_are_those_of_queries_that_are(store: Store, q: int) -> None:
    a, b = store.streams()
    ids = {name: add_query(store, name, a, b).query.id for name in ("gone", "rests", "none", "plain")}
    for name in ("gone", "rests", "none"):
        store.set_sink(ids[name], FilesSink(name))
    store.set_sink(q, FILES)
    store.set_sink(q, HOOK, from_version=7)
    store.set_sink(ids["none"], None)
    store.leave_query(ids["rests"], 2, "pause")
    store.remove_query("gone", 2)
    assert store.live_sinks() == ((ids["rests"], "rests", FilesSink("rests")), (q, "q", HOOK))


def test_a_sink_ends_when_it_is_followed_or_its_query_is_removed(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    assert store.sinks()[0].ended_at_us is None
    store.set_sink(q, HOOK)
    first, second = store.sinks()
    assert (first.ended_at_us, second.ended_at_us) == (second.created_at_us, None)
    removed = store.remove_query("q", 2)
    assert [record.ended_at_us for record in store.sinks()] == [second.created_at_us, removed.removed_at_us]


def test_a_sink_can_be_given_up(store: Store, q: int) -> None:
    store.set_sink(q, FILES)
    for _ in range(3):
        commit(store, 1, {q: 1})
    (record,) = store.pending_sinks()
    store.sink_delivered(record, 0, 1, whole=True)
    assert not store.give_up_sink(record, 2), "it has moved"
    (record,) = store.pending_sinks()
    assert store.give_up_sink(record, 2)
    (record,) = store.sinks()
    assert (record.pending, record.lost, record.batches, record.next_batch) == (0, 2, 1, 3)
    assert store.oldest_batch_for_sinks() is None
