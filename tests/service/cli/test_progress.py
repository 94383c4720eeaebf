"""Progress bar of a run: only on a terminal, gone at its end, with log lines above it."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
from collections.abc import Iterator

import pytest
import typer

from catalog.errors import Unavailable
from service.cli.progress import described, show_work, watch_run
from service.log import setup_logging
from service.workspace.bounded_run import RunProgress

#: A test fails if it waits longer than this for the bar, s.
PATIENCE_S = 120


class Terminal(io.StringIO):
    """Terminal that keeps its output."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    opened = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    yield opened
    root.handlers[:] = handlers
    root.setLevel(level)


def test_without_a_terminal_nothing_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    def look() -> RunProgress:
        raise AssertionError("nobody sees it")

    before = threading.active_count()
    with watch_run(look):
        assert threading.active_count() == before
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_how_far_the_run_is_below_its_log(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)  # here, as pytest has its own again after fixtures
    monkeypatch.setattr("service.cli.progress._LOOK_S", 0.01)
    setup_logging()
    looks = iter([Unavailable("the catalog is busy"), RunProgress(0, 0, 80), RunProgress(20, 1, 80)])
    shown = threading.Event()

    def look() -> RunProgress:
        found = next(looks, None)
        if found is None:
            shown.set()  # what came before is drawn
            return RunProgress(20, 1, 80)
        if isinstance(found, Unavailable):
            raise found
        return found

    with watch_run(look):
        assert shown.wait(PATIENCE_S)
        logging.getLogger("service.engine.engine").info("engine running")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "starting" in text
    assert "20 of 80 rows" in text
    assert " 25%" in text
    assert any(
        line.strip().endswith("INFO service.engine.engine engine running") for line in text.split("\n")
    )
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_a_terminal_shows_what_a_command_does_and_the_output_stays_apart(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    with show_work("copying to backups/[monday]"):
        typer.echo("12 files copied")
    assert "copying to backups/[monday] 0:00:0" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert capsys.readouterr().out == "12 files copied\n"


def test_without_a_terminal_a_command_shows_its_output_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with show_work("copying to backups"):
        typer.echo("12 files copied")
    assert capsys.readouterr() == ("12 files copied\n", "")


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (RunProgress(0, 0, 80), "starting"),
        (RunProgress(1_234_567, 3, 8_000_000), "1,234,567 of 8,000,000 rows"),
        (RunProgress(1_234_567, 3, None), "1,234,567 rows"),
    ],
)
def test_progress_in_words(progress: RunProgress, words: str) -> None:
    assert described(progress) == words
