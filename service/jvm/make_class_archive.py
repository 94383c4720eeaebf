"""Makes the archive of ``service.jvm.class_archive``: a small run, then the JVM's own dump.

    python -m service.jvm.make_class_archive

A minute and 200 MB, once. It is a step of the set-up: it uses all of a core meanwhile, which no service
should do unasked.
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

from catalog.errors import SluiceError, Unavailable
from service.jvm.class_archive import DIRECTORY, archive_path
from service.jvm.java import use_java
from service.jvm.spark_home import spark_home

#: A run of two batches and a dump take less than a minute together on two cores.
TIMEOUT_S = 600

_SUBMIT = "org.apache.spark.deploy.SparkSubmit"

_CQL = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND A.v < B.v"


class ArchiveNotMade(Unavailable):
    """The JVM could not make an archive of its classes."""

    code = "archive-not-made"


def make_archive(java_home: Path, home: Path, directory: Path = DIRECTORY) -> Path:
    """Make the archive of a Java and a Spark if there is none, and return it.

    Raises:
        ArchiveNotMade: The small run or the dump has failed.
        OSError: The directory cannot be written.
    """
    archive = archive_path(java_home, home, directory)
    if archive.exists():
        return archive
    arguments = jvm_arguments(java_home, home)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=directory) as scratch:
        classes, fresh = Path(scratch) / "classes.list", Path(scratch) / "fresh.jsa"
        workload = write_workload(Path(scratch))
        configuration = {"spark.driver.defaultJavaOptions": f"-XX:DumpLoadedClassList={classes}"}
        _run(
            [
                sys.executable,
                "-m",
                "api.main",
                "run",
                str(workload),
                "--out",
                str(Path(scratch) / "out"),
            ],
            {"SLUICE_SPARK_CONF": json.dumps(configuration)},
        )
        dump = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={fresh}"]
        java = str(java_home / "bin" / "java")
        _run([java, *arguments, *dump, "-Xlog:disable"], {})
        if not fresh.exists():
            raise ArchiveNotMade("the JVM has made no archive of its classes")
        fresh.replace(archive)
    return archive


def jvm_arguments(java_home: Path, home: Path) -> list[str]:
    """Return the arguments that ``spark-submit`` gives the JVM: class path, modules, what is open."""
    launcher = ["-cp", f"{home / 'jars'}/*", "org.apache.spark.launcher.Main"]
    # What the script does before it calls the launcher; no class path depends on the version of Scala.
    variables = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"}
    command = _run([str(java_home / "bin" / "java"), *launcher, _SUBMIT, "pyspark-shell"], variables)
    words = command.split("\0")
    return words[words.index("-cp") : words.index(_SUBMIT)]


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


def _run(command: Sequence[str], variables: dict[str, str]) -> str:
    """Run a command and return what it prints.

    Raises:
        ArchiveNotMade: It has failed.
    """
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        raise ArchiveNotMade(
            f'"{Path(command[0]).name}" has failed with exit {done.returncode}', detail=done.stderr[-2000:]
        )
    return done.stdout


def main() -> int:
    """Make the archive; the exit code is 0 also without, for everything works without one."""
    try:
        archive = make_archive(use_java(), spark_home("local"))
    except (SluiceError, OSError, subprocess.TimeoutExpired) as error:
        print(f"sluice: starts take longer, there is no archive of Spark's classes: {error}", file=sys.stderr)
        return 0
    print(f"sluice: classes of Spark archived at {archive}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
