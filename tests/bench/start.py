"""How long a start of the service takes, and what it uses when there is nothing to do.

    python -m tests.bench.start [--runs 3] [--idle-s 30] [--out docs/bench]

About five minutes, 75 s for each run and 80 s of idling; the report is written after every run.

    process ── answers ── streams and a query registered ── first result readable
       0       GET /streams                                 GET /queries/q0/results has a row

Cold is a fresh data directory, the second start one that was stopped before; both find new files of both
streams. Starts without the archive of Spark's classes and without the fork server show what each of them
saves. CPU time is that of the service with all its processes, user and system, up to the first result.
Idle is a share of one core, measured once over so many seconds in one service: first with nothing registered,
then with two streams and 100 queries, a while after their input.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import httpx
import numpy as np
import pandas as pd
import psutil
import typer

from service.jvm.jvm import DEFAULT_OPTIONS
from tests.api.running_service import RunningService, free_port
from tests.bench.options import DOCS, Out, Runs
from tests.bench.processes import cores_used, cpu_times, kind_of
from tests.bench.reports import publish, table
from tests.bench.runs import write_part
from tests.builders import stream_document
from tests.waiting import until

#: A start on a machine that is busy with others.
TIMEOUT_S = 300
#: Time between the last input and the measurement of idling; Spark's first batch, if empty, is over by then.
SETTLE_S = 10
#: Queries of the service that idles.
QUERIES = 100
#: Rows of a file and keys: some 200 results of the first query, fewer than a page holds.
ROWS, KEYS = 1000, 1000
COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}
#: Processes that take less are not shown.
_SHOWN_CORES = 0.0005

#: Starts without the archive of classes, as where ``make setup`` could make none.
NO_ARCHIVE = {"SLUICE_SPARK_CONF": json.dumps({DEFAULT_OPTIONS: "-Dsluice.archive=none"})}

#: Length of a path in which no socket has room (107 bytes), so that the fork server cannot listen.
LONG_PATH = 100

#: A start: seconds until the API answered (``answers_s``) and a result could be read (``result_s``), CPU time
#: of all processes by then (``cpu_s``), load of the machine before, by others, and the other processes.
Start = dict[str, Any]


class Service(RunningService):
    """A service that was started just now: ``with`` does not wait until it is ready."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.load = os.getloadavg()[0]
        self.started_s = time.monotonic()
        settings = {"SLUICE_SOURCE_ROOTS": str(directory), **environment}
        super().__init__(directory / "data", directory / "serve.log", free_port(), settings=settings)

    def __enter__(self) -> Self:
        return self

    def until(self, what: str, found: Callable[[], Any]) -> float:
        """Ask until something is found; return the seconds since the start."""

        def holds() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            try:
                return bool(found())
            except httpx.TransportError:
                return False

        until(holds, lambda: f"{what}: {self.log.read_text()[-4000:]}", TIMEOUT_S)
        return time.monotonic() - self.started_s

    def answers(self) -> float:
        """Wait until it answers."""
        return self.until("it does not answer", lambda: self.http.get("/streams").is_success)

    def begin(self, queries: int) -> None:
        """Register both streams, and queries with a window and a filter of their own, and wait for them."""
        for name in ("A", "B"):
            path = str(self.directory / name)
            self.ok("POST", "/streams", 201, json=stream_document(name, COLUMNS, type="files", path=path))
        for number in range(queries):
            window = f"[RANGE {number % 50 + 1} SECONDS]"
            where = f"A.k = B.k AND A.v < {1 - number % 40 / 80}"
            body = {"name": f"q{number}", "cql": f"SELECT A.k FROM A {window}, B {window} WHERE {where}"}
            last = {"wait": 60} if number == queries - 1 > 0 else {}
            self.http.post("/queries", json=body, params=last).raise_for_status()

    def rows(self) -> int:
        """Rows that the first query can be asked for."""
        answer = self.http.get("/queries/q0/results", params={"limit": 1000}).raise_for_status()
        return len(answer.json()["rows"])

    def measured(self, answers_s: float, rows_before: int = 0) -> Start:
        """Wait for a result and return what the start took."""
        result_s = self.until("no result", lambda: self.rows() > rows_before)
        times = cpu_times(self.process.pid)
        service = kind_of(psutil.Process(self.process.pid))
        names = sorted(name for (_, name) in times if name != service)
        took = {"answers_s": answers_s, "result_s": result_s, "cpu_s": sum(times.values())}
        return took | {"load": self.load, "processes": names}


