"""A service under load dies at a failpoint and is started again: each event that it took counts once.

The client sends again whatever was not acknowledged, under the same key.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.store.store import Store
from tests.api.running_service import RunningService, free_port
from tests.crash.killing import failpoint
from tests.crash.posting import (
    STOPPED_S,
    Client,
    add_streams_and_query,
    expected,
    results,
    wait_for_rows,
)

#: The batch that the service dies in, and how many requests there are after it has come back.
BATCH, MORE = 10, 60


def died_and_come_back(directory: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the last batch that was committed when the service died."""
    data_dir, port = directory / "data", free_port()
    monkeypatch.setenv(*environment.popitem())
    service = RunningService(data_dir, directory / "first.log", port)
    with service:
        add_streams_and_query(service)
        client = Client(service.root)
        client.start()
        service.process.wait(STOPPED_S)
    monkeypatch.delenv("SLUICE_FAILPOINT")
    with Store.open(f"sqlite:///{data_dir / 'catalog.db'}", migrate=False) as store:
        last = store.batches.last()
    assert last is not None

    with RunningService(data_dir, directory / "second.log", port) as service:
        client.finish(MORE)
        wait_for_rows(service, sum(map(len, client.sent.values())))
        found = results(service)
    assert sorted(found) == expected(client.sent)
    return last


@pytest.mark.slow
@pytest.mark.spark
def test_a_service_dies_when_its_batch_is_logged_and_nothing_of_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = died_and_come_back(tmp_path, failpoint("after-offset-log", BATCH), monkeypatch)
    assert last == BATCH - 1


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "point",
    [
        "before-offset-log",
        "before-state-commit",
        "before-result-commit",
        "after-result-commit",
        "after-commit-log",
    ],
)
def test_a_service_dies_at_another_point(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = died_and_come_back(tmp_path, failpoint(point, BATCH), monkeypatch)
    assert last in (BATCH - 1, BATCH)
