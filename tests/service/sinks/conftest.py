from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.sinks.receiver import Receiver
from tests.service.sinks.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        yield started
