"""A Debian in which systemd is the first process, as on a server: its own files, processes and network."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_BOOT_S = 120
_SPAWN = ("systemd-nspawn", "--quiet", "--register=no", "--keep-unit")
_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"


def install(root: Path, script: str, environment: dict[str, str]) -> str:
    """Run a shell script inside a root that is not booted, with this machine's network; return its output.

    Raises:
        AssertionError: It failed; its output is in the message.
    """
    assert shutil.which("systemd-nspawn"), "no systemd-nspawn: apt-get install systemd-container"
    given = [f"--setenv={name}={value}" for name, value in environment.items()]
    command = [*_SPAWN, "--pipe", f"--directory={root}", *given, "/bin/sh", "-exc", script]
    return _output(command)


@contextmanager
def booted(root: Path) -> Iterator[int]:
    """Boot a root with a network of its own; give the id of its first process."""
    command = [*_SPAWN, "--boot", "--private-network", f"--directory={root}"]
    with (root.parent / "boot.log").open("wb") as log:
        spawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _BOOT_S
        while not (children := psutil.Process(spawn.pid).children()):
            assert spawn.poll() is None, "systemd did not start"
            assert time.monotonic() < deadline, "systemd did not start"
            time.sleep(0.1)
        (leader,) = children
        while not _is_up(leader.pid):
            assert time.monotonic() < deadline, "systemd did not come up"
            time.sleep(0.5)
        yield leader.pid
    finally:
        spawn.terminate()  # it powers off
        spawn.wait(_BOOT_S)


def _is_up(leader: int) -> bool:
    try:
        return run_in(leader, "systemctl is-system-running || true").strip() in ("running", "degraded")
    except AssertionError:
        return False


def run_in(leader: int, command: str) -> str:
    """Run a shell command on the machine whose first process is given; return its output.

    Raises:
        AssertionError: It failed; its output is in the message.
    """
    spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd")
    entered = [
        "nsenter",
        f"--target={leader}",
        *spaces,
        "env",
        "-i",
        _PATH,
        "HOME=/root",
        "sh",
        "-c",
        command,
    ]
    return _output(entered)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout
