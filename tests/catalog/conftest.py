"""Fixtures of the catalog's tests."""

from __future__ import annotations

import pytest

from catalog.store.results import retention


@pytest.fixture
def url(either_url: str) -> str:
    """URL of a catalog on either database: all tests of the catalog run on both."""
    return either_url


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Keep at least three batches instead of many."""
    monkeypatch.setattr(retention, "KEPT_BATCHES", 3)
    return 3
