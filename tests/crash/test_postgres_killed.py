"""PostgreSQL is killed after each durable step of a batch: the job continues and has the same results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.errors import CatalogDown
from tests.crash.powered import Results, a_job
from tests.postgres import PostgresServer, server

pytestmark = pytest.mark.slow

BATCHES, STEPS = 3, 6


@pytest.fixture(scope="module")
def killed() -> Iterator[PostgresServer]:
    """Separate server, since killing a shared one would break other tests."""
    yield from server()


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    """Results of a job without a failure."""
    job = a_job(tmp_path_factory.mktemp("unharmed"))
    job.run(BATCHES)
    found = job.results()
    job.close()
    assert sum(map(len, found)) > 100
    return found


@pytest.mark.parametrize("at", range(BATCHES * STEPS))
def test_a_server_killed_after_a_step_loses_and_doubles_nothing(
    at: int, tmp_path: Path, killed: PostgresServer, wanted: list[Results]
) -> None:
    reached: list[str] = []

    def kill(step: str) -> None:
        if len(reached) == at:
            killed.stop()
        reached.append(step)

    url = killed.url(killed.create())
    job = a_job(tmp_path, kill, url)
    try:
        try:
            job.run(BATCHES)
        except CatalogDown:
            pass
        else:
            assert at == BATCHES * STEPS - 1, f"{reached[at]}: the rest of the job did not need the catalog"
    finally:
        killed.start()
    job.close()

    job = a_job(tmp_path, catalog_url=url)
    job.run(BATCHES)
    assert job.results() == wanted, reached[at]
    job.close()
