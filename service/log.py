"""Logging: one line per event, a lower-case fragment plus fields.

``logging.getLogger(__name__).info("plan activated", extra={"plan_version": 7})`` prints
``2026-01-31 12:00:01 INFO service.engine plan activated plan_version=7``, or one JSON object with the fields
as keys. A field whose name is already an attribute of log records is passed through ``fields``. A warning
that is repeated word for word, for example at each attempt to reach a database that is down, is written once
a minute.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from catalog.wording.outside import printable

#: Loggers that are too verbose at INFO.
QUIET = ("alembic", "httpx", "httpcore", "asyncio", "numba")
#: py4j logs every exception of a callback with both stack traces, even while a batch is being stopped, and
#: every command that a dead JVM does not answer. The engine itself reports a failure of the job.
SILENT = ("py4j",)
#: Seconds after a warning during which identical warnings are dropped.
REPEAT_S = 60.0
#: Most characters of a field or of a line of an exception; a text from outside may have megabytes.
_MOST = 10_000

#: Attributes that every record has (uvicorn sets the last one). A caller passed all others as ``extra``.
_OF_EVERY_RECORD = {
    *logging.LogRecord("", 0, "", 0, "", (), None).__dict__,
    *("message", "asctime", "taskName", "color_message"),
}


def fields(**values: object) -> dict[str, dict[str, object]]:
    """Return the ``extra`` argument that carries fields into a log line."""
    return {"fields": values}


def setup_logging(level: str = "INFO", form: str = "text") -> None:
    """Send every log line to stderr; called once, by the command line or the service.

    Args:
        level: Lowest level that is logged.
        form: ``text`` or ``json``.
    """
    handler = _ToStderr()
    handler.addFilter(_is_not_of_py4j)
    handler.addFilter(_Repeats())
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    for name in SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)


class _ToStderr(logging.StreamHandler[TextIO]):
    """Handler that looks up ``sys.stderr`` for each line, since a progress bar replaces ``sys.stderr``."""

    @property
    def stream(self) -> TextIO:
        """Stream that lines are written to."""
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        """Ignore the stream that the base class sets."""


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return False for lines that py4j writes to the root logger instead of its own logger."""
    return not (record.name == "root" and Path(record.pathname).parent.name == "py4j")


class _Repeats(logging.Filter):
    """Filter that drops warnings repeated within a minute; the next one that is written has their number."""

    def __init__(self) -> None:
        super().__init__()
        #: For each line: when it was written, and how many equal lines were dropped since then; newest last.
        self._written: dict[str, tuple[float, int]] = {}
        # The filter needs its own lock, because handlers call filters before they take their lock.
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is to be written."""
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        line = f"{record.name} {record.getMessage()} {_fields_of(record)}"
        with self._lock:
            written_s, dropped = self._written.get(line, (-REPEAT_S, 0))
            if record.created - written_s < REPEAT_S:
                self._written[line] = (written_s, dropped + 1)
                return False
            self._written.pop(line, None)
            self._written[line] = (record.created, 0)
            while next(iter(self._written.values()))[0] <= record.created - REPEAT_S:
                del self._written[next(iter(self._written))]
        if dropped:
            record.repeated = dropped
        return True


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    own = {name: value for name, value in record.__dict__.items() if name not in _OF_EVERY_RECORD}
    values = own.pop("fields", {})
    return own | values if isinstance(values, dict) else own


def _one_line(text: str) -> str:
    """Return a text whose control characters, which could begin a line of their own, are escaped."""
    return printable(text, _MOST)


def _lines(text: str) -> str:
    return "\n".join(printable(line, _MOST) for line in text.split("\n"))


def _whole(value: object) -> object:
    """Return a text without halves of surrogate pairs, which readers of JSON refuse."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


class _TextLines(logging.Formatter):
    """Date, time, level, logger, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M:%S")
        line = f"{clock} {record.levelname} {record.name} {_one_line(record.getMessage())}"
        line += "".join(f" {name}={_one_line(str(value))}" for name, value in _fields_of(record).items())
        return f"{line}\n{_lines(self.formatException(record.exc_info))}" if record.exc_info else line


class _JsonLines(logging.Formatter):
    """One JSON object per event."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "event": _whole(record.getMessage()),
            **{name: _whole(value) for name, value in _fields_of(record).items()},
        }
        if record.exc_info:
            document["exception"] = _whole(self.formatException(record.exc_info))
        return json.dumps(document, default=str)
