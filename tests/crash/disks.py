"""Small file systems that can be filled, and one that turns read-only under whoever writes to it.

Mounting needs root, or the marker ``mounts`` (``tests.namespaces``). Where neither helps these tests fail;
they are never left out.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of its own.

    Attributes:
        root: Where it is mounted.
    """

    root: Path

    @property
    def ballast(self) -> Path:
        """The file that takes its space."""
        return self.root / "ballast"

    @property
    def free_bytes(self) -> int:
        """Space that may be written, bytes."""
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Take space until so much is left, or the little that others take meanwhile."""
        with self.ballast.open("ab") as file:
            while (left := self.free_bytes - leave_bytes) >= _BLOCK:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), min(left, 1 << 20))
                except OSError:  # others were faster
                    return

    def clear(self) -> None:
        """Give all the space back."""
        self.ballast.unlink(missing_ok=True)


@contextmanager
def tmpfs(root: Path, megabytes: int) -> Iterator[Disk]:
    """Mount a file system in memory."""
    root.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(root))
    try:
        yield Disk(root)
    finally:
        _run("umount", "-l", str(root))


def remount(disk: Disk, mode: str) -> None:
    """Make a file system that nobody writes to read-only ("ro") or writable ("rw")."""
    _run("mount", "-o", f"remount,{mode}", str(disk.root))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class FailingDisk(Disk):
    """An ext4 file system in a file, which can find an error and turn read-only.

    Attributes:
        image: The file.
        device: Loop device over it.
    """

    image: Path
    device: str

    def turn_read_only(self) -> None:
        """Have the kernel find an error, after which it lets nobody write, whatever is open."""
        Path("/sys/fs/ext4", Path(self.device).name, "trigger_fs_error").write_text("a test of Sluice")


@contextmanager
def ext4(root: Path, image: Path, megabytes: int) -> Iterator[FailingDisk]:
    """Mount a file system that turns read-only at an error; one that is in the image is checked before."""
    root.mkdir(exist_ok=True)
    if image.exists():
        checked = subprocess.run(["e2fsck", "-fy", image], capture_output=True, text=True, check=False)
        assert checked.returncode in (0, 1), checked.stdout  # 1: errors were mended
    else:
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", str(image))
    device = _run("losetup", "--find", "--show", str(image)).strip()
    try:
        _run("mount", "-o", "errors=remount-ro", device, str(root))
        try:
            yield FailingDisk(root, image, device)
        finally:
            _run("umount", str(root))
    finally:
        _run("losetup", "-d", device)
