"""The replay: files appear in the demo's inbox at the pace of the recorded year."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.demo.data import DAY_US, MINUTE_US, ReplayedTables, ReplayStep, steps, write_step

#: Event time per file if everything is written at once: a week.
WEEK_US = 7 * DAY_US


class Replay:
    """Writes the steps of all streams into an inbox.

    Args:
        tables: The streams.
        inbox: Directory of the streams' directories.
        step_us: Event time per file, µs.
        speed: Seconds of event time replayed per second; None writes everything at once.
    """

    def __init__(self, tables: ReplayedTables, inbox: Path, step_us: int, speed: float | None) -> None:
        self._tables = tables
        self._inbox = inbox
        self._step_us = step_us
        self._speed = speed
        self._stop = threading.Event()
        self._error: OSError | None = None

    def write(self) -> None:
        """Write all missing steps at the given speed, until the last step or until ``running`` ends."""
        began_s = time.monotonic()
        began_us: int | None = None
        for step in steps(self._tables, self._step_us):
            if self._written(step):  # Written by the earlier run that this run continues.
                continue
            if began_us is None:
                began_us = step.end_us
            if self._speed is not None:
                due_s = began_s + (step.end_us - began_us) / 1_000_000 / self._speed
                self._stop.wait(max(due_s - time.monotonic(), 0.0))
            if self._stop.is_set():
                return
            write_step(step, self._inbox)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Replay in a thread as long as the block runs."""
        thread = threading.Thread(target=self._run, name="replay")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def check(self) -> None:
        """Raise the error of the replay, if any.

        Raises:
            OSError: A file could not be written.
        """
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.write()
        except OSError as error:
            self._error = error

    def _written(self, step: ReplayStep) -> bool:
        return all((self._inbox / name / step.file_name).exists() for name in step.tables)


def step_length_us(speed: float | None) -> int:
    """Return the event time per file: about a second of replay, in whole minutes, at most a week.

    >>> step_length_us(86_400), step_length_us(1), step_length_us(None) == WEEK_US
    (86400000000, 60000000, True)
    """
    if speed is None:
        return WEEK_US
    minutes = round(speed * 1_000_000 / MINUTE_US)
    return min(max(minutes, 1) * MINUTE_US, WEEK_US)


def kept_step_length_us(root: Path, speed: float | None) -> int:
    """Return the event time per file of the demo in ``root``; a continued demo keeps its first value."""
    note = root / "demo.json"
    try:
        return int(json.loads(note.read_text())["step_us"])
    except FileNotFoundError:
        step_us = step_length_us(speed)
        note.write_text(json.dumps({"step_us": step_us}))
        return step_us
