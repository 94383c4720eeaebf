"""Fixtures of the catalog's tests."""

from __future__ import annotations

import pytest

from catalog.store import retention


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Keep at least three batches instead of many."""
    monkeypatch.setattr(retention, "KEPT_BATCHES", 3)
    return 3
