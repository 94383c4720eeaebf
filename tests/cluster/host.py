"""The first process of a host, in namespaces of its own: gives it its disk, and reaps until its input ends.

/mnt            the host's own disk, as is /tmp
/mnt/shared     a directory that it shares with other hosts, where it has one
all else        read-only: the system, and the application with its packages
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

#: File systems of the kernel, which are not a place for files.
_KERNEL = {"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "hugetlbfs", "debugfs"}
_TMPFS = "tmpfs"
#: The repository, with the packages that it has installed.
APPLICATION = Path(__file__).resolve().parents[2]


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def _make_read_only() -> None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        place, kind = fields[4], fields[fields.index("-") + 1]
        if kind not in _KERNEL and not place.startswith(("/proc", "/sys", "/dev", "/mnt")):
            _mount("-o", "remount,bind,ro", place)


def prepare(name: str, disk: Path, hosts: Path, shared: Path | None) -> None:
    """Give the host its name, its disk, and a read-only view of everything else."""
    socket.sethostname(name)
    for directory in ("tmp", "data", "home"):
        (disk / directory).mkdir(exist_ok=True)
    (disk / "tmp").chmod(0o1777)
    _mount("--bind", disk, "/mnt")
    if shared is not None:
        Path("/mnt/shared").mkdir(exist_ok=True)
        _mount("--bind", shared, "/mnt/shared")
    _mount("--bind", hosts, "/etc/hosts")
    _make_read_only()
    if APPLICATION.is_relative_to("/tmp"):
        # Seen below the host's own /tmp as below the machine's.
        place = Path("/mnt") / APPLICATION.relative_to("/")
        place.mkdir(parents=True, exist_ok=True)
        _mount("--bind", APPLICATION, place)
        _mount("-o", "remount,bind,ro", place)
    _mount("--rbind", "/mnt/tmp", "/tmp")
    _mount("-t", _TMPFS, _TMPFS, "/dev/shm")


def _reap() -> None:
    while True:
        with suppress(ChildProcessError):
            os.wait()
            continue
        time.sleep(0.2)


def main() -> None:
    name, disk, hosts, *shared = sys.argv[1:]
    prepare(name, Path(disk), Path(hosts), Path(shared[0]) if shared else None)
    threading.Thread(target=_reap, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
