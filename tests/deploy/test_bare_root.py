"""Run the Containerfile in a bare root of Debian, and its result as the container's user, read-only."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.api.running_service import free_port
from tests.crash.posting import Client, add_streams_and_query, expected, results, wait_for_rows
from tests.deploy.bare_root import Build, enter, inside, make_base
from tests.deploy.containerfile import instructions
from tests.deploy.files import DEPLOY
from tests.deploy.killed_units import Reached, wait_for_requests, wait_until_ready

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    directory = tmp_path_factory.mktemp("bare")
    base = directory / "base"
    make_base(base)
    build = Build(base, directory)
    build.carry_out(instructions(DEPLOY / "Containerfile"))
    yield build
    shutil.rmtree(directory)  # gigabytes


def run(build: Build, command: str) -> str:
    """Run a command like the container: as its user, with only the volume and /tmp writable."""
    return enter(
        build.root,
        command,
        build.environment,
        directory="/opt/sluice",
        user=build.user,
        writable=("/data", "/tmp"),
    )


def test_the_doctor_finds_the_image_fit(built: Build) -> None:
    parts = json.loads(run(built, "sluice doctor --json").splitlines()[-1])
    assert {part["state"] for part in parts} <= {"ok", "warning"}, parts
    assert any("Java" in part["told"] for part in parts), parts
    assert run(built, "id -u").strip() == "10001"


def test_no_tool_that_builds_or_installs_is_left(built: Build) -> None:
    found = run(
        built, "command -v pip gcc javac; python -c 'import pip' 2>/dev/null && echo pip || echo none"
    )
    assert found.split() == ["none"]


def test_the_root_cannot_be_written(built: Build) -> None:
    said = run(built, "touch /opt/sluice/x 2>&1 || echo refused; touch /data/x && echo taken")
    assert said.split("\n")[1:3] == ["refused", "taken"]


def test_a_run_of_the_image_gives_the_rows_of_its_streams(built: Build) -> None:
    work = Path(f"{built.root}/tmp/work")
    work.mkdir()
    (work / "A.csv").write_text("ts,k\n2026-01-01T00:00:00Z,1\n2026-01-01T00:00:01Z,2\n")
    stream = {
        "name": "A",
        "columns": {"ts": "timestamp", "k": "bigint"},
        "event_time": "ts",
        "source": {"type": "files", "format": "csv", "path": "A.csv"},
    }
    cql = "SELECT a.k FROM A [RANGE 5 SECONDS] a, A [RANGE 5 SECONDS] b WHERE a.k = b.k"
    workload = {"streams": [stream], "queries": [{"name": "q", "cql": cql}]}
    (work / "w.yaml").write_text(json.dumps(workload))
    said = run(built, "sluice run /tmp/work/w.yaml --out /data/out")
    assert json.loads(said.strip().splitlines()[-1])["results"] == {"q": 2}


class Container:
    """A process of the image, as a container engine runs it; a context manager.

    Args:
        build: The image.
        command: Command of ``sluice``, with its options.
        environment: Settings.
        log: File that takes its output.
    """

    def __init__(self, build: Build, command: str, environment: dict[str, str], log: Path) -> None:
        self._command = inside(
            build.root,
            f"exec tini -- sluice {command}",
            build.environment | environment,
            directory="/opt/sluice",
            user=build.user,
            writable=("/data", "/tmp"),
        )
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def end(self) -> None:
        """Kill its first process, with which the kernel kills all others."""
        assert self._process is not None
        # Not "unshare" itself: a change of user takes its promise to kill what it started.
        for first in psutil.Process(self._process.pid).children():
            first.kill()
        self._process.wait()


def test_containers_on_postgresql_are_killed_and_lose_nothing(
    built: Build, postgres_url: str, tmp_path: Path
) -> None:
    port = free_port()
    settings = {"SLUICE_HOST": "127.0.0.1", "SLUICE_CATALOG_URL": postgres_url, "SLUICE_BUCKETS": "2"}
    parts = [f"api --port {port}", *(f"engine --port {free_port()}" for _ in range(2))]
    containers = [
        Container(built, part, settings, tmp_path / f"{number}.log") for number, part in enumerate(parts)
    ]
    with ExitStack() as running:
        for container in containers:
            container.start()
            running.callback(container.end)
        service = Reached(f"http://127.0.0.1:{port}")
        running.callback(service.http.close)
        wait_until_ready(service)
        add_streams_and_query(service)
        client = Client(service.root)
        client.start()
        for container in (containers[1], containers[0], containers[2]):
            wait_for_requests(client, client.requests + 40)
            container.end()
            container.start()
        wait_for_requests(client, client.requests + 40)
        client.finish(8)
        wait_for_rows(service, sum(map(len, client.sent.values())))
        assert sorted(results(service)) == expected(client.sent)
