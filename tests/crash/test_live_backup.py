"""Backups of a service under load: each restored copy goes on with nothing lost and nothing doubled."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from catalog.store.store import Store
from service.inputs.sources.posted.http_log import EventLog
from tests.api.running_service import RunningService, free_port
from tests.crash.posting import Client, Sent, add_streams_and_query, expected, results, wait_for_rows
from tests.sluice_run import sluice

#: Requests that are posted before the backup, and those after the restore.
BEFORE, MORE = 120, 40


def events_of(data_dir: Path) -> Sent:
    """Return the events of a data directory that no service runs on."""
    found: Sent = {}
    with (
        Store.open(f"sqlite:///{data_dir / 'catalog.db'}", migrate=False) as store,
        closing(EventLog(data_dir / "events.db")) as log,
    ):
        for stream in store.streams.all():
            rows = log.read(stream, 0, log.end(stream.id))
            times = rows.column("ts").cast("timestamp[us]").cast("int64").to_pylist()
            ids, keys = rows.column("id").to_pylist(), rows.column("k").to_pylist()
            found[stream.name] = list(zip(times, ids, keys, strict=True))
    return found


def back_up_under_load(directory: Path, backups: int) -> None:
    data_dir = directory / "data"
    acknowledged: list[Sent] = []
    with RunningService(data_dir, directory / "first.log", free_port()) as service:
        add_streams_and_query(service)
        client = Client(service.root)
        client.start()
        for number in range(backups):
            wait_for_rows(service, (number + 1) * BEFORE * 25)
            acknowledged.append({name: list(rows) for name, rows in client.sent.items()})
            made = sluice("backup", directory / f"backup{number}", "--data-dir", data_dir)
            assert made.returncode == 0, made.stderr
        # The original goes on as if nothing had been.
        client.finish(MORE)
        wait_for_rows(service, sum(map(len, client.sent.values())))
        assert sorted(results(service)) == expected(client.sent)

    data_dir.rename(directory / "away")  # no copy needs a file of the original
    for number, before in enumerate(acknowledged):
        copy = directory / f"copy{number}"
        done = sluice("restore", directory / f"backup{number}", "--data-dir", copy)
        assert done.returncode == 0, done.stderr
        sent = events_of(copy)
        for name in ("A", "B"):
            assert set(before[name]) <= set(sent[name]) <= set(client.sent[name])
            assert len(set(sent[name])) == len(sent[name])
        with RunningService(copy, directory / f"copy{number}.log", free_port()) as service:
            wait_for_rows(service, sum(map(len, sent.values())))
            assert sorted(results(service)) == expected(sent)
            # All requests once more: what the copy has is not taken twice.
            again = Client(service.root, pause_s=0)
            again.until = client.requests + MORE
            again.run()
            assert again.failed is None
            wait_for_rows(service, sum(map(len, again.sent.values())))
            assert sorted(results(service)) == expected(again.sent)


@pytest.mark.slow
@pytest.mark.spark
def test_a_backup_of_a_running_service_goes_on_where_it_was(tmp_path: Path) -> None:
    back_up_under_load(tmp_path, 1)


@pytest.mark.slow
@pytest.mark.spark
def test_several_backups_of_a_running_service(tmp_path: Path) -> None:
    back_up_under_load(tmp_path, 6)
