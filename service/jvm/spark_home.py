"""Where Spark is started from: PySpark's directory, but without the archives of its Python sources.

Spark puts ``python/lib/pyspark.zip`` and py4j's archive in front of the path of every Python process that it
starts. Both are installed as packages, too; but what Python imports from an archive it compiles anew in each
process, 0.5 s of CPU time, and a start takes seven processes. In a home without the archives they import what
is installed.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)

#: What Spark looks for in its home, if it is there; ``python`` is left out.
_LINKED = ("bin", "conf", "jars", "sbin")


def spark_home(master: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home to start Spark from.

    Args:
        master: Spark master. Clusters may ship the archives to their machines, so only a local one does
            without them.
        environment: ``SPARK_HOME`` in it is taken as it is.
    """
    if given := environment.get("SPARK_HOME"):
        return Path(given)
    packaged = packaged_home()
    if not master.startswith("local"):
        return packaged
    try:
        return link_home(packaged, Path(sys.prefix) / "share" / "sluice" / "spark")
    except OSError as error:
        log.debug("Spark starts from its package: %s", error)  # slower, nothing else
        return packaged


def packaged_home() -> Path:
    """Return the directory of the installed PySpark, which is not imported for it."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None  # a dependency of this package
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def link_home(packaged: Path, home: Path) -> Path:
    """Make a home of links into another one, or mend it, and return it.

    Args:
        packaged: The home to link to.
        home: Where to make the links.

    Raises:
        OSError: Nothing can be made there.
    """
    for name in _LINKED:
        target, link = packaged / name, home / name
        if not target.exists() or (link.is_symlink() and os.readlink(link) == str(target)):
            continue
        home.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f"{name}.{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(link)  # two processes may do this at once
    return home
