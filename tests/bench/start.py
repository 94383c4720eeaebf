"""How long a start of the service takes, and what it uses when there is nothing to do.

    python -m tests.bench.start [--runs 3] [--idle-s 30] [--out docs/bench]

About three and a half minutes, 45 s for each run and 80 s of idling; the report is written after every run.

    process ── answers ── streams and a query registered ── first result readable
       0       GET /streams                                 GET /queries/q/results has a row

Cold is a fresh data directory, the second start one that was stopped before; both find new files of both
streams. CPU time is that of the service with all its processes, user and system, up to the first result.
Idle is a share of one core, measured once over so many seconds in one service: first with nothing registered,
then with two streams and 100 queries, a while after their input.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from service.jvm.jvm import DEFAULT_OPTIONS
from tests.api.running_service import RunningService, free_port
from tests.bench.processes import cores_used, cpu_times, kind_of
from tests.bench.reports import fill_page, machine, table, write_figures
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

#: Starts without the archive of classes, as where ``make setup`` could make none.
NO_ARCHIVE = {"SLUICE_SPARK_CONF": json.dumps({DEFAULT_OPTIONS: "-Dsluice.archive=none"})}


@dataclass(frozen=True, slots=True)
class Start:
    """One start.

    Attributes:
        answers_s: Until the API answered.
        result_s: Until a result could be read.
        cpu_s: CPU time of all processes by then.
        load: Load of the machine before, by others.
        processes: Command lines of what runs then, apart from the service itself.
    """

    answers_s: float
    result_s: float
    cpu_s: float
    load: float
    processes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """CPU time per second of idling, by kind of process."""

    queries: int
    load: float
    cores: dict[str, float]

    @property
    def total(self) -> float:
        """All of it, in cores."""
        return sum(self.cores.values())


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
        """Register both streams and queries; the last one is in force afterwards."""
        for name in ("A", "B"):
            path = str(self.directory / name)
            self.ok("POST", "/streams", 201, json=stream_document(name, COLUMNS, type="files", path=path))
        for number in range(queries):
            self.add_query(number, wait=number > 0 and number == queries - 1)

    def add_query(self, number: int, *, wait: bool = False) -> None:
        """Add a query with a window and a filter of its own."""
        window = f"[RANGE {number % 50 + 1} SECONDS]"
        cql = f"SELECT A.k FROM A {window}, B {window} WHERE A.k = B.k AND A.v < {1 - number % 40 / 80}"
        body = {"name": f"q{number}", "cql": cql}
        wait_s = {"wait": 60} if wait else {}
        self.http.post("/queries", json=body, params=wait_s).raise_for_status()

    def rows(self) -> int:
        """Rows that the first query can be asked for."""
        answer = self.http.get("/queries/q0/results", params={"limit": 1000}).raise_for_status()
        return len(answer.json()["rows"])

    def measured(self, answers_s: float, rows_before: int) -> Start:
        """Wait for a result and return what the start took."""
        result_s = self.until("no result", lambda: self.rows() > rows_before)
        times = cpu_times(self.process.pid)
        service = kind_of(psutil.Process(self.process.pid))
        names = tuple(sorted(name for (_, name) in times if name != service))
        return Start(answers_s, result_s, sum(times.values()), self.load, names)

    def idle(self, queries: int, seconds: float, settle_s: float = SETTLE_S) -> Idle:
        """Return what the service uses with nothing to do."""
        time.sleep(settle_s)
        load = os.getloadavg()[0]
        return Idle(queries, load, cores_used(self.process.pid, seconds))


def write_file(directory: Path, number: int) -> None:
    """Put a file of each stream where the service finds it; rows of one file have results among them."""
    for stream, name in enumerate(("A", "B")):
        (directory / name).mkdir(exist_ok=True)
        generator = np.random.default_rng((number, stream))
        ts = 1_700_000_000_000_000 + number * 600_000_000 + np.arange(ROWS) * 10_000
        columns = {
            "ts": pa.array(ts, pa.timestamp("us")),
            "k": pa.array(generator.integers(0, KEYS, ROWS)),
            "v": pa.array(generator.random(ROWS)),
        }
        fresh = directory / name / f".{number}.tmp"
        pq.write_table(pa.table(columns), fresh)
        fresh.rename(directory / name / f"{number}.parquet")


def start_cold(directory: Path, environment: dict[str, str]) -> Start:
    """Start on a fresh data directory, once."""
    directory.mkdir()
    write_file(directory, 0)
    with Service(directory, environment) as running:
        answers_s = running.answers()
        running.begin(1)
        return running.measured(answers_s, 0)


def start_again(directory: Path) -> Start:
    """Start on a data directory that was used, with files that were written meanwhile."""
    write_file(directory, 1)
    with Service(directory, {}) as running:
        answers_s = running.answers()
        # The first file's results; those of the second are more.
        return running.measured(answers_s, running.rows())


def idling(directory: Path, queries: int, seconds: float) -> dict[int, Idle]:
    """Measure a service with nothing to do, before and after queries were registered and their input read."""
    directory.mkdir()
    write_file(directory, 0)
    with Service(directory, {}) as running:
        running.answers()
        running.until("not ready", lambda: running.http.get("/health/ready").is_success)
        before = running.idle(0, seconds)
        running.begin(queries)
        running.until("no result", lambda: running.rows() > 0)
        return {0: before, queries: running.idle(queries, seconds)}


def figures(starts: dict[str, list[Start]], idles: dict[int, Idle]) -> str:
    """Return both tables as Markdown."""
    rows: list[tuple[str, ...]] = []
    for name, runs in starts.items():
        medians = (statistics.median(getattr(run, key) for run in runs) for key in _START_COLUMNS)
        rows.append((name, *(f"{value:.1f}" for value in medians)))
    header = ("start, medians", "API answers, s", "first result, s", "CPU time, s", "load before")
    text = table(header, rows)
    if not idles:
        return text
    rows = []
    for kind in sorted({kind for idle in idles.values() for kind in idle.cores}):
        shares = [idle.cores.get(kind, 0.0) for idle in idles.values()]
        if max(shares) >= _SHOWN_CORES:
            rows.append((kind, *(f"{100 * share:.1f}" for share in shares)))
    rows.append(("**all**", *(f"{100 * idle.total:.1f}" for idle in idles.values())))
    return f"{text}\n\n{table(('idle, % of a core', *(f'{n} queries' for n in idles)), rows)}"


_START_COLUMNS = ("answers_s", "result_s", "cpu_s", "load")
_SHOWN_CORES = 0.0005


def write_report(out: Path, starts: dict[str, list[Start]], idles: dict[int, Idle]) -> str:
    """Write start.json and the tables of start.md, and return the page."""
    document = {
        "machine": machine(),
        "starts": {name: [asdict(run) for run in done] for name, done in starts.items()},
        "idle": {str(queries): asdict(idle) for queries, idle in idles.items()},
    }
    out.mkdir(parents=True, exist_ok=True)
    write_figures(out / "start.json", document)
    runs = f"{machine()}; starts: medians of {max(map(len, starts.values()))} runs; idling: once"
    return fill_page(out / "start.md", {"machine": runs, "figures": figures(starts, idles)})


def main(
    runs: Annotated[int, typer.Option(min=1, help="Runs; medians are reported.")] = 3,
    idle_s: Annotated[float, typer.Option(min=0, help="Seconds of idling that are measured; 0: none.")] = 30,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench"),
) -> None:
    """Measure starts and idling and write the tables and their JSON."""
    starts: dict[str, list[Start]] = {"cold": [], "second": [], "cold, without the archive of classes": []}
    idles: dict[int, Idle] = {}
    with tempfile.TemporaryDirectory(prefix="sluice-start-") as scratch:
        for run in range(runs):
            cold = Path(scratch) / f"cold-{run}"
            takes: dict[str, Callable[[], Start]] = {
                "cold": partial(start_cold, cold, {}),
                "second": partial(start_again, cold),
                "cold, without the archive of classes": partial(
                    start_cold, Path(scratch) / f"bare-{run}", NO_ARCHIVE
                ),
            }
            for name, take in takes.items():
                starts[name].append(take())
                last = starts[name][-1]
                typer.echo(f"{name}: answers {last.answers_s:.1f} s, result {last.result_s:.1f} s", err=True)
            write_report(out, starts, idles)
        if idle_s:
            idles = idling(Path(scratch) / "idle", QUERIES, idle_s)
    typer.echo(write_report(out, starts, idles))


if __name__ == "__main__":
    typer.run(main)
