"""Sinks in the catalog: who gets which batch, how far each is, and what must be kept for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errors import InvariantBroken
from catalog.store.repositories.sinks import Lost
from catalog.store.store import Store
from catalog.values.sink import FilesSink, Sink, SinkRecord, WebhookSink
from tests.catalog.examples import add_query, manifest, stream
from tests.epochs import begin_epoch

FILES = FilesSink("alerts", "ndjson")
HOOK = WebhookSink("http://127.0.0.1:1/hook")


@pytest.fixture
def q(store: Store) -> int:
    a, b = store.streams.add(stream("a")), store.streams.add(stream("b"))
    return add_query(store, "q", a, b).query.id


def commit(store: Store, version: int, rows: dict[int, int] | None = None) -> int:
    """Commit the next batch under a plan version and return its number."""
    epoch = store.lease.epoch() or begin_epoch(store)
    last = store.batches.last()
    number = 0 if last is None else last + 1
    assert store.batches.commit(replace(manifest(number, epoch, rows), plan_version=version))
    return number


def spans(store: Store, series: int) -> list[tuple[Sink | None, int | None, int | None, int]]:
    return [(s.sink, s.from_batch, s.until_batch, s.pending) for s in store.sinks.of_series(series)]


def deliver(store: Store, record: SinkRecord) -> list[int]:
    """Deliver all that waits for a sink; return the batches."""
    got = []
    for batch, _, rows in store.counts.of_series(record.series, record.next_batch):
        if record.until_batch is None or batch < record.until_batch:
            store.sinks.delivered(record, batch, rows, whole=True)
            got.append(batch)
            record = next(s for s in store.sinks.of_series(record.series) if s.id == record.id)
    return got


def test_a_sink_begins_behind_every_committed_batch(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    assert spans(store, q) == [(FILES, 0, None, 0)]
    for _ in range(3):
        commit(store, 1, {q: 2})
    store.sinks.set(q, HOOK)
    commit(store, 1, {q: 2})
    assert spans(store, q) == [(FILES, 0, 3, 3), (HOOK, 3, None, 1)]
    first, second = store.sinks.pending()
    assert (deliver(store, first), deliver(store, second)) == ([0, 1, 2], [3])
    assert store.sinks.pending() == ()
    (kept,) = store.sinks.of_series(q) if store.sinks.drop_spent() else ()
    assert (kept.sink, kept.rows, kept.batches, kept.last_batch, kept.next_batch) == (HOOK, 2, 1, 3, 4)


def test_a_sink_that_came_with_a_version_begins_with_its_first_batch(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    commit(store, 1, {q: 1})
    store.sinks.set(q, HOOK, from_version=2)
    commit(store, 1, {q: 1})
    store.sinks.resolve()
    # Until the version is in force the former one gets everything.
    assert spans(store, q) == [(FILES, 0, None, 2), (HOOK, None, None, 0)]
    commit(store, 2, {q: 1})
    assert spans(store, q) == [(FILES, 0, 2, 2), (HOOK, 2, None, 1)]
    assert store.sinks.oldest_needed_batch() == 0
    store.sinks.resolve()
    assert spans(store, q) == [(FILES, 0, 2, 2), (HOOK, 2, None, 1)]


def test_what_was_asked_for_last_counts(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    commit(store, 1, {q: 1})
    store.sinks.set(q, HOOK, from_version=2)
    store.sinks.set(q, None)
    commit(store, 1, {q: 1})
    commit(store, 2, {q: 1})
    store.sinks.resolve()
    assert spans(store, q) == [(FILES, 0, 1, 1), (HOOK, 2, 1, 0), (None, 1, None, 0)]
    deliver(store, store.sinks.pending()[0])
    assert store.sinks.drop_spent() == 3
    assert store.sinks.all() == ()


def test_a_sink_that_was_taken_away_stays_until_it_has_everything(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    commit(store, 1, {q: 4})
    store.sinks.set(q, None)
    assert store.sinks.drop_spent() == 0
    (record,) = store.sinks.pending()
    store.sinks.delivered(record, 0, 3, whole=False)
    (record,) = store.sinks.pending()
    assert (record.next_batch, record.next_row, record.rows, record.batches) == (0, 3, 3, 0)
    store.sinks.delivered(record, 0, 1, whole=True)
    assert store.sinks.drop_spent() == 2


def test_batches_without_results_of_the_query_are_not_waited_for(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    for _ in range(5):
        commit(store, 1, {})
    assert store.sinks.pending() == ()
    assert store.sinks.oldest_needed_batch() is None
    assert commit(store, 1, {q: 1}) == store.sinks.oldest_needed_batch() == 5


def test_what_the_slowest_sink_needs_is_kept(store: Store, q: int) -> None:
    a, b = store.streams.all()
    other = add_query(store, "other", a, b).query.id
    store.sinks.set(q, FILES)
    store.sinks.set(other, HOOK)
    for rows in ({q: 1}, {other: 1}, {q: 1, other: 1}):
        commit(store, 1, rows)
    assert store.sinks.oldest_needed_batch() == 0
    mine, theirs = store.sinks.pending()
    assert deliver(store, mine) == [0, 2]
    assert store.sinks.oldest_needed_batch() == 1
    assert deliver(store, theirs) == [1, 2]
    assert store.sinks.oldest_needed_batch() is None
    # Nobody knows yet with which batch the version of this one begins.
    store.sinks.set(q, HOOK, from_version=9)
    assert store.sinks.oldest_needed_batch() == 3


def test_results_of_a_whole_series_go_to_its_sink(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    commit(store, 1, {q: 1})
    before = store.queries.by_id(q)
    store.queries.leave(q, 2, "update")
    following = replace(before.query, id=store.queries.reserve_ids(1)[0])
    store.queries.add(following, 2, series=q)
    commit(store, 2, {following.id: 2})
    (record,) = store.sinks.pending()
    assert record.pending == 2
    assert deliver(store, record) == [0, 1]


def test_two_who_deliver_at_once_are_found_out(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    commit(store, 1, {q: 1})
    (record,) = store.sinks.pending()
    store.sinks.delivered(record, 0, 1, whole=True)
    with pytest.raises(InvariantBroken, match="is not at batch 0 any more"):
        store.sinks.delivered(record, 0, 1, whole=True)


def test_the_last_error_stays_and_the_next_delivery_ends_the_failing(store: Store, q: int) -> None:
    sink_id = store.sinks.set(q, HOOK)
    commit(store, 1, {q: 1})
    store.sinks.failed(sink_id, "connection refused")
    store.sinks.failed(sink_id, "timed out")
    (record,) = store.sinks.pending()
    assert (record.failures, record.error, record.failing) == (2, "timed out", True)
    store.sinks.delivered(record, 0, 1, whole=True)
    (record,) = store.sinks.of_series(q)
    assert (record.failures, record.error, record.failing) == (2, "timed out", False)


def test_sinks_of_a_series_that_was_pruned_go(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    store.sinks.set(q + 1, FILES)
    assert store.sinks.drop_spent() == 1
    assert [record.series for record in store.sinks.all()] == [q]


def test_sinks_that_are_wanted_are_those_of_queries_that_are(store: Store, q: int) -> None:
    a, b = store.streams.all()
    ids = {name: add_query(store, name, a, b).query.id for name in ("gone", "rests", "none", "plain")}
    for name in ("gone", "rests", "none"):
        store.sinks.set(ids[name], FilesSink(name))
    store.sinks.set(q, FILES)
    store.sinks.set(q, HOOK, from_version=7)
    store.sinks.set(ids["none"], None)
    store.queries.leave(ids["rests"], 2, "pause")
    store.queries.remove("gone", 2)
    assert store.sinks.live() == ((ids["rests"], "rests", FilesSink("rests")), (q, "q", HOOK))


def test_a_sink_ends_when_it_is_followed_or_its_query_is_removed(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    assert store.sinks.all()[0].ended_at_us is None
    store.sinks.set(q, HOOK)
    first, second = store.sinks.all()
    assert (first.ended_at_us, second.ended_at_us) == (second.created_at_us, None)
    removed = store.queries.remove("q", 2)
    assert [record.ended_at_us for record in store.sinks.all()] == [
        second.created_at_us,
        removed.removed_at_us,
    ]


def test_a_sink_can_go_on_without_what_waits(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    for rows in (1, 4, 2, 3):
        commit(store, 1, {q: rows})
    (record,) = store.sinks.pending()
    store.sinks.delivered(record, 0, 1, whole=True)
    assert not store.sinks.lose(record, 4), "it has moved"
    (record,) = store.sinks.pending()
    store.sinks.delivered(record, 1, 1, whole=False)
    (record,) = store.sinks.pending()
    assert not store.sinks.lose(record, 1), "nothing before waits"
    assert not record.losing
    assert store.sinks.lose(record, 3) == Lost(batches=2, rows=5, last=2)
    (record,) = store.sinks.all()
    assert (record.pending, record.next_batch, record.next_row, record.batches) == (1, 3, 0, 1)
    assert (record.lost, record.lost_rows, record.lost_batch) == (2, 5, 2)
    assert store.sinks.oldest_needed_batch() == 3
    assert store.sinks.lose(record, 9) == Lost(batches=1, rows=3, last=3)
    (record,) = store.sinks.all()
    assert (record.lost, record.lost_rows, record.lost_batch, record.next_batch) == (3, 8, 3, 9)
    assert store.sinks.oldest_needed_batch() is None


def test_a_file_that_was_begun_is_lost_as_a_whole_or_not_yet(store: Store, q: int) -> None:
    store.sinks.set(q, FilesSink("alerts", batches_per_file=3))
    for _ in range(5):
        commit(store, 1, {q: 2})
    (record,) = store.sinks.pending()
    store.sinks.begin_file(record, 2)
    (record,) = store.sinks.pending()
    assert record.file_end == 2
    assert not store.sinks.lose(record, 2)
    assert store.sinks.lose(record, 3).batches == 3
    (record,) = store.sinks.pending()
    assert (record.file_end, record.next_batch) == (None, 3)
    store.sinks.begin_file(record, 4)
    store.sinks.delivered(record, 4, 4, whole=True, batches=2)
    (record,) = store.sinks.all()
    assert (record.file_end, record.batches, record.rows, record.last_batch) == (None, 2, 4, 4)
    with pytest.raises(InvariantBroken, match="is not at batch 0 any more"):
        store.sinks.begin_file(replace(record, next_batch=0), 4)


def test_a_sink_tells_since_when_its_results_wait(store: Store, q: int) -> None:
    store.sinks.set(q, FILES)
    assert store.sinks.all()[0].waiting_since_us is None
    for _ in range(2):
        commit(store, 1, {q: 1})
    (record,) = store.sinks.pending()
    first, second = (store.batches.manifest(batch) for batch in (0, 1))
    assert first is not None
    assert second is not None
    assert record.waiting_since_us == first.committed_at_us
    store.sinks.delivered(record, 0, 1, whole=True)
    assert store.sinks.pending()[0].waiting_since_us == second.committed_at_us
