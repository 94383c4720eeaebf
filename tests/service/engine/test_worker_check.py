"""Workers that are not as the engine is are refused, by name, with what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.worker_util import check_python_version

from operators.errors import StorageDown
from operators.storage.folder import check_writable
from operators.storage.object_folder import ObjectFolder
from service.engine.worker_check import Look, compare, python_differs, this_process
from service.errors import StorageDiffers, WorkerDiffers

ENGINE = this_process()
NOW_US = ENGINE.clock_us


@pytest.mark.parametrize(
    ("other", "error", "told"),
    [
        ({"python": "2.7.18"}, WorkerDiffers, "runs Python 2.7.18"),
        ({"packages": {**ENGINE.packages, "pyarrow": "1.0"}}, WorkerDiffers, "has pyarrow 1.0"),
        ({"clock_us": NOW_US - 61_000_000}, WorkerDiffers, "by 61 s"),
        ({"clock_us": NOW_US + 3_600_000_000}, WorkerDiffers, "by 3600 s"),
        ({"failure": "There is no file."}, StorageDiffers, "There is no file."),
    ],
)
def test_a_worker_that_differs_is_refused(
    other: Mapping[str, Any], error: type[Exception], told: str
) -> None:
    worker = replace(ENGINE, host="worker-7", **other)
    with pytest.raises(error) as refused:
        compare(ENGINE, [ENGINE, worker], NOW_US, NOW_US)
    assert "worker-7" in str(refused.value)
    assert told in str(refused.value)
    assert "hint" in str(refused.value)


def test_workers_that_are_alike_pass() -> None:
    late = replace(ENGINE, clock_us=NOW_US + 59_000_000, python=ENGINE.python.rpartition(".")[0] + ".99")
    compare(ENGINE, [ENGINE, late], NOW_US, NOW_US)


def test_a_task_that_does_not_see_the_token_says_so(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "look-1").write_bytes(b"look-1")
    (seen,) = Look((here,), "look-1")(iter(()))
    assert seen.failure is None
    assert (here / seen.answers[0]).exists()
    (blind,) = Look((there,), "look-1")(iter(()))
    assert blind.failure == f'There is no file "look-1" in {there}.'


def test_a_python_that_cannot_take_a_task_is_named() -> None:
    with pytest.raises(PySparkRuntimeError) as refused:
        check_python_version("3.2")
    told = python_differs("spark://m:7077", f"Job aborted due to stage failure: {refused.value}")
    assert told is not None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert told.primary == f"a worker of spark://m:7077 runs Python {version}, the engine 3.2"
    assert f"workers run {sys.executable}" in str(told)


def test_a_python_without_sluice_is_named(tmp_path: Path) -> None:
    # As Spark starts it; without its packages (-S).
    command = [sys.executable, "-S", "-m", "service.job.workers.worker_daemon"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    told = python_differs("spark://m:7077", f"Error from python worker:\n  {ended.stderr}")
    assert told is not None
    assert told.primary == 'the Python of a worker of spark://m:7077 lacks the module "service"'
    assert python_differs("spark://m:7077", "Job aborted: disk full") is None


class ReadOnlyStore(BaseHTTPRequestHandler):
    """An S3 server whose credentials may only read."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_storage_that_cannot_be_written_is_refused_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), ReadOnlyStore) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "us-east-1"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        try:
            with pytest.raises(StorageDown, match="s3://bucket/results") as refused:
                check_writable((ObjectFolder(tmp_path, "s3://bucket/results", 1 << 20),))
        finally:
            server.shutdown()
            thread.join()
    assert "credentials" in str(refused.value)
