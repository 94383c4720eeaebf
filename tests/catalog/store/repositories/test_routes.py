"""Routes of queries, read again or kept: the same ones, and those that nobody asks for are forgotten."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import pytest

from catalog.store.repositories import routes
from catalog.store.store import Store
from tests.catalog.examples import commit, manifest
from tests.epochs import begin_epoch


def test_numbers_that_nobody_asks_for_are_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = begin_epoch(store)
    for batch in range(4):
        commit(store, manifest(batch, epoch, {7: 1, 9: 2}))
    found = store.routes.of_query(7, range(4)).tolist()
    assert store.routes.of_query(9, range(4)).tolist() != found
    known = set(store.routes._numbers)
    assert {query for _, query in known} == {7, 9}
    monkeypatch.setattr(routes, "_KEPT_S", 0.0)
    assert store.routes.of_query(7, range(4)).tolist() == found  # what was asked for before this stays
    assert set(store.routes._numbers) == known
    assert store.routes.of_query(7, range(4)).tolist() == found
    assert {query for _, query in store.routes._numbers} == {7}
    assert store.routes._kept_bytes == routes._bytes(store.routes._numbers)
    assert store.routes.of_query(9, range(4)).tolist() != found


def test_readers_of_two_queries_keep_numbers_at_the_same_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = begin_epoch(store)
    for batch in range(4):
        commit(store, manifest(batch, epoch, {7: 1, 9: 2}))
    wanted = store.routes.of_query(7, range(4)).tolist()
    monkeypatch.setattr(routes, "_KEPT_S", 0.0)
    found: list[int] = []
    others: list[threading.Thread] = []

    def counted(numbers: Mapping[tuple[int, int], np.ndarray]) -> int:
        """Count bytes as before, while another reader brings numbers of its query."""
        for _ in numbers:
            if not others:
                monkeypatch.setattr(routes, "_KEPT_S", 60.0)  # only the first reader forgets
                read = threading.Thread(target=lambda: found.extend(store.routes.of_query(9, range(4))))
                others.append(read)
                read.start()
                read.join(0.2)
        return sum(some.nbytes for some in numbers.values())

    monkeypatch.setattr(routes, "_bytes", counted)
    assert store.routes.of_query(7, range(4)).tolist() == wanted
    (other,) = others
    other.join()
    assert found == store.routes.of_query(9, range(4)).tolist() != wanted
