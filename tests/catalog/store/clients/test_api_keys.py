"""Keys in the catalog: revoked ones are kept for a while, and are good for nothing."""

from __future__ import annotations

import pytest

from catalog.errors import KeyNotFound
from catalog.store.clients import api_keys
from catalog.store.store import Store


def test_the_newest_revoked_keys_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "REVOKED_KEPT", 3)
    store.api_keys.add("good", "good", ("read",), "hash", 1)
    for number in range(6):
        store.api_keys.add(f"id{number}", "ann", ("read",), "hash", 1)
        store.api_keys.revoke("ann")
    found = [store.api_keys.find(f"id{number}") for number in range(6)]
    assert [key is not None for key in found] == [False, False, False, True, True, True]
    assert all(key is None or key.revoked_at_us is not None for key in found)
    assert [key.name for key in store.api_keys.all()] == ["good"]
    with pytest.raises(KeyNotFound):
        store.api_keys.revoke("ann")
