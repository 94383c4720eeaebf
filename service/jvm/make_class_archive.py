"""Program that makes the archive of ``service.jvm.class_archive``: a JVM writes it at the end of a small run.

    python -m service.jvm.make_class_archive

The archive takes 180 MB, and 40 s of CPU time once. It is made during the set-up, so that a start of a
service does not occupy a core with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from catalog.errors import SluiceError
from service.errors import ClassArchiveNotMade
from service.jvm.class_archive import DIRECTORY, archive_file, spark_home
from service.jvm.java import use_java
from service.jvm.jvm import DEFAULT_OPTIONS

#: Seconds after which the small run is ended. Its two batches and the writing of the archive take less than a
#: minute on two cores.
TIMEOUT_S = 600

#: Workload of the small run: a join of two generated streams, which end after two batches.
WORKLOAD = """\
streams:
  - &stream
    name: A
    columns: {ts: timestamp, k: bigint, v: double}
    event_time: ts
    lateness: 0s
    source: {type: generator, rate_per_s: 10, rows: 2000, start: 2024-01-01T00:00:00Z}
  - {<<: *stream, name: B}
queries:
  - name: q
    cql: SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND A.v < B.v
"""
_ROWS_PER_BATCH = "2000"


def make_archive(java_home: Path, home: Path, directory: Path = DIRECTORY) -> Path:
    """Make the archive of a Java and a Spark if it does not exist, and return its path.

    Raises:
        ClassArchiveNotMade: The small run failed, or its JVM wrote no archive. No file is left.
        OSError: The directory cannot be written.
    """
    archive = archive_file(java_home, home, directory)
    if archive.exists():
        return archive
    directory.mkdir(parents=True, exist_ok=True)
    # The archive extends an archive of the JVM's own classes. A Java from PyPI lacks the latter, so it is
    # made.
    if not (java_home / "lib" / "server" / "classes.jsa").exists():
        _run([str(java_home / "bin" / "java"), "-Xshare:dump"], {})
    with tempfile.TemporaryDirectory(prefix="classes-", dir=directory) as scratch:
        fresh, out = Path(scratch) / "fresh.jsa", Path(scratch) / "out"
        workload = Path(scratch) / "workload.yaml"
        workload.write_text(WORKLOAD, encoding="utf-8")
        configuration = {DEFAULT_OPTIONS: f'"-XX:ArchiveClassesAtExit={fresh}"'}
        settings = {
            "SLUICE_SPARK_CONF": json.dumps(configuration),
            "SLUICE_MAX_ROWS_PER_BATCH": _ROWS_PER_BATCH,
        }
        _run([sys.executable, "-m", "api.main", "run", str(workload), "--out", str(out)], settings)
        if not fresh.exists():
            raise ClassArchiveNotMade("the JVM has made no archive of its classes")
        fresh.replace(archive)
    return archive


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
    """Make the archive, and return exit code 0 even if that fails, because Sluice works without it."""
    try:
        archive = make_archive(use_java(), spark_home())
    except (SluiceError, OSError, subprocess.TimeoutExpired) as error:
        print(f"sluice: starts take 4 s longer without an archive of classes: {error}", file=sys.stderr)
        return 0
    print(f"sluice: classes archived in {archive}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
