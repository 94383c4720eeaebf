"""A catalog and an event log of their own for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.store.store import Store
from service.inputs.sources.http_log import EventLog


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'catalog.db'}") as opened:
        yield opened


@pytest.fixture
def events(tmp_path: Path) -> Iterator[EventLog]:
    log = EventLog(tmp_path / "events.db")
    yield log
    log.close()
