"""Counts per query and batch against a dictionary, whatever was added up, dropped and read before."""

from __future__ import annotations

import random

import pytest

from catalog.store.repositories import counts as module
from catalog.store.store import Store
from catalog.values.routes.counts.query_counts import QueryCounts
from tests.catalog.examples import manifest
from tests.epochs import begin_epoch
from tests.examples import seeds


@pytest.mark.parametrize("seed", seeds(6))
def test_counts_are_those_of_a_dictionary(seed: int, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setattr(module, "FOLDED", rng.choice([1, 2, 5, 64]))
    monkeypatch.setattr(module, "_KEPT_BYTES", rng.choice([0, 300, 1 << 20]))
    epoch = begin_epoch(store)
    given: dict[tuple[int, int], int] = {}
    queries = range(1, 6)
    for batch in range(40):
        rows = {q: rng.randint(0, 3) for q in queries if rng.random() < 0.5}
        given |= {(batch, q): n for q, n in rows.items() if n}
        assert store.batches.commit(manifest(batch, epoch, rows))
        if rng.random() < 0.1:
            with store.transaction(), store._database.write() as connection:
                module.fold_counts(connection)
        some = rng.sample(queries, 2)
        first, end = rng.randint(0, batch), rng.choice([None, rng.randint(0, batch + 1)])
        limit = rng.choice([None, 1, 3])
        wanted = [
            (b, q, n)
            for (b, q), n in sorted(given.items())
            if q in some and b >= first and (end is None or b < end)
        ]
        assert store.counts.of_queries(some, first, end=end, limit=limit) == tuple(wanted[:limit])
        totals = {q: sum(n for (_, of), n in given.items() if of == q) for _, q in given}
        assert store.counts.totals() == totals
        with store._database.read() as connection:
            between = module.counts_between(connection, first, batch + 1)
        assert between.of(queries) == [(b, q, n) for (b, q), n in sorted(given.items()) if b >= first]


def test_encoded_counts_are_the_same() -> None:
    rng = random.Random(7)
    for size in (0, 1, 1_000):
        pairs = [(q, rng.randint(1, 2**40)) for q in rng.sample(range(1, 5_000), size)]
        counts = QueryCounts.of_batch(2**40, pairs)
        again = QueryCounts.decode(counts.encode())
        assert again.totals() == counts.totals() == dict(pairs)
        assert again.of([q for q, _ in pairs]) == sorted((2**40, q, n) for q, n in pairs)
