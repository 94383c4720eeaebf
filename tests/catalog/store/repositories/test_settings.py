"""Settings: any JSON value by key."""

from __future__ import annotations

from catalog.store.store import Store


def test_a_setting_never_set_is_none(store: Store) -> None:
    assert store.settings.get("buckets") is None


def test_a_setting_is_replaced(store: Store) -> None:
    store.settings.set("buckets", 4)
    store.settings.set("paused", {"since_us": 5, "by": ["api", None, 1.5, True]})
    store.settings.set("buckets", 5)
    assert store.settings.get("buckets") == 5
    assert store.settings.get("paused") == {"since_us": 5, "by": ["api", None, 1.5, True]}
