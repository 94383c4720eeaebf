"""Where batches' input ends: said once, by the newest engine, and kept as long as a batch may replay."""

from __future__ import annotations

import pytest

from catalog.errors import FencedOut, InvariantBroken
from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.store import Store


def test_a_batch_without_an_entry_ends_at_its_offset(store: Store) -> None:
    assert store.input_ends.get(0) == {}


def test_an_end_is_what_every_process_finds(store: Store, url: str) -> None:
    epoch = store.epochs.begin("engine")
    store.input_ends.set(3, {12: 70, 4: 2**40}, epoch)
    with Store.open(url, migrate=False) as other:
        assert other.input_ends.get(3) == {4: 2**40, 12: 70}
        assert other.input_ends.get(2) == other.input_ends.get(4) == {}


def test_an_end_is_said_once(store: Store) -> None:
    epoch = store.epochs.begin("engine")
    store.input_ends.set(0, {1: 5}, epoch)
    with pytest.raises(InvariantBroken):
        store.input_ends.set(0, {1: 6}, epoch)
    assert store.input_ends.get(0) == {1: 5}


def test_an_engine_that_lost_the_data_directory_moves_no_end(store: Store) -> None:
    old, _ = store.epochs.begin("engine 1"), store.epochs.begin("engine 2")
    with pytest.raises(FencedOut, match="batch 7 comes from epoch 1, the current one is 2"):
        store.input_ends.set(7, {1: 5}, old)
    assert store.input_ends.get(7) == {}


def test_ends_stay_as_long_as_a_batch_may_replay(store: Store) -> None:
    epoch = store.epochs.begin("engine")
    last = 3 * REPLAYED_BATCHES
    for batch in range(last + 1):
        store.input_ends.set(batch, {1: batch + 1}, epoch)
    # The oldest batch that may replay starts at the end of the one before it.
    kept = range(last - REPLAYED_BATCHES - 1, last + 1)
    assert [batch for batch in range(last + 1) if store.input_ends.get(batch)] == list(kept)
