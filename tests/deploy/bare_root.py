"""Bare root of Debian in which the instructions of a Containerfile are executed, as in a build.

It replaces an image builder on machines without one. The base image is made here: Debian's smallest root
with a separate Python below ``/usr/local``, like ``python:3.11-slim-bookworm``. It needs root and
``debootstrap``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.deploy.containerfile import Instruction
from tests.deploy.files import ROOT

_RELEASE = "bookworm"
#: Files copied from this machine, so that packages come from the same registries.
_REACHES = (
    "/etc/apt",
    "/etc/pip.conf",
    "/etc/xdg/pip",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt",
)


def make_base(root: Path) -> None:
    """Make the base image; raises as ``make_root`` does."""
    make_root(root, ("python3", "python3-venv"))
    enter(root, "python3 -m venv /usr/local", {})


def make_root(root: Path, packages: Sequence[str]) -> None:
    """Make a bare root with some packages of Debian, which reaches the registries of this machine.

    Raises:
        AssertionError: ``debootstrap`` is not there, or failed; its output is in the message.
    """
    assert os.geteuid() == 0, "only root may make a root; run this test as root"
    assert shutil.which("debootstrap"), "no debootstrap: apt-get install debootstrap"
    included = f"--include={','.join(('ca-certificates', *packages))}"
    _run(["debootstrap", "--variant=minbase", included, _RELEASE, str(root)])
    for path in map(Path, _REACHES):
        if path.exists():
            Path(f"{root}{path}").parent.mkdir(parents=True, exist_ok=True)
            _run(["cp", "-aTL", "--remove-destination", str(path), f"{root}{path}"])


def enter(
    root: Path,
    command: str,
    environment: Mapping[str, str],
    *,
    directory: str = "/",
    user: str = "0:0",
    writable: Sequence[str] | None = None,
) -> str:
    """Run a shell command inside a root and return its output.

    Raises:
        AssertionError: It failed; its output is in the message.
    """
    return _run(inside(root, command, environment, directory=directory, user=user, writable=writable))


def registries() -> dict[str, str]:
    """Return the variables by which package managers reach their registries."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.endswith("_proxy")
    }


def inside(
    root: Path,
    command: str,
    environment: Mapping[str, str],
    *,
    directory: str = "/",
    user: str = "0:0",
    writable: Sequence[str] | None = None,
) -> list[str]:
    """Return a command that runs a shell command inside a root; all its processes die with it.

    Args:
        root: The root.
        command: The command.
        environment: Variables, in addition to those that package managers need to reach registries.
        directory: Working directory.
        user: User and group as numbers.
        writable: The only writable directories; None: everything is writable.
    """
    path = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/tmp"}
    variables = [f"{name}={value}" for name, value in (registries() | path | dict(environment)).items()]
    shell = ["env", "-i", *variables, "sh", "-c", f"cd {shlex.quote(directory)} && {command}"]
    uid, _, gid = user.partition(":")
    entered = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *shell]
    mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
    if writable is not None:
        mounts.insert(0, f"mount --bind {root} {root}")
        mounts += [f"mount --bind {root}{place} {root}{place}" for place in writable]
        mounts.append(f"mount -o remount,bind,ro {root}")
    mounted = " && ".join([*mounts, f"exec chroot {root} {shlex.join(entered)}"])
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", mounted]


class Build:
    """Stages of a Containerfile, each in a separate root.

    Args:
        base: Base image of every stage.
        directory: An empty directory for the stages.

    Attributes:
        environment: Variables of the current stage.
        user: User of the current stage.
    """

    def __init__(self, base: Path, directory: Path) -> None:
        self._base, self._directory = base, directory
        self._stages: list[tuple[str, Path]] = []
        self._workdir = "/"
        self.environment: dict[str, str] = {}
        self.user = "0:0"

    @property
    def root(self) -> Path:
        """Root of the current stage."""
        return self._stages[-1][1]

    def carry_out(self, steps: Sequence[Instruction]) -> None:
        """Execute instructions in order.

        Raises:
            AssertionError: A RUN step failed; its output is in the message.
        """
        for step in steps:
            match step.name:
                case "FROM":
                    self._begin(step.text)
                case "ENV":
                    pairs = (pair.split("=", 1) for pair in step.text.split())
                    path = self.environment.get("PATH", "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin")
                    self.environment |= {name: value.replace("$PATH", path) for name, value in pairs}
                case "WORKDIR":
                    self._workdir = step.text
                    Path(f"{self.root}{step.text}").mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(step.text)
                case "RUN":
                    enter(self.root, step.text, self.environment, directory=self._workdir, user=self.user)
                case "USER":
                    self.user = step.text

    def _begin(self, text: str) -> None:
        _image, _, name = text.partition(" AS ")
        root = self._directory / f"stage{len(self._stages)}"
        _run(["cp", "-a", "--reflink=auto", str(self._base), str(root)])
        self._stages.append((name, root))
        self._workdir, self.environment, self.user = "/", {}, "0:0"

    def _copy(self, text: str) -> None:
        *sources, target = text.split()
        origin = ROOT
        if sources[0].startswith("--from="):
            origin = dict(self._stages)[sources.pop(0).removeprefix("--from=")]
        into = Path(f"{self.root}{Path(self._workdir) / target}")
        for source in sources:
            found = origin / source.lstrip("/")
            goal = into / found.name if target == "./" else into
            if found.is_dir():
                shutil.copytree(found, goal, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(found, goal)


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert done.returncode == 0, f"{shlex.join(command)[:500]}\n{done.stdout[-6000:]}"
    return done.stdout
