"""Starts `sluice serve`, `api` or `engine` as a user does, each in a process of its own, and speaks HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from tests.builders import stream_document
from tests.sluice_run import command
from tests.waiting import until

#: Spark starts in 5-10 s on an idle machine. Beside thirty other jobs on two cores it once took two minutes.
START_TIMEOUT_S = 600

#: What a micro-batch or a few may take, with room for a busy machine.
WAIT_S = 120

#: How long a test follows a stream of events: a restart of Spark and its first batches, on a busy machine.
EVENTS_S = 180


#: Given to each part, which should have the same settings.
_SIZE = {"SLUICE_CORES": "2", "SLUICE_BUCKETS": "2"}


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event."""

    id: str
    event: str
    data: Any


class RunningService:
    """A service on a free loopback port.

    Args:
        data_dir: Its data directory.
        log: File that takes its output.
        port: Port to listen on.
        options: Further options of the command.
        tls: How its client speaks TLS; None: it speaks none.
        headers: What its client sends with every request.
        settings: Settings by their variables, beside those of the environment. By default files may be read
            from any directory of the test session, and the receivers of webhooks may be of this machine.
        part: Command to start: ``serve``, ``api`` or ``engine``.
        below: Command that starts it in turn, such as ``unshare``; SIGINT goes to all of its session then.
        reached_at: Port of this machine that leads to it, where it is another one.
    """

    def __init__(
        self,
        data_dir: Path,
        log: Path,
        port: int,
        *,
        options: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        part: str = "serve",
        below: Sequence[str] = (),
        reached_at: int | None = None,
    ) -> None:
        self._interrupt = os.killpg if below else os.kill
        self.data_dir = data_dir
        self.log = log
        self.root = f"http{'' if tls is None else 's'}://127.0.0.1:{reached_at or port}"
        verified = True if tls is None else tls
        base, seconds = f"{self.root}/api/v1", WAIT_S + 30
        # A connection that were kept would be another one in the test after a pause.
        limits = httpx.Limits(max_keepalive_connections=0)
        self.http = httpx.Client(
            base_url=base, timeout=seconds, verify=verified, headers=headers, limits=limits
        )
        started = [*below, *serve_command(data_dir, port, part), *options]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                started,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | _SIZE | (default_settings(log) if settings is None else settings),
            )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"the service did not start:\n{self.log.read_text()}")
            try:
                if self.http.get("/health/ready").is_success:
                    return self
            except httpx.TransportError:
                pass
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Stop the service as Ctrl-C does and return its exit status."""
        self.http.close()
        if self.process.poll() is None:
            self._interrupt(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                # The whole session, which is ours alone: the service and its JVM.
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        return self.process.returncode

    def ok(self, method: str, path: str, status: int, **request: Any) -> Any:
        """Return the JSON body of a request that must be answered with ``status``."""
        response = self.http.request(method, path, **request)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    def register(self, columns: Mapping[str, str], *names: str, **facts: object) -> None:
        """Register streams of posted events with event time ``ts``."""
        for name in names:
            self.ok("POST", "/streams", 201, json=stream_document(name, columns) | facts)

    @contextmanager
    def events(self, path: str, headers: Mapping[str, str] | None = None) -> Iterator[Iterator[Event]]:
        """Open a stream of server-sent events, which must give what is asked of it within ``EVENTS_S``."""
        with self.http.stream("GET", path, headers=dict(headers or {}), timeout=WAIT_S) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield _parse(response.iter_lines(), time.monotonic() + EVENTS_S)


def at(second: float) -> str:
    """Event time, in seconds after a fixed start."""
    return f"2026-01-01T00:{int(second) // 60:02}:{second % 60:09.6f}Z"


def post(service: RunningService, stream: str, *rows: Sequence[Any]) -> None:
    """Post rows: the second of the event time ``ts``, then the other columns in declared order."""
    _, *names = service.ok("GET", f"/streams/{stream}", 200)["columns"]
    events = [{"ts": at(second), **dict(zip(names, values, strict=True))} for second, *values in rows]
    service.ok("POST", f"/streams/{stream}/events", 202, json=events)


def results(service: RunningService, query: str, count: int) -> list[tuple[Any, ...]]:
    """Wait until a query has as many results, and return them in order, each with all of its columns."""
    deadline = time.monotonic() + WAIT_S
    while True:
        rows = service.ok("GET", f"/queries/{query}/results", 200)["rows"]
        if len(rows) >= count or time.monotonic() > deadline:
            return [tuple(row.values()) for row in rows]
        time.sleep(0.1)


def selected(service: RunningService, query: str, count: int) -> list[tuple[Any, ...]]:
    """Wait until a query has as many results, and return what it selects without their event time, sorted."""
    return sorted(row[:-1] for row in results(service, query, count))


def wait_for(service: RunningService, query: str, state: str) -> None:
    """Wait until a query is in a state."""

    def observed() -> Any:
        return service.ok("GET", f"/queries/{query}", 200)["observed"]

    until(lambda: observed() == state, observed)


def default_settings(log: Path) -> dict[str, str]:
    """Settings of a service whose log is in a directory of a test, and whose receivers are on loopback."""
    return {"SLUICE_SOURCE_ROOTS": str(log.parent.parent), "SLUICE_WEBHOOK_HOSTS": "127.0.0.1"}


def serve_command(data_dir: Path, port: int, part: str = "serve") -> list[str]:
    """Command line of a service, or of a part of one."""
    options = {"--data-dir": data_dir, "--port": str(port)}
    if part != "api":
        options |= {"--cores": "2", "--buckets": "2"}
    return command(part, *(word for option in options.items() for word in option))


def free_port() -> int:
    """Return a loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _parse(lines: Iterator[str], deadline: float) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        # Pings come every 15 s, so a read never times out; they are what lets us look at the clock.
        assert time.monotonic() < deadline, f"no further event within {EVENTS_S} s"
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield Event(fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"]))
            fields = {}
