"""Fixtures: a catalog in a fresh directory, whose clock ticks once per look."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.store import retention
from catalog.store.store import Store


@pytest.fixture
def url(tmp_path: Path) -> str:
    """URL of a catalog that does not exist yet."""
    return f"sqlite:///{tmp_path / 'catalog.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty catalog."""
    ticks = itertools.count(1_000_000)
    with Store.open(url, now_us=lambda: next(ticks), busy_timeout_s=10) as opened:
        yield opened


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Keep at least three batches instead of many."""
    monkeypatch.setattr(retention, "KEPT_BATCHES", 3)
    return 3
