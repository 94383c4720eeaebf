"""What others on the machine may read of a service: none of its files, no secret, no open port."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import psutil
import pytest

from tests.api.running_service import WAIT_S, RunningService, free_port

SECRET = "open-sesame = \\ 1é"
COLUMNS = {"ts": "timestamp", "k": "bigint"}
CQL = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with a secret in Spark's configuration and Spark's web page, which has committed a batch."""
    directory = tmp_path_factory.mktemp("private")
    settings = {"SLUICE_SPARK_CONF": json.dumps({"spark.x.note": SECRET}), "SLUICE_SPARK_UI": "true"}
    before = os.umask(0o022)  # as on most machines
    try:
        running = RunningService(directory / "data", directory / "log.txt", free_port(), settings=settings)
    finally:
        os.umask(before)
    with running:
        for name in ("A", "B"):
            stream = {"name": name, "columns": COLUMNS, "event_time": "ts", "source": {"type": "http"}}
            running.ok("POST", "/streams", 201, json=stream)
        sink = {"type": "files", "path": "q", "format": "ndjson"}
        running.ok("POST", "/queries", 202, json={"name": "q", "cql": CQL, "sink": sink})
        for name in ("A", "B"):
            running.ok("POST", f"/streams/{name}/events", 202, json=[{"ts": "2026-01-01T00:00:01Z", "k": 1}])
        with running.events("/queries/q/results/stream") as events:
            assert next(events).data
        yield running


def processes(service: RunningService) -> list[dict[str, Any]]:
    """Return command line and connections of every process of a service; a worker may end meanwhile."""
    service_process = psutil.Process(service.process.pid)
    found = []
    for process in (service_process, *service_process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            # Of a worker that has ended and is not collected yet there is neither.
            found.append(process.as_dict(["cmdline", "net_connections"], ad_value=()))
    return found


@pytest.mark.slow
def test_nobody_else_reads_what_a_service_writes(service: RunningService) -> None:
    paths = [service.data_dir, *service.data_dir.rglob("*")]

    opened = [f"{path} {stat.filemode(path.stat().st_mode)}" for path in paths if path.stat().st_mode & 0o077]

    assert len(paths) > 20
    assert any(path.suffix == ".parquet" for path in paths)
    assert opened == []


def test_every_port_of_a_service_is_of_this_machine(service: RunningService) -> None:
    listening = {
        connection.laddr.ip
        for process in processes(service)
        for connection in process["net_connections"]
        if connection.status == psutil.CONN_LISTEN
    }

    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert len(listening) == 2, "the API and the JVM"


def test_a_secret_of_the_settings_is_neither_in_command_lines_nor_in_logs_nor_in_answers(
    service: RunningService,
) -> None:
    word = SECRET.split()[0]
    told = [process["cmdline"] for process in processes(service)]
    answers = [service.http.get(path).text for path in ("/engine", "/openapi.json", "/statistics", "/plan")]
    texts = [service.log.read_text(), (service.data_dir / "spark.log").read_text(), *answers]

    assert any("java" in line[0] for line in told if line)
    assert not [line for line in told if word in " ".join(line)]
    assert not [text for text in texts if word in text]


def test_the_jvm_has_the_secret_as_it_was_written_and_asks_for_authentication(
    service: RunningService,
) -> None:
    spark = f"{service.ok('GET', '/engine', 200)['spark_ui']}/api/v1/applications"
    (application,) = httpx.get(spark, timeout=WAIT_S).json()
    found = httpx.get(f"{spark}/{application['id']}/environment", timeout=WAIT_S).json()
    properties = dict(found["sparkProperties"])

    assert properties["spark.x.note"] == SECRET
    assert properties["spark.authenticate"] == "true"
