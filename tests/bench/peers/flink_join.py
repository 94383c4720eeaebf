"""Flink's SQL interval joins: every query in one StatementSet, sources shared, one process (MiniCluster).

Event time in Flink has milliseconds: the interval join is a millisecond too wide, and the exact distance in
µs decides on top. One CSV file per stream, in order, so that nothing comes late.

Results are counted by a window aggregate in two phases, a hundred windows over the input, whose counts are
printed; so are those of the rows read, which tells how far the job was at what time. Counts with mini-batches
would make watermarks coarse, and those of every single row go through one task. Nothing is checkpointed and
nothing written, which favours Flink.

Run in Flink's environment: ``python -m tests.bench.peers.flink_join JOB.json``.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from tests.bench.peers.job import Job, Ran, answer, batches_between, read_job
from tests.bench.peers.workloads import STREAMS, Query

#: What the print sink makes of a count: ``q1> +I[7]``, or ``q1:2> +I[7]`` of a parallel one.
_PRINTED = re.compile(r"^(?P<name>\w+)(?::\d+)?> \+I\[(?P<count>\d+)\]$")
_OVER = "nothing follows"
#: Windows that counts are printed of.
_WINDOWS = 100


class Printed:
    """What the JVM prints, with the time of each line of the streams.

    The JVM inherits this process's output; a pipe takes its place until ``close``.

    Attributes:
        counts: Sum of the counts by name.
        read: Time and rows, line by line of all streams.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.read: list[tuple[float, int]] = []
        self._output = os.dup(1)
        reading, writing = os.pipe()
        os.dup2(writing, 1)
        os.close(writing)
        self._thread = threading.Thread(target=self._follow, args=(reading,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read what was printed until now, and give this process its output back."""
        os.write(1, f"\n{_OVER}\n".encode())
        self._thread.join()
        os.dup2(self._output, 1)

    def _follow(self, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.strip() == _OVER:
                    return
                if found := _PRINTED.match(line.strip()):
                    name, count = found["name"], int(found["count"])
                    self.counts[name] = self.counts.get(name, 0) + count
                    if name in STREAMS:
                        self.read.append((time.time(), count))
                else:
                    sys.stderr.write(line)


def _settings(job: Job) -> dict[str, str]:
    """Return Flink's configuration, with the advice of its documentation for SQL."""
    rocksdb = job.options["state"] == "rocksdb"
    tuned = {
        "state.backend.rocksdb.predefined-options": "FLASH_SSD_OPTIMIZED",
        "state.backend.rocksdb.use-bloom-filter": "true",
        # Timers fit into memory, where they are faster.
        "state.backend.rocksdb.timer-service.factory": "HEAP",
    }
    return (tuned if rocksdb else {}) | {
        "parallelism.default": str(job.cores),
        "state.backend.type": job.options["state"],
        # RocksDB's memory is beside the heap; state on the heap needs none.
        "taskmanager.memory.managed.size": f"{max(job.memory_gb // 2, 1)}g" if rocksdb else "64m",
        "taskmanager.memory.network.min": "512m",
        "taskmanager.memory.network.max": "512m",
        "io.tmp.dirs": job.scratch,
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "rest.port": "0",
    }


def _source(job: Job, name: str) -> str:
    """Return a table whose watermark is before the newest millisecond: more rows of that one may come."""
    path = Path(job.options["csv"]) / f"{name}.csv"
    return (
        f"CREATE TABLE {name} (us BIGINT, k BIGINT, v DOUBLE, "
        "ts AS TO_TIMESTAMP_LTZ(us / 1000, 3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{path.as_uri()}', 'format' = 'csv')"
    )


def _sink(name: str) -> str:
    return f"CREATE TABLE sink_{name} (n BIGINT) WITH ('connector' = 'print', 'print-identifier' = '{name}')"


def _view(query: Query, names: Sequence[str]) -> str:
    """Return a view of the results, an interval join of A with each other stream.

    Flink takes one interval per join, so distances of the others are conditions on numbers.
    """
    within = _interval(query.window_us // 1000)
    bounds = [f"{s}.v < {b!r}" for s, b in (("a", query.a_below), ("b", query.b_below)) if b is not None]
    others = [name.lower() for name in names[1:]]
    where = " AND ".join(
        [
            *(
                f"a.k = {other}.k AND a.ts BETWEEN {other}.ts - {within} AND {other}.ts + {within}"
                for other in others
            ),
            *(
                f"ABS({one}.us - {other}.us) < {query.window_us}"
                for one, other in combinations(["a", *others], 2)
            ),
            *bounds,
        ]
    )
    tables = ", ".join(f"{name} {name.lower()}" for name in names)
    return f"CREATE TEMPORARY VIEW joined_{query.name} AS SELECT a.ts AS ts FROM {tables} WHERE {where}"


def _counted(table: str, name: str, job: Job) -> str:
    """Return a statement that counts the rows of a table or view in windows."""
    size = _interval(max(1000 * job.streams.rows // job.streams.rate_per_s // _WINDOWS, 1))
    return (
        f"INSERT INTO sink_{name} SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), {size})) "
        "GROUP BY window_start, window_end"
    )


def _interval(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    days, of_day = divmod(seconds, 86_400)
    clock = f"{of_day // 3600:02d}:{of_day // 60 % 60:02d}:{of_day % 60:02d}.{rest:03d}"
    return f"INTERVAL '{days} {clock}' DAY TO SECOND(3)"


def run(job: Job) -> Ran:
    """Run the job's queries to their end."""
    # Read by the JVM's launcher; the options of Flink's own configuration stay.
    os.environ["JVM_ARGS"] = f"-Xmx{job.memory_gb}g"
    os.environ["FLINK_LOG_DIR"] = job.scratch
    printed = Printed()
    from pyflink.common import Configuration
    from pyflink.java_gateway import get_gateway
    from pyflink.table import EnvironmentSettings, TableEnvironment
    from pyflink.version import __version__ as version

    configuration = Configuration()
    for name, value in _settings(job).items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode()
    tables = TableEnvironment.create(settings.with_configuration(configuration).build())
    java = get_gateway().jvm.System.getProperty("java.version")
    began_s = time.time()
    statements = tables.create_statement_set()
    for name in job.streams.names:
        tables.execute_sql(_source(job, name))
        tables.execute_sql(_sink(name))
        statements.add_insert_sql(_counted(name, name, job))
    for query in job.queries:
        tables.execute_sql(_view(query, job.streams.names))
        tables.execute_sql(_sink(query.name))
        statements.add_insert_sql(_counted(f"joined_{query.name}", query.name, job))
    statements.execute().wait()
    ended_s = time.time()
    printed.close()
    return Ran(
        results={q.name: printed.counts.get(q.name, 0) for q in job.queries},
        input_rows=sum(printed.counts.get(name, 0) for name in job.streams.names),
        job_s=ended_s - began_s,
        # What is read is not joined yet, so the last rows are taken to be worked on until the end.
        batches=[batches_between(began_s, [*printed.read[:-1], (ended_s, printed.read[-1][1])])],
        versions={"Flink": version, "Java": java, "Python": sys.version.split()[0]},
    )


if __name__ == "__main__":
    answer(run(read_job(sys.argv[1])))
