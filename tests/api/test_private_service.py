"""What others on the machine may read of a service: none of its files, no secret, no open port."""

from __future__ import annotations

import stat
from contextlib import suppress
from typing import Any

import httpx
import psutil
import pytest

from tests.api.conftest import SECRET
from tests.api.running_service import WAIT_S, RunningService
from tests.builders import stream_document

COLUMNS = {"ts": "timestamp", "k": "bigint"}
CQL = "SELECT a.k FROM private_a [RANGE 10 SECONDS] a, private_b [RANGE 10 SECONDS] b WHERE a.k = b.k"


@pytest.fixture(scope="module")
def at_work(service: RunningService) -> RunningService:
    """Shared service, after a committed batch of this test; its settings have a secret."""
    for name in ("private_a", "private_b"):
        stream = stream_document(name, COLUMNS)
        service.ok("POST", "/streams", 201, json=stream)
    sink = {"type": "files", "path": "private", "format": "ndjson"}
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "private", "cql": CQL, "sink": sink})
    for name in ("private_a", "private_b"):
        row = {"ts": "2026-01-01T00:00:01Z", "k": 1}
        service.ok("POST", f"/streams/{name}/events", 202, json=[row])
    with service.events("/queries/private/results/stream") as events:
        assert next(events).data
    return service


def processes(service: RunningService) -> list[dict[str, Any]]:
    """Return command line and connections of every process of a service; a worker may end meanwhile."""
    service_process = psutil.Process(service.process.pid)
    found = []
    for process in (service_process, *service_process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            # Of a worker that has ended and is not collected yet there is neither.
            found.append(process.as_dict(["cmdline", "net_connections"], ad_value=()))
    return found


def test_nobody_else_reads_what_a_service_writes(at_work: RunningService) -> None:
    paths = [at_work.data_dir, *at_work.data_dir.rglob("*")]

    opened = []
    for path in paths:
        with suppress(FileNotFoundError):  # a batch removes what the one before needed
            mode = path.stat().st_mode
            if mode & 0o077:
                opened.append(f"{path} {stat.filemode(mode)}")

    assert len(paths) > 20
    assert any(path.suffix == ".parquet" for path in paths)
    assert opened == []


def test_every_port_of_a_service_is_of_this_machine(at_work: RunningService) -> None:
    listening = {
        connection.laddr.ip
        for process in processes(at_work)
        for connection in process["net_connections"]
        if connection.status == psutil.CONN_LISTEN
    }

    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert len(listening) == 2, "the API and the JVM"


def test_a_secret_of_the_settings_is_neither_in_command_lines_nor_in_logs_nor_in_answers(
    at_work: RunningService,
) -> None:
    word = SECRET.split()[0]
    told = [process["cmdline"] for process in processes(at_work)]
    answers = [at_work.http.get(path).text for path in ("/engine", "/openapi.json", "/statistics", "/plan")]
    texts = [at_work.log.read_text(), (at_work.data_dir / "spark.log").read_text(), *answers]

    assert any("java" in line[0] for line in told if line)
    assert not [line for line in told if word in " ".join(line)]
    assert not [text for text in texts if word in text]


def test_the_jvm_has_the_secret_as_it_was_written_and_asks_for_authentication(
    at_work: RunningService,
) -> None:
    spark = f"{at_work.ok('GET', '/engine', 200)['spark_ui']}/api/v1/applications"
    (application,) = httpx.get(spark, timeout=WAIT_S).json()
    found = httpx.get(f"{spark}/{application['id']}/environment", timeout=WAIT_S).json()
    properties = dict(found["sparkProperties"])

    assert properties["spark.x.note"] == SECRET
    assert properties["spark.authenticate"] == "true"
