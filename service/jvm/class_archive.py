"""An archive of the classes that Spark loads for our job, so that its JVM maps them instead of parsing them.

The JVM loads some 20,000 classes before the first result and spends half of its start on that. An archive
of them (class data sharing, Java 17 and newer) holds for one Java and one Spark: its name is a digest of
both, so that an upgrade finds none. A JVM that cannot use the one it is given starts as it does without.
``python -m service.jvm.make_class_archive`` makes it.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

#: Where archives are, beside the homes of Spark and Java that Sluice makes.
DIRECTORY = Path(sys.prefix) / "share" / "sluice" / "classes"


def archive_options(java_home: Path, home: Path, directory: Path = DIRECTORY) -> str:
    """Return the option with which a JVM uses its archive, as Spark reads options; empty if there is none.

    Args:
        java_home: Home of the Java.
        home: Home of Spark.
        directory: Where archives are.
    """
    archive = archive_path(java_home, home, directory)
    return f'"-XX:SharedArchiveFile={archive}"' if archive.exists() else ""


def archive_path(java_home: Path, home: Path, directory: Path = DIRECTORY) -> Path:
    """Return where the archive of a Java and a Spark is, or would be.

    The JVM compares paths, sizes and times of all jars with those of the dump; so does the name.
    """
    release = java_home / "release"
    facts = [str(java_home), release.read_text() if release.exists() else "", str(home)]
    for jar in sorted((home / "jars").iterdir()):
        stat = jar.stat()
        facts.append(f"{jar.name} {stat.st_size} {stat.st_mtime_ns}")
    return directory / f"{hashlib.sha256('|'.join(facts).encode()).hexdigest()[:16]}.jsa"
