"""Settings: any JSON value by key."""

from __future__ import annotations

from catalog.store.store import Store


def test_a_setting_never_set_is_none(store: Store) -> None:
    assert store.setting("buckets") is None


def test_a_setting_is_replaced(store: Store) -> None:
    store.set_setting("buckets", 4)
    store.set_setting("paused", {"since_us": 5, "by": ["api", None, 1.5, True]})
    store.set_setting("buckets", 5)
    assert store.setting("buckets") == 5
    assert store.setting("paused") == {"since_us": 5, "by": ["api", None, 1.5, True]}
