"""Pathway's interval joins: every query in one graph, inputs shared.

Every row is kept, as Pathway does by itself: with the behaviour that forgets rows, a million rows took more
than 400 s. A source of files never ends: the run is over when both inputs are counted to their ends and every
query has closed that time.

Run in Pathway's environment: ``python -m tests.bench.peers.pathway_join JOB.json``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.peers.job import Job, Ran, answer, batches_between, read_job
from tests.bench.peers.workloads import STREAMS, Query

#: Milliseconds between two commits of what was read: the size of a batch.
_COMMIT_EVERY_MS = 1000
#: It joins two streams.
_PAIR = STREAMS[:2]


class Counts:
    """Counts by name as they come, and the engine's times that are over: those that every count has closed.

    Attributes:
        counts: Last count by name.
        done: Clock, and rows of both streams that were read and joined since the moment before.
        finished: Set when those are all rows.
    """

    def __init__(self, names: list[str], rows: int) -> None:
        self.counts = dict.fromkeys(names, 0)
        self.done: list[tuple[float, int]] = []
        self.finished = threading.Event()
        self._rows = rows
        self._read: dict[str, deque[tuple[int, int]]] = {name: deque() for name in _PAIR}
        self._joined = dict.fromkeys(_PAIR, 0)
        self._closed = dict.fromkeys(names, -1)
        self._lock = threading.Lock()

    def changed(self, name: str, count: int, when: int) -> None:
        """Take a count at an engine time."""
        with self._lock:
            self.counts[name] = count
            if name in _PAIR:
                self._read[name].append((when, count))

    def closed(self, name: str, when: int) -> None:
        """Take note that an engine time is over for one count."""
        with self._lock:
            self._closed[name] = when
            over = min(self._closed.values())
            for stream, read in self._read.items():
                while read and read[0][0] <= over:
                    self._joined[stream] = read.popleft()[1]
            joined = sum(self._joined.values())
            if fresh := joined - sum(rows for _, rows in self.done):
                self.done.append((time.time(), fresh))
            if joined == 2 * self._rows:
                self.finished.set()


def _follow(pw: Any, name: str, table: Any, counts: Counts) -> None:
    """Count a table's rows."""

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # names are Pathway's
        if is_addition:
            counts.changed(name, row["n"], time)

    def on_time_end(time: int) -> None:
        counts.closed(name, time)

    pw.io.subscribe(table.reduce(n=pw.reducers.count()), on_change=on_change, on_time_end=on_time_end)


def _join(pw: Any, query: Query, a: Any, b: Any) -> Any:
    """Return a query's results."""
    a = a.copy() if query.a_below is None else a.filter(a.v < query.a_below)
    b = b.copy() if query.b_below is None else b.filter(b.v < query.b_below)
    within = pw.temporal.interval(1 - query.window_us, query.window_us - 1)
    joined = a.interval_join(b, a.us, b.us, within, a.k == b.k)
    return joined.select(ats=pw.left.us, bts=pw.right.us, k=pw.left.k)


def _graph(pw: Any, job: Job, counts: Counts) -> Callable[[], None]:
    """Build the graph and return what runs it."""

    class Row(pw.Schema):  # type: ignore[misc]  # its type is unknown here
        us: int
        k: int
        v: float

    copies = Path(job.options["csv"])
    a, b = (
        pw.io.csv.read(
            str(copies / f"{name}.csv"), schema=Row, mode="streaming", autocommit_duration_ms=_COMMIT_EVERY_MS
        )
        for name in _PAIR
    )
    for name, table in zip(_PAIR, (a, b), strict=True):
        _follow(pw, name, table, counts)
    for query in job.queries:
        _follow(pw, query.name, _join(pw, query, a, b), counts)
    return lambda: pw.run(monitoring_level=pw.MonitoringLevel.NONE)


def run(job: Job) -> Ran:
    """Run the job's queries to the end of the input."""
    os.environ["PATHWAY_THREADS"] = str(job.cores)
    import pathway as pw

    counts = Counts([*_PAIR, *(q.name for q in job.queries)], job.streams.rows)
    began_s = time.time()
    failed: list[BaseException] = []
    run_graph = _graph(pw, job, counts)

    def work() -> None:
        try:
            run_graph()
        except BaseException as problem:  # handed to the waiting thread
            failed.append(problem)
        finally:
            counts.finished.set()

    threading.Thread(target=work, daemon=True).start()
    counts.finished.wait()
    if failed:
        raise failed[0]
    ended_s = time.time()
    return Ran(
        results={q.name: counts.counts[q.name] for q in job.queries},
        input_rows=2 * job.streams.rows,
        job_s=ended_s - began_s,
        batches=[batches_between(began_s, counts.done)],
        versions={"Pathway": pw.__version__, "Python": sys.version.split()[0]},
    )


if __name__ == "__main__":
    answer(run(read_job(sys.argv[1])))
    # The engine's threads would poll their files forever.
    os._exit(0)
