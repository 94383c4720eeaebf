"""Every batch finds its routes, whatever versions, engines and retention did."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from catalog.errors import InvariantBroken
from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from catalog.values.plan import Plan
from catalog.values.routes.query_sets import QuerySets
from catalog.values.routes.route_table import BatchRoutes, RouteTable
from service.commit.route_dictionary import RouteDictionary
from tests.catalog.examples import manifest, plan, stored_routes
from tests.empty_catalog import prepared
from tests.epochs import begin_epoch
from tests.examples import seeds


def _plan(version: int, queries: int) -> Plan:
    """A version with queries 1 to ``queries``."""
    return plan(version, queries=queries)


def _without_query_2(version: int) -> Plan:
    """A version with queries 1, 3 and 4."""
    whole = _plan(version, 4)
    families = [
        dataclasses.replace(family, queries=tuple(query for query in family.queries if query.id != 2))
        for family in whole.families
    ]
    return dataclasses.replace(whole, families=tuple(families))


def _bare(batch: int, epoch: int, version: int) -> BatchManifest:
    return dataclasses.replace(manifest(batch, epoch), plan_version=version)


def _reported(routes: Mapping[int, tuple[int, ...]], order: Sequence[int]) -> list[RouteTable]:
    """What a bucket reports: sets of queries as bits over those of the plan, in its order."""
    sets = [sum(1 << order.index(query_id) for query_id in ids) for ids in routes.values()]
    return [RouteTable(np.array(list(routes), dtype=np.int64), QuerySets.of(tuple(order), sets))]


def _ids(made: BatchRoutes | None) -> dict[int, tuple[int, ...]]:
    """Query ids of the routes that a batch brings."""
    return {} if made is None else made.table.ids()


@pytest.mark.parametrize("seed", seeds(12))
def test_every_batch_finds_its_routes(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    # A store that keeps few of them forgets them all now and then.
    monkeypatch.setattr(
        "catalog.store.repositories.routes._KEPT_BYTES", rng.choice([0, 10_000, 50_000, 1 << 20])
    )
    with Store.open(prepared(f"sqlite:///{tmp_path / 'catalog.db'}")) as store:
        epoch, known = begin_epoch(store), RouteDictionary()
        version, queries, order = 1, 5, [1, 2, 3, 4, 5]
        sets: dict[tuple[int, ...], int] = {}
        brought: dict[int, dict[int, tuple[int, ...]]] = {}
        written = 0
        for batch in range(60):
            if rng.random() < 0.4:
                version, queries = version + 1, rng.randint(2, 7)
                order = rng.sample(range(1, queries + 1), queries)
            occurring: dict[int, tuple[int, ...]] = {}
            for _ in range(rng.randint(0, 6)):
                members = tuple(sorted(rng.sample(range(1, queries + 1), rng.randint(1, queries))))
                occurring[sets.setdefault(members, 1000 + len(sets))] = members
            brought[batch] = occurring
            planned = partial(_plan, queries=queries)
            reported = _reported(occurring, order)
            bare = _bare(batch, epoch, version)
            made = known.new_routes(bare, reported, planned, store.routes.generation)
            assert all(sets[ids] == number for number, ids in _ids(made).items())
            written += len(_ids(made))
            assert store.batches.commit(bare, made)
            if rng.random() < 0.15:
                # The engine is killed behind the commit; the next one replays the batch in vain.
                epoch, known = begin_epoch(store), RouteDictionary()
                replayed = _bare(batch, epoch, version)
                again = known.new_routes(replayed, reported, planned, store.routes.generation)
                assert not store.batches.commit(replayed, again)
            else:
                known.committed(bare, made)
            if rng.random() < 0.2:
                oldest = rng.randint(min(brought), batch)
                for old in [b for b in brought if b < oldest]:
                    del brought[old]
            for _ in range(4):
                some = rng.sample(sorted(brought), min(len(brought), rng.randint(1, 3)))
                for query in range(1, 8):
                    found = set(store.routes.of_query(query, some).tolist())
                    wanted = {r for b in some for r, ids in brought[b].items() if query in ids}
                    assert wanted <= found
                    assert all(query in ids for ids, route in sets.items() if route in found)
        print(f"{written} routes written for {len(sets)}")


def test_versions_without_new_routes_add_nothing(tmp_path: Path) -> None:
    with Store.open(prepared(f"sqlite:///{tmp_path / 'catalog.db'}")) as store:
        epoch, known = begin_epoch(store), RouteDictionary()
        for batch in range(30):
            routes = {7: (1,), 8: (1, 2)} if batch % 2 else {8: (1, 2)}
            reported = _reported(routes, (1, 2) if batch % 3 else (2, 1))
            bare = _bare(batch, epoch, batch + 1)
            made = known.new_routes(bare, reported, partial(_plan, queries=2), store.routes.generation)
            assert store.batches.commit(bare, made)
            known.committed(bare, made)
            assert len(_ids(made)) == {0: 1, 1: 1}.get(batch, 0)
        assert store.routes.of_query(1, (29,)).tolist() == [7, 8]
        assert store.routes.of_query(2, (29,)).tolist() == [8]


def _empty(since: int) -> list[RouteTable]:
    """A catalog without routes."""
    return []


def test_buckets_agree_what_a_route_stands_for() -> None:
    reported = _reported({5: (1,)}, (1, 2)) + _reported({5: (1, 2)}, (1, 2))
    with pytest.raises(InvariantBroken, match="route 5 already has a different set of queries") as broken:
        RouteDictionary().new_routes(_bare(0, 1, 1), reported, partial(_plan, queries=2), _empty)
    assert broken.value.detail == "Known: [1]; now: [1, 2]."


def test_a_batch_that_was_not_committed_teaches_nothing() -> None:
    known = RouteDictionary()
    planned = partial(_plan, queries=2)
    for _ in range(2):
        made = known.new_routes(_bare(0, 1, 1), _reported({5: (1,)}, (1, 2)), planned, _empty)
        assert _ids(made) == {5: (1,)}
        assert len(known) == 0
    known.committed(_bare(0, 1, 1), made)
    assert len(known) == 1
    again = known.new_routes(_bare(1, 1, 1), _reported({5: (1,), 6: (1, 2)}, (2, 1)), planned, _empty)
    assert _ids(again) == {6: (1, 2)}


def test_families_of_different_queries_share_a_row(tmp_path: Path) -> None:
    reported = _reported({5: (1,), 6: (2, 1)}, (2, 1)) + _reported({7: (9, 4), 8: (3,)}, (9, 3, 4))
    with Store.open(prepared(f"sqlite:///{tmp_path / 'catalog.db'}")) as store:
        bare, known = _bare(0, begin_epoch(store), 1), RouteDictionary()
        made = known.new_routes(bare, reported, partial(_plan, queries=9), _empty)
        assert store.batches.commit(bare, made)
        assert stored_routes(store) == [(5, 1, (1,)), (6, 1, (1, 2)), (7, 1, (4, 9)), (8, 1, (3,))]


def test_a_new_generation_has_the_possible_routes_of_the_one_before(tmp_path: Path) -> None:
    with Store.open(prepared(f"sqlite:///{tmp_path / 'catalog.db'}")) as store:
        epoch, known = begin_epoch(store), RouteDictionary()
        for batch, (version, routes) in enumerate(
            [(1, {5: (1,), 6: (1, 2), 7: (2,)}), (2, {8: (3,), 9: (1, 3)}), (3, {10: (3, 4), 11: (4,)})]
        ):
            bare = _bare(batch, epoch, version)
            running = _without_query_2 if version == 3 else partial(_plan, queries=4)
            order = tuple(sorted({query_id for ids in routes.values() for query_id in ids}))
            made = known.new_routes(bare, _reported(routes, order), running, store.routes.generation)
            assert store.batches.commit(bare, made)
            known.committed(bare, made)
        assert made is not None
        assert made.since == 2
        assert sorted(made.table.sets.queries) == [1, 3, 4]
        assert made.table.ids() == {5: (1,), 8: (3,), 9: (1, 3), 10: (3, 4), 11: (4,)}
