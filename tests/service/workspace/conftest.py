"""A workspace over a catalog with two streams, without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.without_engine import Service
from tests.builders import stream_document


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "data")
    for name in ("A", "B"):
        service.made("POST", "/streams", stream_document(name))
    yield service
    service.close()
