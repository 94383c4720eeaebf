"""``sluice doctor``: what is found is told with what to do, and nothing is changed."""

from __future__ import annotations

import json
import shutil
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.store.lease import Holder
from catalog.times.clock import wall_clock_us
from service.config.settings import load_settings
from service.maintenance.diagnosis.doctor import Finding, examine
from tests.catalog.examples import manifest
from tests.service.recovery.lives import a_life
from tests.sluice_run import Command

HOUR_US = 3_600_000_000

pytestmark = pytest.mark.usefixtures("own_environment")


def findings(data_dir: Path, **options: object) -> dict[str, Finding]:
    """Return what is found of a directory, with any free port."""
    return {f.part: f for f in examine(load_settings(data_dir=data_dir, port=0, **options))}


def of_state(found: dict[str, Finding], state: str) -> set[str]:
    return {part for part, finding in found.items() if finding.state == state}


def all_files(root: Path) -> set[tuple[str, int]]:
    return {
        (str(path), path.stat().st_mtime_ns) for path in root.rglob("*") if not path.name.endswith("-shm")
    }


def test_a_fresh_directory_is_well_and_is_not_made(sluice: Command, tmp_path: Path) -> None:
    told = sluice("doctor", "--data-dir", tmp_path / "new", "--port", "0", "--json")

    assert told.returncode == 0, told.stdout
    found = {each["part"]: each for each in json.loads(told.stdout)}
    assert list(found) == ["versions", "Java", "cores", "memory", "data directory", "disk", "catalog"]
    assert found["Java"]["told"].startswith("Java ")
    assert "created at the first start" in found["data directory"]["told"]
    assert not list(tmp_path.iterdir())


def test_a_life_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    with a_life(tmp_path / "data", batches=2) as life:
        holder = Holder("example", "boot", "processes", 4711, 0.0, str(tmp_path))
        lease = life.store.lease.take(holder, 10_000, life.store.lease.current())
        assert lease is not None
        newest = replace(manifest(2, life.store.lease.epoch()), files=(), query_rows=())
        life.store.batches.commit(replace(newest, committed_at_us=wall_clock_us() - HOUR_US))
    before = all_files(tmp_path)

    found = findings(tmp_path / "data")

    assert not of_state(found, "problem")
    assert found["catalog"].told.startswith("Streams: 1, queries: 0.")
    assert "Process 4711 on example" in found["catalog"].told
    assert found["clock"].told.startswith("The newest batch, 2, was committed 3,60")
    # SQLite leaves an empty log beside a catalog that it has opened.
    changed = all_files(tmp_path) - before
    assert {Path(path).name for path, _ in changed} <= {"data", "catalog.db-wal", "events.db-wal"}


def test_a_batch_of_the_future_is_the_clock_s_fault(tmp_path: Path) -> None:
    with a_life(tmp_path / "data", batches=1) as life:
        newest = replace(manifest(1, life.store.lease.epoch()), files=(), query_rows=())
        life.store.batches.commit(replace(newest, committed_at_us=wall_clock_us() + HOUR_US))

    clock = findings(tmp_path / "data")["clock"]

    assert clock.state == "warning"
    assert "the clock was set back" in clock.told


def test_a_directory_that_lost_its_catalog_is_a_problem(sluice: Command, tmp_path: Path) -> None:
    with a_life(tmp_path / "data", batches=1):
        pass
    for path in (tmp_path / "data").glob("catalog.db*"):
        path.unlink()

    told = sluice("doctor", "--data-dir", tmp_path / "data", "--port", "0")

    assert told.returncode == 1
    assert "problem" in told.stdout
    assert "SLUICE_CATALOG_URL" in told.stdout
    assert not (tmp_path / "data" / "catalog.db").exists()


def test_a_catalog_of_another_life_is_a_problem(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with a_life(tmp_path / name, batches=1):
            pass
    shutil.copy(tmp_path / "one" / "catalog.db", tmp_path / "other" / "catalog.db")

    found = findings(tmp_path / "other")

    assert of_state(found, "problem") == {"catalog"}
    assert "The catalog does not belong to" in found["catalog"].told
    assert found["catalog"].hint


def test_a_port_that_another_program_has_is_a_problem(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        found = {f.part: f for f in examine(load_settings(data_dir=tmp_path, port=port))}
    assert of_state(found, "problem") == {"port"}
    assert f"127.0.0.1:{port}" in found["port"].told
    assert "--port" in (found["port"].hint or "")
    found = {f.part: f for f in examine(load_settings(data_dir=tmp_path, port=port))}
    assert found["port"].told == f"127.0.0.1:{port} is free."


@pytest.mark.parametrize(
    ("options", "part", "state", "told"),
    [
        ({"min_free_mb": 1 << 40}, "disk", "problem", "Batches take no input."),
        ({"cores": 4096}, "cores", "warning", "use 4096 cores"),
        ({"driver_memory": "9999g"}, "memory", "warning", "may take 10738.5 GB"),
        ({"data_dir": Path("/proc/nothing")}, "data directory", "problem", "/proc cannot be written"),
        ({"checkpoint_dir": Path("/elsewhere")}, "storage", "problem", 'without "storage_url"'),
        ({"storage_url": "file:///proc/nothing"}, "storage", "problem", "/proc/nothing"),
        (
            {"catalog_url": "sqlite:////proc/nothing/catalog.db"},
            "catalog",
            "problem",
            "no directory /proc/nothing",
        ),
        ({"catalog_url": "postgresql://127.0.0.1:1/none"}, "catalog", "problem", "127.0.0.1"),
    ],
)
def test_what_does_not_fit_is_told_with_what_to_do(
    tmp_path: Path, options: dict[str, object], part: str, state: str, told: str
) -> None:
    settings = load_settings(**({"data_dir": tmp_path, "port": 0} | options))
    (found,) = (finding for finding in examine(settings) if finding.part == part)

    assert found.state == state
    assert told in found.told
    assert found.hint or state == "ok" or part == "storage"
