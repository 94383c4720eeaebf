"""Make the archive of ``service.jvm.class_archive``: a JVM writes it at the end of a small run.

    python -m service.jvm.make_class_archive

40 s of CPU time and 180 MB, once: a step of the set-up, because no service should use a core unasked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from catalog.errors import SluiceError
from service.errors import ClassArchiveNotMade
from service.jvm.class_archive import DIRECTORY, archive_file, spark_home
from service.jvm.java import use_java
from service.jvm.jvm import DEFAULT_OPTIONS

#: A run of two batches with its dump takes less than a minute on two cores.
TIMEOUT_S = 600

_CQL = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND A.v < B.v"


def make_archive(java_home: Path, home: Path, directory: Path = DIRECTORY) -> Path:
    """Make the archive of a Java and a Spark if there is none, and return it.

    Raises:
        ClassArchiveNotMade: The small run has failed, or its JVM wrote none; nothing is left.
        OSError: The directory cannot be written.
    """
    archive = archive_file(java_home, home, directory)
    if archive.exists():
        return archive
    directory.mkdir(parents=True, exist_ok=True)
    # The JVM's own classes, which ours come on top of; a Java from PyPI comes without.
    if not (java_home / "lib" / "server" / "classes.jsa").exists():
        _run([str(java_home / "bin" / "java"), "-Xshare:dump"], {})
    with tempfile.TemporaryDirectory(prefix="classes-", dir=directory) as scratch:
        fresh, out = Path(scratch) / "fresh.jsa", Path(scratch) / "out"
        configuration = {DEFAULT_OPTIONS: f'"-XX:ArchiveClassesAtExit={fresh}"'}
        run = [sys.executable, "-m", "api.main", "run", str(write_workload(Path(scratch))), "--out", str(out)]
        _run(run, {"SLUICE_SPARK_CONF": json.dumps(configuration)})
        if not fresh.exists():
            raise ClassArchiveNotMade("the JVM has made no archive of its classes")
        fresh.replace(archive)
    return archive


def write_workload(directory: Path) -> Path:
    """Write two small streams and a workload that joins them; return the workload's path."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    streams = []
    for name in ("A", "B"):
        path = directory / name
        path.mkdir()
        for file in range(2):
            seconds = [file * 100 + n / 10 for n in range(1000)]
            table = pa.table(
                {
                    "ts": pa.array(
                        [start + timedelta(seconds=s) for s in seconds], pa.timestamp("us", "UTC")
                    ),
                    "k": pa.array([n % 50 for n in range(1000)], pa.int64()),
                    "v": pa.array(seconds, pa.float64()),
                }
            )
            pq.write_table(table, path / f"{file}.parquet")
        source = {"type": "files", "format": "parquet", "path": str(path), "max_files_per_batch": 1}
        columns = {"ts": "timestamp", "k": "bigint", "v": "double"}
        streams.append(
            {"name": name, "columns": columns, "event_time": "ts", "lateness": "0s", "source": source}
        )
    workload = directory / "workload.yaml"
    queries = [{"name": "q", "cql": _CQL}]
    workload.write_text(yaml.safe_dump({"streams": streams, "queries": queries}), encoding="utf-8")
    return workload


def _run(command: Sequence[str], variables: dict[str, str]) -> None:
    """Run a command; raise ``ClassArchiveNotMade`` if it fails."""
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        raise ClassArchiveNotMade(
            f'"{Path(command[0]).name}" has failed with exit {done.returncode}', detail=done.stderr[-2000:]
        )


def main() -> int:
    """Make the archive; the exit code is 0 also if that fails, because everything works without it."""
    try:
        archive = make_archive(use_java(), spark_home())
    except (SluiceError, OSError, subprocess.TimeoutExpired) as error:
        print(f"sluice: starts take 4 s longer: no archive of classes: {error}", file=sys.stderr)
        return 0
    print(f"sluice: classes archived in {archive}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
