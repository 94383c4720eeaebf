"""Every batch finds its routes, whatever versions, engines and retention did."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from pathlib import Path

import pytest

from catalog.errors import InvariantBroken
from catalog.store import Store
from catalog.values.batch import BatchManifest
from catalog.values.plan import Plan
from service.commit import KnownRoutes
from tests.catalog.examples import manifest, plan


def _plan(version: int, queries: int) -> Plan:
    """A version with queries 1 to ``queries``."""
    return plan(version, queries=queries)


def _bare(batch: int, epoch: int, version: int) -> BatchManifest:
    return dataclasses.replace(manifest(batch, epoch), plan_version=version)


@pytest.mark.parametrize("seed", range(12))
def test_every_batch_finds_its_routes(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    with Store.open(f"sqlite:///{tmp_path / 'catalog.db'}") as store:
        epoch, known = store.new_epoch("engine"), KnownRoutes()
        version, queries = 1, 5
        sets: dict[tuple[int, ...], int] = {}
        brought: dict[int, dict[int, tuple[int, ...]]] = {}
        written = 0
        for batch in range(60):
            if rng.random() < 0.4:
                version, queries = version + 1, rng.randint(2, 7)
            occurring: dict[int, tuple[int, ...]] = {}
            for _ in range(rng.randint(0, 6)):
                members = tuple(sorted(rng.sample(range(1, queries + 1), rng.randint(1, queries))))
                occurring[sets.setdefault(members, 1000 + len(sets))] = members
            brought[batch] = occurring
            planned = partial(_plan, queries=queries)
            made = known.with_routes(_bare(batch, epoch, version), occurring, planned)
            written += len(made.routes)
            assert store.commit_batch(made)
            if rng.random() < 0.15:
                # The engine is killed behind the commit; the next one replays the batch in vain.
                epoch, known = store.new_epoch("engine"), KnownRoutes()
                again = known.with_routes(_bare(batch, epoch, version), occurring, planned)
                assert not store.commit_batch(again)
            else:
                known.committed(made)
            if rng.random() < 0.2:
                oldest = rng.randint(min(brought), batch)
                for old in [b for b in brought if b < oldest]:
                    del brought[old]
            for _ in range(4):
                some = rng.sample(sorted(brought), min(len(brought), rng.randint(1, 3)))
                for query in range(1, 8):
                    found = set(store.routes_of(query, some))
                    wanted = {r for b in some for r, ids in brought[b].items() if query in ids}
                    assert wanted <= found
                    assert all(query in ids for ids, route in sets.items() if route in found)
        print(f"{written} routes written for {len(sets)}")


def test_versions_without_new_routes_add_nothing(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'catalog.db'}") as store:
        epoch, known = store.new_epoch("engine"), KnownRoutes()
        for batch in range(30):
            routes = {7: (1,), 8: (1, 2)} if batch % 2 else {8: (1, 2)}
            made = known.with_routes(_bare(batch, epoch, batch + 1), routes, partial(_plan, queries=2))
            assert store.commit_batch(made)
            known.committed(made)
            assert len(made.routes) == {0: 1, 1: 1}.get(batch, 0)
        assert store.routes_of(1, (29,)) == (7, 8)
        assert store.routes_of(2, (29,)) == (8,)


def test_a_route_never_changes_its_queries(tmp_path: Path) -> None:
    known = KnownRoutes()
    first = known.with_routes(_bare(0, 1, 1), {5: (1,)}, partial(_plan, queries=2))
    known.committed(first)
    with pytest.raises(InvariantBroken, match="route 5 stands for other queries already"):
        known.with_routes(_bare(1, 1, 1), {5: (2,)}, partial(_plan, queries=2))
