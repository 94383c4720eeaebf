"""A data directory that cannot be written: refused by name, with a way out; and one that turns read-only."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from service.errors import EventLogDown
from tests.api.running_service import RunningService, default_settings, free_port, serve_command
from tests.api.without_engine import Service
from tests.builders import stream_document
from tests.crash.disks import ext4, remount, tmpfs
from tests.crash.posting import Client, add_streams_and_query, expected, results, wait_for_rows
from tests.crash.test_full_disk import BEARS, awaited, engine
from tests.sluice_run import sluice


def started(data: Path) -> tuple[int, str]:
    """Start a service that must end by itself, and return its exit code and what it says."""
    _python, _option, _module, *arguments = serve_command(data, free_port())
    ended = sluice(*arguments, environment={"SLUICE_MIN_FREE_MB": "0"})
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr


@pytest.mark.mounts
def test_a_data_directory_on_a_read_only_disk_is_refused(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 64) as disk:
        data = disk.root / "data"
        with closing(Service(data)) as service:
            service.made("POST", "/streams", stream_document("A"))
        remount(disk, "ro")
        code, said = started(data)
        assert code == 2
        assert said == (
            f'error: data directory "{data}" cannot be written\n'
            f"  detail: {data} is on a read-only file system.\n"
            "  hint: Give the service write access, remount the file system, or name another directory with "
            "--data-dir.\n"
        )
        code, said = started(disk.root / "new")
        assert code == 2
        assert f"Read-only file system: {disk.root / 'new'}" in said
        assert "--data-dir" in said
        remount(disk, "rw")
        with closing(Service(data)) as service:
            assert service.made("GET", "/streams/A")["name"] == "A"


@pytest.mark.mounts
@pytest.mark.slow
def test_a_full_disk_is_no_place_to_start_until_there_is_space(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 64) as disk:
        data = disk.root / "data"
        disk.fill()
        code, said = started(data)
        assert code == 1
        assert f"{data / 'catalog.db'}: database or disk is full" in said
        disk.clear()
        with closing(Service(data)) as service:  # what the first start left is not an obstacle
            service.made("POST", "/streams", stream_document("A"))
        disk.fill()
        code, said = started(data)
        assert code == 1
        assert str(data / "catalog.db") in said
        disk.clear()
        with closing(Service(data)) as service:
            assert service.made("GET", "/streams/A")["name"] == "A"


@pytest.mark.mounts
@pytest.mark.slow
@pytest.mark.spark
def test_a_disk_that_turns_read_only_loses_nothing(tmp_path: Path) -> None:
    image, root, port = tmp_path / "image", tmp_path / "disk", free_port()
    log, settings = tmp_path / "first.log", default_settings(tmp_path / "first.log")
    with (
        ext4(root, image, 256) as disk,
        RunningService(root / "data", log, port, settings=settings) as service,
    ):
        add_streams_and_query(service)
        client = Client(service.root, BEARS)
        client.start()
        wait_for_rows(service, 100)
        disk.turn_read_only()
        awaited(lambda: client.refused, lambda refused: refused[503, EventLogDown.code])
        failed = awaited(lambda: engine(service), lambda found: found["state"] == "failed")
        assert failed["next_try_at"] is not None
        assert service.http.get("/health/ready").status_code == 503
        change = {"name": "other", "columns": {"ts": "timestamp"}, "event_time": "ts"}
        answer = service.http.post("/streams", json=change | {"source": {"type": "http"}})
        assert (answer.status_code, answer.json()["code"]) == (503, "catalog-down")
        assert service.ok("GET", "/queries/q/results?limit=1", 200)["rows"]
        assert service.stop() == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    # Its error is mended, as the kernel asks for before it lets anybody write again.
    with (
        ext4(root, image, 256),
        RunningService(root / "data", tmp_path / "second.log", port, settings=settings) as service,
    ):
        client.finish(40)
        wait_for_rows(service, sum(map(len, client.sent.values())))
        assert sorted(results(service)) == expected(client.sent)
        assert {status for status, _ in client.refused} == {503}