def write_file(directory: Path, number: int) -> None:
    """Put a file of each stream where the service finds it; rows of one file have results among them."""
    ts_us = 1_700_000_000_000_000 + number * 600_000_000 + np.arange(ROWS) * 10_000
    for stream, name in enumerate(("A", "B")):
        generator = np.random.default_rng((number, stream))
        keys, values = generator.integers(0, KEYS, ROWS), generator.random(ROWS)
        write_part(directory, name, number, ts_us, k=keys, v=values)


def without_fork_server(directory: Path) -> dict[str, str]:
    """Return settings with which Spark starts its Python processes itself."""
    scratch = directory / ("x" * LONG_PATH)
    scratch.mkdir(parents=True)
    return {"TMPDIR": str(scratch)}


def start_cold(directory: Path, environment: Mapping[str, str]) -> Start:
    """Start on a fresh data directory, once."""
    write_file(directory, 0)
    with Service(directory, environment) as running:
        answers_s = running.answers()
        running.begin(1)
        return running.measured(answers_s)


def start_again(directory: Path) -> Start:
    """Start on a data directory that was used, with files that were written meanwhile."""
    write_file(directory, 1)
    with Service(directory, {}) as running:
        answers_s = running.answers()
        # The first file's results; those of the second are more.
        return running.measured(answers_s, running.rows())


def idling(directory: Path, queries: int, seconds: float, settle_s: float = SETTLE_S) -> dict[str, Any]:
    """Return the cores used with nothing to do, before and after queries came and their input was read."""
    write_file(directory, 0)
    with Service(directory, {}) as running:
        running.answers()
        running.until("not ready", lambda: running.http.get("/health/ready").is_success)
        time.sleep(settle_s)
        before = cores_used(running.process.pid, seconds)
        running.begin(queries)
        running.until("no result", lambda: running.rows() > 0)
        time.sleep(settle_s)
        return {"0": before, str(queries): cores_used(running.process.pid, seconds)}


def tables(starts: Mapping[str, list[Start]], idle: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return the tables of the report."""
    lines = []
    for name, runs in starts.items():
        medians = pd.DataFrame(runs)[["answers_s", "result_s", "cpu_s", "load"]].median()
        lines.append((name, len(runs), *medians))
    header = ("start, medians", "runs", "API answers, s", "first result, s", "CPU time, s", "load before")
    found = {"starts": table(header, lines)}
    if idle:
        shares = 100 * pd.DataFrame(idle).fillna(0.0)
        some = shares[shares.max(axis=1) >= 100 * _SHOWN_CORES].sort_index()
        some.loc["**all**"] = shares.sum()
        header = ("idle, % of a core", *(f"{n} queries" for n in idle))
        found["idle"] = table(header, some.itertuples())
    return found


def main(
    runs: Runs = 3,
    idle_s: Annotated[float, typer.Option(min=0, help="Seconds of idling that are measured; 0: none.")] = 30,
    out: Out = DOCS,
) -> None:
    """Measure starts and idling and write the tables and their JSON."""
    starts: dict[str, list[Start]] = {}
    figures: dict[str, Any] = {"starts": starts, "idle": {}}
    with tempfile.TemporaryDirectory(prefix="sluice-start-") as scratch:
        for run in range(runs):
            place = Path(scratch) / str(run)
            no_fork_server = without_fork_server(place / "long")
            found = {
                "cold": start_cold(place / "cold", {}),
                "second": start_again(place / "cold"),
                "cold, without the archive of classes": start_cold(place / "archive", NO_ARCHIVE),
                "cold, without the fork server": start_cold(place / "fork", no_fork_server),
                "cold, without both": start_cold(place / "both", NO_ARCHIVE | no_fork_server),
            }
            for name, start in found.items():
                starts.setdefault(name, []).append(start)
            publish(out, "start", figures, tables(starts, {}))
        if idle_s:
            figures["idle"] = idling(Path(scratch) / "idle", QUERIES, idle_s)
    typer.echo(publish(out, "start", figures, tables(starts, figures["idle"])))


if __name__ == "__main__":
    typer.run(main)
