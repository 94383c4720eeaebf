"""Leftovers of tests are found, each by its name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.leftovers import Leftovers


def test_each_kind_of_thing_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, elsewhere = tmp_path / "scratch", tmp_path / "elsewhere"
    directory.mkdir()
    elsewhere.mkdir()
    looking = Leftovers(directory)
    before = looking.look()
    assert looking.since(before, limit_s=0.0) == []

    ended = threading.Event()
    with ExitStack() as stack:
        sleeping = [sys.executable, "-c", "input()"]
        process = stack.enter_context(subprocess.Popen(sleeping, stdin=subprocess.PIPE))
        stack.callback(process.kill)
        thread = threading.Thread(target=ended.wait, name="a thread")
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context((elsewhere / "open").open("w"))
        (directory / "left.txt").touch()
        monkeypatch.setenv("A_VARIABLE", "set")
        monkeypatch.chdir(elsewhere)
        found = looking.since(before, limit_s=0.0)

    told = "\n".join(found)
    assert f"process {sys.executable} -c input()" in told
    assert "thread a thread" in told
    assert "socket socket:[" in told
    assert f"open file {elsewhere / 'open'}" in told
    assert f"file {directory / 'left.txt'}" in told
    assert "variable A_VARIABLE: 'set' instead of None" in told
    assert f"setting working directory: '{elsewhere}' instead of" in told
    assert len(found) == 7

    monkeypatch.undo()
    os.remove(directory / "left.txt")
    assert looking.since(before, limit_s=0.0) == []


def test_what_fixtures_of_wider_scopes_make_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Leftovers(tmp_path)
    before = looking.look()
    (tmp_path / "of the session").touch()
    looking.keep_since(before)
    assert looking.since(before, limit_s=0.0) == []
