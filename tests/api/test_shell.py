"""Commands that ask a service: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from tests.api.without_engine import CQL, Service
from tests.sluice_run import Command

STREAMS = """\
streams:
  - {name: A, columns: {ts: timestamp, k: bigint}, event_time: ts, source: {type: http}}
  - {name: B, columns: {ts: timestamp, k: bigint}, event_time: ts, lateness: 5s, source: {type: http}}
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Address of a service without an engine."""
    service = Service(tmp_path / "data")
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup()
            ready.set()

    server = Server(uvicorn.Config(service.app, port=0, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    assert ready.wait(60)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
    service.close()


def test_a_shell_gets_tables_and_a_program_gets_json(sluice: Command, url: str, tmp_path: Path) -> None:
    def said(*words: str) -> str:
        done = sluice(*words, "--url", url)
        assert (done.returncode, done.stderr) == (0, "")
        assert max(map(len, done.stdout.splitlines()), default=0) <= 100 or words[-1] in ("--json", "json")
        return done.stdout

    file = tmp_path / "streams.yaml"
    file.write_text(STREAMS)
    assert "event_time ts lateness 5s " in " ".join(said("stream", "add", str(file)).split())
    assert said("stream", "list").splitlines() == [
        "NAME  SOURCE  EVENT TIME  LATENESS  IDLE AFTER  COLUMNS",
        "A     http    ts          0s        -           ts timestamp, k bigint",
        "B     http    ts          5s        -           ts timestamp, k bigint",
    ]
    assert [json.loads(line)["name"] for line in said("stream", "list", "--json").splitlines()] == ["A", "B"]
    assert "observed pending " in " ".join(said("query", "add", "q1", CQL).split())
    head, row = said("query", "list").splitlines()
    assert head == "NAME  STATE    RESULTS  SINK  WINDOW A  WINDOW B  QUERY"
    assert row.startswith("q1    pending  0        -     10s       10s       SELECT A.k FROM A [RANGE ")
    assert row.endswith("…")
    assert "a.window 10s " in " ".join(said("query", "show", "q1").split())
    assert json.loads(said("query", "show", "q1", "--json"))["a"]["window"] == "10s"
    assert said("plan").startswith("family A.k = B.k\n  slice 1 [0s, 10s)  queries q1\n")
    assert said("plan") == said("plan", "--format", "text")
    assert json.loads(said("plan", "--format", "json"))["version"] == 1
    assert said("top", "--once").splitlines()[-1] == "q1     pending          -        0  10s, 10s  -       -"
    assert json.loads(said("top", "--once", "--json"))["queries"][0]["windows"] == ["10s", "10s"]


def test_shells_complete_commands() -> None:
    beside = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def said(program: list[str], **variables: str) -> str:
        return subprocess.run(
            program, env=beside | variables, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    asked = """
        eval "$(_SLUICE_COMPLETE=source_bash sluice)"
        COMP_WORDS=(sluice query re)
        COMP_CWORD=2
        _sluice_completion sluice
        echo "${COMPREPLY[@]}"
    """
    assert said(["bash", "-c", asked]).split() == ["resume", "remove", "results"]
    typed = {"_TYPER_COMPLETE_ARGS": "sluice query res", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for shell in ("zsh", "fish"):
        offered = said(["sluice"], _SLUICE_COMPLETE=f"complete_{shell}", **typed)
        assert "resume" in offered
        assert "results" in offered
        assert "remove" not in offered


def test_the_version_is_that_of_the_package(sluice: Command) -> None:
    from importlib.metadata import version

    done = sluice("--version")
    assert (done.returncode, done.stdout) == (0, f"sluice {version('sluice')}\n")


@pytest.mark.parametrize(
    ("command", "defaults"),
    [
        ("serve", ["./sluice-data", "127.0.0.1", "8080", "all", "cores", "INFO"]),
        ("engine", ["./sluice-data", "127.0.0.1", "8081", "all", "cores", "INFO"]),
        ("run", ["per-query", "all", "cores", "INFO"]),
        ("plan", ["text", "calibrated", "http://127.0.0.1:8080"]),
    ],
)
def test_help_says_the_defaults(
    sluice: Command, monkeypatch: pytest.MonkeyPatch, command: str, defaults: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    done = sluice(command, "--help")

    words = " ".join(done.stdout.replace("│", " ").split())
    assert [
        default
        for default in defaults
        if f"default: {default}]" not in words.replace("(", "").replace(")", "")
    ] == []
    assert max(map(len, done.stdout.splitlines())) <= 100
