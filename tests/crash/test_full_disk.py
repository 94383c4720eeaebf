"""A disk that is really full: nothing acknowledged is lost, no answer is 500, and all goes on by itself.

With limits, ingest stops before the disk is full, then batches stop to take input. Without, writes fail in
the event log, the catalog, segments, result files and Spark's checkpoint, wherever the space ends.

    python -m pytest tests/crash/test_full_disk.py -m slow
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from api.errors import EngineNotReady
from catalog.errors import CatalogDown
from service.errors import EventLogDown, IngestFull
from tests.api.running_service import WAIT_S, RunningService, default_settings, free_port
from tests.crash.disks import Disk, tmpfs
from tests.crash.posting import (
    CQL,
    Client,
    add_streams_and_query,
    expected,
    results,
    wait_for_rows,
)
from tests.oracle import Oracle
from tests.sluice_run import Mode, assert_equals_oracle, run
from tests.workloads import Size, make_workload

MB = 1 << 20
SEED = 41
#: A job that failed is tried again after a minute at most, and Spark has to start.
GO_ON_S = 180
#: Answers that a client comes back after; any other ends it.
BEARS = frozenset({429, 503})
NO_LIMITS = {"SLUICE_MIN_FREE_MB": "0", "SLUICE_MAX_BACKLOG_ROWS": "0", "SLUICE_MAX_BACKLOG_MB": "0"}


@contextmanager
def under_load(data: Path, log: Path, **settings: str) -> Iterator[tuple[RunningService, Client]]:
    """Start a service and a client; in the end all that was acknowledged must have its results."""
    with RunningService(data, log, free_port(), settings=default_settings(log) | settings) as service:
        add_streams_and_query(service)
        client = Client(service.root, BEARS)
        client.start()
        wait_for_rows(service, 100)
        yield service, client
        client.finish(40)
        wait_for_rows(service, sum(map(len, client.sent.values())))
        found = results(service)
    assert sorted(found) == expected(client.sent)
    assert service.process.returncode == 0
    assert "Traceback" not in log.read_text()


def awaited(read: Callable[[], Any], done: Callable[[Any], object], seconds: float = WAIT_S) -> Any:
    deadline = time.monotonic() + seconds
    while not done(found := read()):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def engine(service: RunningService) -> Any:
    return service.ok("GET", "/engine", 200)


def commits_again(service: RunningService) -> None:
    """Wait for a batch."""
    before = engine(service)["batch"]
    awaited(lambda: engine(service), lambda found: found["batch"] > before + 1, GO_ON_S)


@pytest.mark.mounts
@pytest.mark.slow
@pytest.mark.spark
def test_ingest_stops_before_the_disk_is_full_and_goes_on_by_itself(tmp_path: Path) -> None:
    with (
        tmpfs(tmp_path / "disk", 128) as disk,
        under_load(disk.root / "data", tmp_path / "log.txt", SLUICE_MIN_FREE_MB="24") as (service, client),
    ):
        disk.fill(18 * MB)
        awaited(lambda: client.refused, lambda refused: refused[429, IngestFull.code] > 4)
        taken = client.requests
        assert engine(service)["input_held"] is None
        service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "other", "cql": CQL})
        assert service.ok("GET", "/queries/q/results?limit=1", 200)["rows"]

        disk.fill(8 * MB)
        held = awaited(lambda: engine(service), lambda found: found["input_held"] is not None)
        assert held["state"] == "running"
        answer = service.http.get("/health/ready")
        assert (answer.status_code, answer.json()["code"]) == (503, EngineNotReady.code)
        # A change of the plan takes effect: the batch that it begins takes no input.
        service.ok("DELETE", f"/queries/other?wait={WAIT_S}", 200)
        assert "sluice_input_held 1.0" in service.http.get("/metrics").text
        assert service.ok("GET", "/queries/q/results?limit=1", 200)["rows"]
        assert client.requests == taken

        disk.clear()
        awaited(lambda: client.requests, lambda requests: requests > taken)
        awaited(lambda: service.http.get("/health/ready").status_code, lambda status: status == 200)
        assert set(client.refused) == {(429, IngestFull.code)}


@pytest.mark.mounts
@pytest.mark.slow
@pytest.mark.spark
def test_a_disk_that_is_full_ends_nothing(tmp_path: Path) -> None:
    with (
        tmpfs(tmp_path / "disk", 128) as disk,
        under_load(disk.root / "data", tmp_path / "log.txt", **NO_LIMITS) as (service, client),
    ):
        disk.fill()
        awaited(lambda: client.refused, lambda refused: refused[503, EventLogDown.code])
        failed = awaited(lambda: engine(service), lambda found: found["state"] == "failed")
        assert failed["next_try_at"] is not None
        answer = service.http.get("/health/ready")
        assert (answer.status_code, answer.json()["code"]) == (503, EngineNotReady.code)
        assert service.ok("GET", "/queries/q/results?limit=1", 200)["rows"]
        disk.clear()
        commits_again(service)
        assert set(client.refused) <= {(503, EventLogDown.code), (503, CatalogDown.code)}


@pytest.mark.mounts
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 2])
def test_a_disk_that_is_full_now_and_then(seed: int, tmp_path: Path) -> None:
    random_numbers = random.Random(seed)
    print(f"seed {seed}")
    with (
        tmpfs(tmp_path / "disk", 128) as disk,
        under_load(disk.root / "data", tmp_path / "log.txt", **NO_LIMITS) as (service, _client),
    ):
        for _ in range(4):
            leave = random_numbers.choice([0, 0, 8, 64, 256, 1024]) << 10
            until = time.monotonic() + random_numbers.uniform(0.3, 15)
            while time.monotonic() < until:
                disk.fill(leave)
                assert service.http.get("/engine").status_code in (200, 503)
                time.sleep(0.05)
            disk.clear()
            commits_again(service)


@pytest.mark.mounts
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_each_part_of_a_data_directory_on_a_full_disk_of_its_own(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log.txt"
    data.mkdir()
    with ExitStack() as stack:
        parts: dict[str, Disk] = {}
        for name in ("results", "late", "checkpoint", "checkpoint/segments"):
            (data / name).mkdir()
            parts[name] = stack.enter_context(tmpfs(data / name, 64))
        service, client = stack.enter_context(under_load(data, log, **NO_LIMITS))
        # Spark's state and its log of batches take turns to fail in the checkpoint.
        for name in ("results", "checkpoint", "checkpoint/segments", "checkpoint"):
            parts[name].fill()
            failed = awaited(lambda: engine(service), lambda found: found["state"] == "failed")
            assert "No space left on device" in failed["error"], name
            assert failed["next_try_at"] is not None
            parts[name].clear()
            commits_again(service)
        assert not client.refused  # the event log had space all the time


@pytest.mark.mounts
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("leave_kb", "mode"), [(200, "per-query"), (900, "shared"), (1800, "per-query")])
def test_a_run_on_a_full_disk_says_so_and_goes_on_later(leave_kb: int, mode: Mode, tmp_path: Path) -> None:
    spec, files = make_workload(
        6, tmp_path, Size(rows=400, queries=8, steps=4, max_pairs=4000, files=(14, 18))
    )
    with tmpfs(tmp_path / "disk", 64) as disk:
        workload, out = tmp_path / "WORKLOAD.yaml", disk.root / "out"
        disk.fill(leave_kb << 10)
        failed = run(workload, out, mode=mode)
        assert failed.returncode == 1, failed.stderr
        assert "error: " in failed.stderr
        assert "Traceback" not in failed.stderr
        assert any(words in failed.stderr for words in ("full", "No space left")), failed.stderr
        disk.clear()
        outcome = run(workload, out, mode=mode)
        assert_equals_oracle(outcome, out, Oracle(spec, files), mode)
