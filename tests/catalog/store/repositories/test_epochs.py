"""Epochs: one for every start, and old ones that no batch names go."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from catalog.errors import FencedOut
from catalog.store.database import tables
from catalog.store.repositories import epochs
from catalog.store.store import Store
from tests.catalog.examples import commit, manifest


def kept(store: Store) -> list[int]:
    with store._database.read() as connection:
        return list(connection.scalars(select(tables.epochs.c.epoch).order_by(tables.epochs.c.epoch)))


def test_old_epochs_go_but_for_those_that_batches_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "KEPT", 10)
    for number in range(1, 35):
        assert store.epochs.begin("engine") == number
        if number == 4:
            commit(store, manifest(0, number))
    assert kept(store) == [4, *range(21, 35)]
    assert store.epochs.current() == 34
    with pytest.raises(FencedOut):
        commit(store, manifest(1, 4))
    assert store.epochs.begin("engine") == 35
