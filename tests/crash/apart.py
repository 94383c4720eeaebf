"""API and engine apart: several processes of each on one catalog and one data directory."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import httpx
import psutil

from tests.api.running_service import RunningService, default_settings, free_port
from tests.crash.posting import STOPPED_S
from tests.waiting import until

#: An engine that dies is replaced within so long where others keep the machine busy; it takes at most 15 s
#: where they do not, of which the expiry of the lease is 8.
TAKEOVER_S = 60.0
_STEP_S = 0.02
#: Needs root, as tests that mount do.
_CONTAINED = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Apart:
    """Two API processes and two engines; a context manager that ends all.

    Args:
        directory: Where everything is kept.
        catalog_url: Catalog elsewhere than in the data directory, or None.
        apart_engines: Whether each engine has processes of its own and sees no others, as in a container.

    Attributes:
        apis: The API processes.
        engines: The engines; the first one that was at work stands first.
    """

    def __init__(
        self, directory: Path, catalog_url: str | None = None, *, apart_engines: bool = False
    ) -> None:
        self.data_dir = directory / "data"
        self._below = _CONTAINED if apart_engines else ()
        self._directory, self._url = directory, catalog_url
        self._ending = ExitStack()
        self._started = 0

    def __enter__(self) -> Self:
        with ExitStack() as failing:
            failing.push(self._ending)
            # All at once, as a cluster starts them.
            self.apis = [self._start("api") for _ in range(2)]
            engines = [self._start("engine") for _ in range(2)]
            for process in (*self.apis, *engines):
                process.__enter__()
            until_s = time.monotonic() + STOPPED_S
            while sorted(states := [ready(engine) for engine in engines]) != ["ok", "standby"]:
                assert time.monotonic() < until_s, f"{states}\n{self.told()}"
                time.sleep(_STEP_S)
            self.engines = sorted(engines, key=lambda engine: states[engines.index(engine)] != "ok")
            failing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def _start(self, part: str) -> RunningService:
        self._started += 1
        log = self._directory / f"{part}{self._started}.log"
        given = default_settings(log) | ({} if self._url is None else {"SLUICE_CATALOG_URL": self._url})
        below = self._below if part == "engine" else ()
        process = RunningService(self.data_dir, log, free_port(), settings=given, part=part, below=below)
        self._ending.callback(process.stop)
        return process

    def replace_first(self) -> None:
        """End the engine that was at work, start another one in its place, and let it stand by."""
        former, at_work = self.engines
        send(processes(former) if former.process.poll() is None else [], signal.SIGKILL)
        former.process.wait(STOPPED_S)
        stand_by = self._start("engine")
        stand_by.__enter__()
        self.engines = [at_work, stand_by]
        self.wait_until("standby", stand_by)

    def wait_until(self, wanted: str, engine: RunningService) -> None:
        """Wait until an engine says of itself that it is at work (``ok``), or stands by."""
        until(lambda: ready(engine) == wanted, self.told, STOPPED_S)

    def told(self) -> str:
        """Return the ends of all logs."""
        logs = sorted(self._directory.glob("*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)


def ready(engine: RunningService) -> str:
    """Return what an engine says of itself: ``ok``, ``standby``, or that it is not ready."""
    try:
        answer = engine.http.get("/health/ready", timeout=5)
    except httpx.TransportError:
        return "unreachable"
    return str(answer.json().get("status", "not ready")) if answer.is_success else "not ready"


def processes(engine: RunningService) -> list[psutil.Process]:
    """Return an engine's processes, its JVM and workers included."""
    this = psutil.Process(engine.process.pid)
    return [*([] if this.name() == _CONTAINED[0] else [this]), *this.children(recursive=True)]


def send(victims: list[psutil.Process], what: signal.Signals) -> None:
    """Send a signal to processes, of which some may have gone."""
    for process in victims:
        with suppress(ProcessLookupError):
            os.kill(process.pid, what)
