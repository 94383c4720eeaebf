"""What Spark starts as Python is run by a child of the fork server, which nobody outside can tell."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from service.jvm import python_launcher
from service.jvm.python_launcher import FORK_SERVER
from tests.waiting import until

#: What a module says of the process that runs it.
TELLS = """
import json, os, sys
facts = {
    "arguments": sys.argv[1:],
    "cwd": os.getcwd(),
    "heard": sys.stdin.read(),
    "loaded": "numba" in sys.modules,
    "main": __name__,
    "variable": os.environ.get("A_VARIABLE"),
}
print(json.dumps(facts))
print("aside", file=sys.stderr)
"""
PATIENCE_S = 120.0


@dataclass
class Server:
    """A fork server, and what it takes to ask it."""

    process: subprocess.Popen[bytes]
    address: Path
    modules: Path

    def start(self, *arguments: str, address: Path | None = None) -> subprocess.Popen[str]:
        """Start the launcher as Spark does."""
        command = [sys.executable, "-I", "-S", str(python_launcher.__file__), sys.executable, *arguments]
        environment = {
            **os.environ,
            "A_VARIABLE": "is there",
            "PYTHONPATH": str(self.modules),
            FORK_SERVER: str(address or self.address),
        }
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=self.modules, text=True
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("fork")
    address, modules = root / "server", root / "modules"
    modules.mkdir()
    (modules / "tells.py").write_text(TELLS)
    (modules / "waits.py").write_text("import time\nprint('waiting', flush=True)\ntime.sleep(600)\n")
    (modules / "fails.py").write_text("raise SystemExit('it cannot')\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "service.job.workers.fork_server", str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), os.getcwd()])},
        )
    yield Server(process, address, modules)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 0


def test_a_child_has_pipes_environment_directory_and_arguments_of_what_was_started(server: Server) -> None:
    out, aside = server.start("-m", "tells", "a", "b c").communicate("said to it", PATIENCE_S)

    assert json.loads(out) == {
        "arguments": ["a", "b c"],
        "cwd": str(server.modules),
        "heard": "said to it",
        "loaded": True,
        "main": "__main__",
        "variable": "is there",
    }
    assert aside == "aside\n"


def test_without_a_server_the_interpreter_does_the_same(server: Server, tmp_path: Path) -> None:
    alone = server.start("-m", "tells", "a", address=tmp_path / "nobody")
    out, aside = alone.communicate("said", PATIENCE_S)

    facts = json.loads(out)
    assert (facts["arguments"], facts["heard"], facts["variable"]) == (["a"], "said", "is there")
    assert not facts["loaded"]
    assert aside == "aside\n"


def test_what_is_no_module_is_left_to_the_interpreter(server: Server) -> None:
    out, _ = server.start("-c", "print(6 * 7)").communicate(timeout=PATIENCE_S)

    assert out == "42\n"


def test_children_run_side_by_side_and_end_with_what_stands_for_them(server: Server) -> None:
    both = [server.start("-m", "waits") for _ in range(2)]
    for launcher in both:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "waiting\n"
    children = psutil.Process(server.process.pid).children()
    assert sorted(child.name() for child in children) == ["waits", "waits"]

    for launcher in both:
        launcher.send_signal(signal.SIGTERM)
    for launcher in both:
        launcher.communicate(timeout=PATIENCE_S)
    until(lambda: not any(child.is_running() for child in children))


def test_what_a_child_fails_with_is_said_where_it_would_have_been(server: Server) -> None:
    launcher = server.start("-m", "fails")
    _, aside = launcher.communicate(timeout=PATIENCE_S)

    assert (launcher.returncode, aside) == (1, "it cannot\n")
    assert server.process.poll() is None


def test_a_child_may_have_ended_before_anybody_looks(server: Server, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        launcher = server.start("-m", "fails", address=tmp_path / "s")
        asking, _ = listener.accept()
        with asking:
            _, pipes, _, _ = socket.recv_fds(asking, 1 << 16, 3)
            for pipe in pipes:
                os.close(pipe)
            # Process id and status come as one.
            asking.sendall((1 << 22).to_bytes(python_launcher.PID_BYTES, "big") + bytes([7]))
            _, aside = launcher.communicate(timeout=PATIENCE_S)
    assert (launcher.returncode, aside) == (7, "")
