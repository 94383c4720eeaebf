"""Prepare the home of ``service.jvm.spark_home``: links, then a small run and the JVM's dump of its classes.

    python -m service.jvm.make_spark_home

A minute of CPU time and 200 MB, once: a step of the set-up, because no service should use a core unasked.
"""

from __future__ import annotations

import json
import os
import shutil
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
from service.jvm.java import use_java
from service.jvm.spark_home import ARCHIVE, DIRECTORY, link_home, packaged_home, prepared_home

#: A run of two batches and a dump take less than a minute together on two cores.
TIMEOUT_S = 600

_SUBMIT = "org.apache.spark.deploy.SparkSubmit"

_CQL = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND A.v < B.v"


class SparkHomeNotMade(Unavailable):
    """The JVM could not make an archive of its classes."""

    code = "spark-home-not-made"


def make_home(java_home: Path, packaged: Path, directory: Path = DIRECTORY) -> Path:
    """Prepare the home of a Java and a PySpark if there is none, and return it.

    Raises:
        SparkHomeNotMade: The small run or the dump has failed; nothing is left.
        OSError: The directory cannot be written.
    """
    home = prepared_home(java_home, packaged, directory)
    if (home / ARCHIVE).exists():
        return home
    shutil.rmtree(home, ignore_errors=True)  # of an attempt that was killed
    try:
        _dump_classes(java_home, link_home(packaged, home))
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    return home


def _dump_classes(java_home: Path, home: Path) -> None:
    """Write the archive of the classes that a small run loads."""
    arguments = jvm_arguments(java_home, home)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=home) as scratch:
        classes, fresh = Path(scratch) / "classes.list", Path(scratch) / "fresh.jsa"
        workload, out = write_workload(Path(scratch)), Path(scratch) / "out"
        configuration = {"spark.driver.defaultJavaOptions": f"-XX:DumpLoadedClassList={classes}"}
        run = [sys.executable, "-m", "api.main", "run", str(workload), "--out", str(out)]
        _run(run, {"SLUICE_SPARK_CONF": json.dumps(configuration), "SPARK_HOME": str(home)})
        dump = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={fresh}"]
        _run([str(java_home / "bin" / "java"), *arguments, *dump, "-Xlog:disable"], {})
        if not fresh.exists():
            raise SparkHomeNotMade("the JVM has made no archive of its classes")
        fresh.replace(home / ARCHIVE)


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
    """Run a command and return its output; raise ``SparkHomeNotMade`` if it fails."""
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        raise SparkHomeNotMade(
            f'"{Path(command[0]).name}" has failed with exit {done.returncode}', detail=done.stderr[-2000:]
        )
    return done.stdout


def main() -> int:
    """Prepare the home; the exit code is 0 also if that fails, because everything works without it."""
    try:
        home = make_home(use_java(), packaged_home())
    except (SluiceError, OSError, subprocess.TimeoutExpired) as error:
        print(f"sluice: starts take 6 s longer: no Spark home could be prepared: {error}", file=sys.stderr)
        return 0
    print(f"sluice: Spark home prepared at {home}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
