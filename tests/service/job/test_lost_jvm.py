"""The engine reports the end of a JVM in one line, and PySpark prints no traceback."""

from __future__ import annotations

import socketserver
from types import SimpleNamespace

import pytest

from service.job.job import _tell_no_end_of_jvm


def test_a_lost_connection_of_accumulators_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        _tell_no_end_of_jvm(SimpleNamespace(_accumulatorServer=server))
        try:
            raise EOFError
        except EOFError:
            server.handle_error(None, None)
    assert capsys.readouterr() == ("", "")
