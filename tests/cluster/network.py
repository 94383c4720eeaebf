"""Hosts and the switch between them, as the tests see them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any, Self

import psutil

_NETWORK = "10.23.0"
_REPOSITORY = Path(__file__).parents[2]
_APART = ("--mount", "--net", "--pid", "--uts", "--ipc")


class Refused(AssertionError):
    """This machine does not let a process have namespaces of its own."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host.

    Attributes:
        name: Its name, which all others know.
        address: Its address.
        disk: Its disk, as this process sees it; the host has it at ``/mnt``.
        pid: Its first process.
    """

    name: str
    address: str
    disk: Path
    pid: int

    @property
    def below(self) -> list[str]:
        """Return what a command has to begin with to run on the host."""
        return ["nsenter", f"--target={self.pid}", *_APART, "--wd=/mnt", "--"]

    def processes(self, of: str) -> list[psutil.Process]:
        """Return the host's processes whose command line has some text in it."""
        here, found = os.readlink(f"/proc/{self.pid}/ns/pid"), []
        for process in psutil.process_iter():
            # Some end while they are looked at, and process 1 may not be looked at.
            with suppress(OSError, psutil.NoSuchProcess):
                if os.readlink(f"/proc/{process.pid}/ns/pid") == here and any(
                    of in w for w in process.cmdline()
                ):
                    found.append(process)
        return found


class Network:
    """A switch, and the hosts that are plugged into it; a context manager that ends all.

    Args:
        directory: Where logs and disks are.
        names: Names that hosts may have.

    Attributes:
        addresses: The address of each of these.
        hosts: The hosts that run, by name.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self._directory = directory
        self.addresses = {name: f"{_NETWORK}.{n}" for n, name in enumerate(names, start=2)}
        self._hosts_file = directory / "hosts"
        known = {"localhost": "127.0.0.1"} | self.addresses
        self._hosts_file.write_text("".join(f"{address} {name}\n" for name, address in known.items()))
        self._inits: list[Popen[str]] = []
        self._programs: list[Popen[Any]] = []
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        with ExitStack() as failing:
            failing.push(self)
            self._switch = self._begin([], "switch", f"{_NETWORK}.1")
            failing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        # An input that ends ends all that is in the namespaces.
        for process in (*reversed(self._inits), *self._programs):
            process.communicate()

    def add(self, name: str, shared: Path | None = None) -> Host:
        """Start a host and plug it in.

        Args:
            name: One of the names.
            shared: A directory that it shares with others.
        """
        disk = self._directory / name
        disk.mkdir()
        apart = ["unshare", *_APART, "--fork", "--mount-proc", "--kill-child"]
        given = [name, str(disk), str(self._hosts_file), *([] if shared is None else [str(shared)])]
        init = self._begin(apart, "host", *given)
        (first,) = psutil.Process(init.pid).children()
        host = self.hosts[name] = Host(name, self.addresses[name], disk, first.pid)
        self._tell("plug", name, first.pid, host.address)
        return host

    def start(
        self, host: Host, command: Sequence[str], environment: Mapping[str, str], **options: Any
    ) -> Popen[Any]:
        """Start a program on a host, which ends it."""
        with (self._directory / f"{host.name}.log").open("ab") as output:
            options = {"stdout": output, "stderr": output} | options
            program = Popen([*host.below, *command], env=os.environ | dict(environment), **options)
        self._programs.append(program)
        return program

    def cut(self, host: Host) -> None:
        """Take a host's cable out; its programs go on."""
        self._tell("cut", host.name)

    def mend(self, host: Host) -> None:
        """Put a host's cable back."""
        self._tell("mend", host.name)

    def relay(self, host: Host, port: int) -> int:
        """Return a port of this machine that leads to one of the host's."""
        return int(self._tell("relay", host.name, port))

    def _tell(self, *words: object) -> str:
        assert self._switch.stdin is not None
        self._switch.stdin.write(" ".join(map(str, words)) + "\n")
        self._switch.stdin.flush()
        return _line(self._switch, "switch")

    def _begin(self, below: Sequence[str], module: str, *arguments: str) -> Popen[str]:
        command = [*below, sys.executable, "-m", f"tests.cluster.{module}", *arguments]
        log = self._directory / f"{module}.log"
        with log.open("ab") as output:
            init = Popen(
                command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=output,
                text=True,
                cwd=_REPOSITORY,
                start_new_session=True,
            )
        self._inits.append(init)
        if _line(init, module) != "ready":
            raise Refused(f"no namespaces here (root is needed, and CAP_SYS_ADMIN): {log.read_text()}")
        return init


def _line(process: Popen[str], name: str) -> str:
    output: IO[str] | None = process.stdout
    assert output is not None
    return output.readline().strip()
