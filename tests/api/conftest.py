from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.api.running_service import RunningService, default_settings, free_port

#: A secret setting of the service.
SECRET = "open-sesame = \\ 1é"


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One service for all tests that leave it usable for the others; each uses names of its own."""
    directory = tmp_path_factory.mktemp("service")
    log = directory / "log.txt"
    secret = {"SLUICE_SPARK_CONF": json.dumps({"spark.x.note": SECRET}), "SLUICE_SPARK_UI": "true"}
    before = os.umask(0o022)  # as on most machines
    try:
        settings = default_settings(log) | secret
        running = RunningService(directory / "data", log, free_port(), settings=settings)
    finally:
        os.umask(before)
    with running:
        yield running
