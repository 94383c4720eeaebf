"""Batches: committed once, by the newest epoch, in order; totals kept on the way."""

from __future__ import annotations

import dataclasses

import pytest

from catalog.errors import FencedOut, InvariantBroken
from catalog.store.store import Store
from catalog.values.batch import Totals
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.routes.route_table import BatchRoutes, RouteTable
from tests.catalog.examples import commit, manifest, stored_routes
from tests.epochs import begin_epoch


def test_an_empty_catalog_has_no_batch_and_no_epoch(store: Store) -> None:
    assert store.lease.epoch() == 0
    assert store.batches.last_manifest() is None
    assert store.batches.manifest(0) is None
    assert store.batches.manifests(0, 10) == ()
    assert store.batches.totals() == Totals()
    assert store.counts.totals() == {}
    assert store.batches.stream_totals() == ()
    assert list(store.routes.all()) == []


def test_a_batch_becomes_visible_at_once(store: Store) -> None:
    epoch = begin_epoch(store)
    committed = [manifest(0, epoch, {7: 3, 8: 0}), manifest(1, epoch), manifest(2, epoch, {7: 4, 9: 2})]
    assert all(store.batches.commit(m) for m in committed)
    # Results per query are a value of their own.
    found = [dataclasses.replace(m, query_rows=()) for m in committed]
    assert store.batches.manifest(1) == found[1]
    assert store.batches.last_manifest() == found[2]
    assert store.batches.manifests(1, 5) == tuple(found[1:])
    assert store.counts.totals() == {7: 7, 9: 2}
    assert store.counts.of_query(7) == ((0, 3), (2, 4))
    assert store.counts.of_query(7, 1) == ((2, 4),)
    assert store.counts.of_query(7, 0, 1) == ((0, 3),)
    assert store.counts.of_query(8) == ()
    # State of batch 0 is the largest in rows, of batch 2 in bytes.
    assert store.batches.totals() == Totals(300, 30, state_rows_peak=55, state_bytes_peak=442, batches=3)
    assert store.batches.stream_totals() == (StreamCounters(1, 300, 30, 3, 3_000, 6_000),)


def test_a_batch_committed_again_changes_nothing(store: Store) -> None:
    first = manifest(0, begin_epoch(store), {7: 3})
    assert commit(store, first)
    replay = manifest(0, begin_epoch(store), {7: 5, 8: 1})
    assert not commit(store, replay)
    assert store.batches.manifest(0) == dataclasses.replace(first, query_rows=())
    assert store.counts.totals() == {7: 3}
    assert store.batches.totals().batches == 1
    assert stored_routes(store) == [(1007, 1, (7,))]


def test_an_engine_that_lost_the_data_directory_cannot_commit(store: Store) -> None:
    with pytest.raises(FencedOut):
        store.batches.commit(manifest(0, 0))
    old, new = begin_epoch(store), begin_epoch(store)
    assert (old, new, store.lease.epoch()) == (1, 2, 2)
    for wrong in (old, new + 1):
        with pytest.raises(FencedOut, match=f"batch 0 comes from epoch {wrong}, the current one is 2"):
            store.batches.commit(manifest(0, wrong, {7: 3}))
    assert store.batches.last_manifest() is None
    assert store.batches.commit(manifest(0, new, {7: 3}))
    # Fenced out also where the batch is there already: the old engine must stop.
    with pytest.raises(FencedOut):
        store.batches.commit(manifest(0, old, {7: 3}))


def test_batches_have_no_gaps(store: Store) -> None:
    epoch = begin_epoch(store)
    with pytest.raises(InvariantBroken, match="batch 1 cannot be committed, batch 0 is next"):
        store.batches.commit(manifest(1, epoch))
    assert store.batches.commit(manifest(0, epoch))
    with pytest.raises(InvariantBroken, match="batch 2 cannot be committed, batch 1 is next"):
        store.batches.commit(manifest(2, epoch))


def test_routes_are_found_by_query(store: Store) -> None:
    epoch = begin_epoch(store)
    both, one = 2**63 - 1, 5
    commit(store, manifest(0, epoch), {both: (7, 8), one: (8,)})
    # Of the same generation; of the routes that it has in its files only one is new.
    store.batches.commit(manifest(1, epoch), BatchRoutes(RouteTable.of({4: (7,)}), 0))
    store.batches.commit(manifest(2, epoch))
    later = dataclasses.replace(manifest(3, epoch), plan_version=2)
    commit(store, later, {both: (7, 8), 6: (7, 300)})
    assert stored_routes(store) == [(4, 1, (7,)), (one, 1, (8,)), (6, 2, (7, 300)), (both, 1, (7, 8))]

    def of_query(query_id: int, batches: tuple[int, ...]) -> list[int]:
        return [int(number) for number in store.routes.of_query(query_id, batches)]

    for batches in [(0,), (1,), (2,), (0, 1, 2)]:
        assert of_query(7, batches) == [4, both]
        assert of_query(8, batches) == [one, both]
        assert of_query(300, batches) == []
    assert of_query(7, (3,)) == [6, both]
    assert of_query(300, (3,)) == [6]
    assert of_query(7, (1, 3)) == [4, 6, both]
    assert of_query(9, (0, 3)) == of_query(7, ()) == []


def test_thousands_of_routes_and_queries_fit_in_a_batch(store: Store) -> None:
    rows = {query_id: query_id for query_id in range(1, 5_001)}
    assert commit(store, manifest(0, begin_epoch(store), rows))
    assert commit(store, manifest(1, 1, rows))
    assert store.counts.totals() == {query_id: 2 * count for query_id, count in rows.items()}
    assert store.routes.of_query(5_000, (0, 1)).tolist() == [6_000]
