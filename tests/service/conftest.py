"""Fixtures: an event log, and a folder of input files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.inputs.sources.posted.http_log import EventLog


@pytest.fixture
def events(tmp_path: Path) -> Iterator[EventLog]:
    """A log in a file."""
    log = EventLog(tmp_path / "events.db")
    yield log
    log.close()


@pytest.fixture(params=["sqlite", "postgres"])
def either_events(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventLog]:
    """A log in a file, and one on PostgreSQL: the test runs once on either."""
    postgres = request.param == "postgres"
    log = EventLog(request.getfixturevalue("postgres_url") if postgres else tmp_path / "events.db")
    yield log
    log.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path
