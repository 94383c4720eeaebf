"""Parts of a data directory are lost between two starts: refused by name, repeated or repaired."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.api.running_service import WAIT_S, RunningService, free_port, serve_command
from tests.crash.killing import SIZE, failpoint
from tests.oracle import Oracle
from tests.sluice_run import assert_equals_oracle, run
from tests.workloads import make_workload

KEYS = [1, 2, 3, 4]
UUID = "0c9bbd4c-9be3-4ef2-8d4b-4f1f0b0f2a11"


def repair(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "sluice"), "repair", str(directory), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def hide_newest(data: Path, into: Path) -> None:
    """Take the newest two files of each stream away."""
    for stream in sorted(data.iterdir()):
        (into / stream.name).mkdir(parents=True)
        for path in sorted(stream.iterdir())[-2:]:
            path.rename(into / stream.name / path.name)


def give_back(data: Path, hidden: Path) -> None:
    for path in sorted(hidden.rglob("*.parquet")):
        path.rename(data / path.parent.name / path.name)


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_whose_checkpoint_was_removed_is_refused_and_repaired(tmp_path: Path) -> None:
    spec, files = make_workload(6, tmp_path, SIZE)
    workload, out = tmp_path / "WORKLOAD.yaml", tmp_path / "out"
    hide_newest(tmp_path / "data", tmp_path / "hidden")
    assert run(workload, out).returncode == 0
    shutil.rmtree(out / "_sluice" / "checkpoint")
    give_back(tmp_path / "data", tmp_path / "hidden")
    refused = run(workload, out)
    assert refused.returncode == 1
    assert "the checkpoint none" in refused.stderr
    assert f'"sluice repair {out / "_sluice"}"' in refused.stderr
    assert "build the state again" in repair(out).stdout
    assert run(workload, out).returncode == 1, "without --yes nothing is changed"
    assert "repaired" in repair(out, "--yes").stdout
    assert_equals_oracle(run(workload, out), out, Oracle(spec, files), "per-query")
    assert "nothing to repair" in repair(out).stdout


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_whose_log_lost_its_end_repeats_it_from_the_catalog(tmp_path: Path) -> None:
    spec, files = make_workload(6, tmp_path, SIZE)
    workload, out = tmp_path / "WORKLOAD.yaml", tmp_path / "out"
    checkpoint = out / "_sluice" / "checkpoint"
    # A kill while Spark writes its first offset.
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / f".0.{UUID}.tmp").write_text("v2\n")
    assert run(workload, out, environment=failpoint("after-commit-log", 3)).returncode == -signal.SIGKILL
    for entry in ("offsets/3", "commits/3"):
        (checkpoint / entry).unlink()
    assert_equals_oracle(run(workload, out), out, Oracle(spec, files), "per-query")


@pytest.mark.slow
@pytest.mark.spark
def test_a_service_without_its_checkpoint_or_catalog_does_not_start(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with RunningService(data_dir, tmp_path / "first.log", free_port()) as service:
        for name in ("A", "B"):
            stream = {"name": name, "columns": {"ts": "timestamp", "k": "bigint"}, "event_time": "ts"}
            source = {"lateness": "1s", "source": {"type": "http"}}
            service.ok("POST", "/streams", 201, json=stream | source)
        cql = "SELECT A.k FROM A [RANGE 1 MINUTE], B [RANGE 1 MINUTE] WHERE A.k = B.k"
        service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "q", "cql": cql})
        with service.events("/queries/q/results/stream") as events:
            for key in KEYS:  # more batches than could be repeated without state
                for name in ("A", "B"):
                    rows = [{"ts": "2026-01-01T00:00:00Z", "k": key}]
                    service.ok("POST", f"/streams/{name}/events", 202, json=rows)
                assert next(events).data["k"] == key
    results = {path.name for path in (data_dir / "results").iterdir()}
    lost = tmp_path / "lost"
    lost.mkdir()

    (data_dir / "checkpoint").rename(lost / "checkpoint")
    assert "the checkpoint none" in _refused(data_dir)
    shutil.rmtree(data_dir / "checkpoint")
    (lost / "checkpoint").rename(data_dir / "checkpoint")

    for path in data_dir.glob("catalog.db*"):
        path.rename(lost / path.name)
    refused = _refused(data_dir)
    assert f'the catalog of "{data_dir}" is missing' in refused
    assert "SLUICE_CATALOG_URL" in refused
    assert {path.name for path in (data_dir / "results").iterdir()} == results
    for path in lost.iterdir():
        path.rename(data_dir / path.name)

    max((data_dir / "results").iterdir()).write_bytes(b"")
    with RunningService(data_dir, tmp_path / "second.log", free_port()) as service:
        # It was of the last batch, which is repeated.
        deadline_s = time.monotonic() + WAIT_S
        while (answer := service.http.get("/queries/q/results")).status_code != 200:
            assert answer.json()["code"] == "corrupt-results"
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        assert [row["k"] for row in answer.json()["rows"]] == KEYS


def _refused(data_dir: Path) -> str:
    command = serve_command(data_dir, free_port())
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 1, refused.stderr
    return refused.stderr
