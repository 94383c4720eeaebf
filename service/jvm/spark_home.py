"""The Spark home that `make setup` prepares for a quick start; PySpark's own directory does without it.

    share/sluice/spark-<digest of Java and PySpark>/
        bin, conf, jars, sbin   links into PySpark's directory
        classes.jsa             the 20,000 classes that Spark loads for our job, parsed: class data sharing

There is no ``python``: Spark puts the zip files of sources in it in front of the path of each Python process
it starts, and Python compiles what it imports from a zip file in every process anew.
Invariant: another Java or PySpark has another digest, so an upgrade finds no home and takes PySpark's own.
``python -m service.jvm.make_spark_home`` prepares it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from service.config.settings import SparkSettings

#: Where prepared homes are.
DIRECTORY = Path(sys.prefix) / "share" / "sluice"
ARCHIVE = "classes.jsa"
#: Named in its options: Java 17's Flight Recorder ends the JVM when it loads a class from an archive.
RECORDER = "FlightRecord"
_LINKED = ("bin", "conf", "jars", "sbin")


def spark_home(master: str, java_home: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home to start Spark from.

    Args:
        master: Spark master. A cluster may ship the zip files to its machines, so only a local Spark starts
            from a prepared home.
        java_home: Home of the Java.
        environment: ``SPARK_HOME`` in it is taken as it is.
    """
    if given := environment.get("SPARK_HOME"):
        return Path(given)
    prepared = prepared_home(java_home, packaged_home())
    return prepared if master.startswith("local") and prepared.is_dir() else packaged_home()


def archive_options(home: Path, spark: SparkSettings, environment: Mapping[str, str] = os.environ) -> str:
    """Return the option with which a JVM uses its home's archive, as Spark reads options; empty if none."""
    options = " ".join([*spark.conf.values(), environment.get("JAVA_TOOL_OPTIONS", "")])
    archive = home / ARCHIVE
    return f'"-XX:SharedArchiveFile={archive}"' if archive.exists() and RECORDER not in options else ""


def prepared_home(java_home: Path, packaged: Path, directory: Path = DIRECTORY) -> Path:
    """Return where the prepared home of a Java and a PySpark is, or would be.

    The JVM compares paths, sizes and times of all jars with those of the dump; so does the name.
    """
    release = java_home / "release"
    facts = [str(java_home), release.read_text() if release.exists() else "", str(packaged)]
    for jar in sorted((packaged / "jars").iterdir()):
        stat = jar.stat()
        facts.append(f"{jar.name} {stat.st_size} {stat.st_mtime_ns}")
    return directory / f"spark-{hashlib.sha256('|'.join(facts).encode()).hexdigest()[:16]}"


def packaged_home() -> Path:
    """Return the directory of the installed PySpark, which is not imported for it."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None  # a dependency of this package
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def link_home(packaged: Path, home: Path) -> Path:
    """Make a home of links into another one and return it."""
    home.mkdir(parents=True)
    for name in _LINKED:
        if (packaged / name).exists():
            (home / name).symlink_to(packaged / name)
    return home
