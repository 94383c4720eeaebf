"""Archive of Spark's classes, made by `make setup` so that the JVM starts fast (class data sharing, JEP 350).

    share/sluice/classes-<digest of Java and PySpark>.jsa     20,000 parsed classes, loaded by a small run

The first result of a cold start comes after 8.5 s with the archive, and after 12.5 s without it. The JVM
compares its jars with the jars of the archive, and starts without the archive if they differ.
``python -m service.jvm.make_class_archive`` makes the archive.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from service.config.settings import SparkSettings

#: Directory in which archives are stored.
DIRECTORY = Path(sys.prefix) / "share" / "sluice"
#: Option that enables Java's Flight Recorder. In Java 17, the recorder ends a JVM that loads a class from an
#: archive.
RECORDER = "FlightRecord"


def spark_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory from which Spark is started: ``SPARK_HOME`` or, if not set, PySpark's."""
    return Path(environment.get("SPARK_HOME") or packaged_home())


def archive_options(archive: Path, spark: SparkSettings, environment: Mapping[str, str] = os.environ) -> str:
    """Return the JVM option to use an archive, in Spark's syntax, or an empty text if it cannot be used."""
    options = " ".join([*spark.conf.values(), environment.get("JAVA_TOOL_OPTIONS", "")])
    return f'"-XX:SharedArchiveFile={archive}"' if archive.exists() and RECORDER not in options else ""


def archive_file(java_home: Path, home: Path, directory: Path = DIRECTORY) -> Path:
    """Return the path of the archive for a Java and a Spark. The archive need not exist.

    The JVM accepts an archive only if paths, sizes and times of all jars are as when the archive was made. So
    the archive's name contains a digest of them.
    """
    release = java_home / "release"
    facts = [str(java_home), release.read_text() if release.exists() else ""]
    for jar in sorted((home / "jars").iterdir()):
        stat = jar.stat()
        facts.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    return directory / f"classes-{hashlib.sha256('|'.join(facts).encode()).hexdigest()[:16]}.jsa"


def packaged_home() -> Path:
    """Return the directory of the installed PySpark, without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None  # a dependency of this package
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])
