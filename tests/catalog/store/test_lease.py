"""The epoch of the lease rises with every holder and every start of the job; only the holder raises it."""

from __future__ import annotations

import pytest

from catalog.errors import FencedOut
from catalog.store.lease import Holder
from catalog.store.store import Store
from tests.catalog.examples import commit, manifest

HOLDER = Holder("example", "boot", "processes", 4711, 1.5, "/data")


def test_an_epoch_begins_with_every_holder_and_every_start_of_the_job(store: Store) -> None:
    assert store.lease.epoch() == 0
    first = store.lease.take(HOLDER, 8000, None)
    assert first is not None
    assert (first.epoch, store.lease.epoch()) == (1, 1)
    assert commit(store, manifest(0, 1))
    assert [store.lease.begin_epoch(first) for _ in range(2)] == [2, 3]
    with pytest.raises(FencedOut, match="batch 1 comes from epoch 2, the current one is 3"):
        commit(store, manifest(1, 2))
    assert commit(store, manifest(1, 3))
    store.lease.release(first)
    assert store.lease.epoch() == 3
    second = store.lease.take(HOLDER, 8000, store.lease.current())
    assert second is not None
    assert (second.epoch, store.lease.epoch()) == (4, 4)
    with pytest.raises(FencedOut):
        commit(store, manifest(2, 3))


def test_only_the_holder_begins_an_epoch(store: Store) -> None:
    first = store.lease.take(HOLDER, 8000, None)
    assert first is not None
    second = store.twin().lease.take(HOLDER, 8000, store.lease.current())
    assert second is not None
    with pytest.raises(FencedOut, match="another engine has taken the catalog over"):
        store.twin().lease.begin_epoch(first)
    assert store.lease.epoch() == second.epoch == 2


def test_a_challenger_sees_a_start_of_the_job_as_a_renewal(store: Store) -> None:
    held = store.lease.take(HOLDER, 8000, None)
    assert held is not None
    store.lease.begin_epoch(held)
    assert store.twin().lease.take(HOLDER, 8000, held) is None
