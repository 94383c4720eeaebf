from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.running_service import RunningService, free_port


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One service for all tests that leave it usable for the others; each uses names of its own."""
    directory = tmp_path_factory.mktemp("service")
    with RunningService(directory / "data", directory / "log.txt", free_port()) as running:
        yield running
