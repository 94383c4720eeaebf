"""Two workers of one core beside `local[2]`: rate of many-keys, and latency of a live service.

    python -m tests.bench.cluster [--runs 3] [--scale 1] [--part rate|live]...

The cluster is that of `tests.cluster`: hosts are network namespaces of this machine, so master, workers,
engine and servers share its cores. Root is needed. For the rate, `sluice run` keeps everything on a mount
that its host shares with the workers. The live service has its catalog on PostgreSQL and its storage in S3.
Both sides take turns, and their results are compared with DuckDB's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated

import duckdb
import numpy as np
import pyarrow as pa
import typer

from tests.api.running_service import RunningService
from tests.bench.feeding import COLUMNS, SELECTED, STREAMS, Feeder, Follower, LiveRows, latencies_s, now_us
from tests.bench.loaded import loaded_service
from tests.bench.options import Runs, chosen
from tests.bench.peers.batch_join import differences, expected_counts
from tests.bench.peers.inputs import write_streams
from tests.bench.peers.job import Ran, rates_of
from tests.bench.peers.measure import ROOT
from tests.bench.peers.sluice_join import batches_of
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.reports import table
from tests.bench.runs import manifests_of, run_workload, write_workload
from tests.cluster.network import Host
from tests.cluster.sluice_cluster import RUNNER, SHARED, Cluster, cluster
from tests.waiting import until

LOCAL, APART = "local[2]", "two workers of one core"
TIMEOUT_S = 900.0
#: Rows of each stream a second of the live service, keys, and windows.
LIVE_PER_S, KEYS, WINDOW_S = 500, 5_000, 10
#: Seconds that windows fill, and that latency is measured.
FILL_S, LOAD_S = 25.0, 40.0
QUERY = f"SELECT {SELECTED} FROM A [RANGE {WINDOW_S} SECONDS], B [RANGE {WINDOW_S} SECONDS] WHERE A.k = B.k"

#: Figures of a run by their names.
Figures = Mapping[str, float]


def rates(made: Cluster, host: Host | None, number: int, scale: float) -> Figures:
    """Run many-keys.

    Args:
        made: The cluster.
        host: Host that it runs on; None for this machine.
        number: Number of the run.
        scale: Part of the rows.
    """
    workload = WORKLOADS["many-keys"]
    streams, queries = workload.streams.first(scale), workload.queries
    inputs = write_streams(ROOT / "inputs", streams).resolve()
    texts = {query.name: query.cql() for query in queries}
    name = f"run-{number}"
    path = write_workload(made.shared / f"{name}.yaml", inputs, texts, files_per_batch=workload.files_at_once)
    out = made.shared / name
    if host is None:
        _, summary = run_workload(path, out, timeout_s=TIMEOUT_S)
    else:
        _, summary = run_workload(
            SHARED / path.name,
            SHARED / name,
            timeout_s=TIMEOUT_S,
            environment=made.runs_with | made.engine_settings(host),
            below=host.below,
        )
    wrong = differences(summary["results"], expected_counts(inputs, streams, queries))
    assert not wrong, wrong
    batches = batches_of(out, manifests_of(out))
    job_s = batches[-1].ended_s - batches[0].began_s
    ran = Ran(summary["results"], summary["input_rows"], job_s, [batches])
    found = rates_of(ran, 1.0, streams.files)
    return {f"many-keys, {kind}, rows/s": found[kind] or np.nan for kind in ("job", "steady")}


def latencies(service: RunningService) -> Figures:
    """Post rows of two streams, follow a query, and return quantiles of its latency, s."""
    root = f"{service.root}/api/v1"
    service.register(COLUMNS, *STREAMS, lateness="0s")
    service.ok("POST", "/queries?wait=120", 201, json={"name": "q", "cql": QUERY})
    rows = LiveRows(now_us(), LIVE_PER_S, KEYS)
    with Feeder(root, rows, "A") as a, Feeder(root, rows, "B") as b:
        time.sleep(FILL_S)
        with Follower(root, "q") as follower:
            time.sleep(LOAD_S)
    ends = {"A": a.end, "B": b.end}
    told = service.log.read_text
    until(
        lambda: service.ok("GET", "/statistics", 200)["input_rows"] >= sum(ends.values()),
        lambda: told()[-4000:],
    )
    counted = service.ok("GET", "/queries/q", 200)["results"]
    assert counted == _expected(rows, ends), "the counts differ"
    read = follower.reading.pairs
    # What was there when reading began is not a result that came while it was read.
    fresh = read[read["read_us"] > read["read_us"][0] + 2e6]
    found = latencies_s(fresh, {"A": a.posted, "B": b.posted})
    p50_s, p99_s = np.quantile(found, (0.5, 0.99)).tolist()
    return {"latency, p50, s": p50_s, "latency, p99, s": p99_s}


def _expected(rows: LiveRows, ends: Mapping[str, int]) -> int:
    """Return how many pairs DuckDB finds."""
    a, b = (pa.table(rows.of(name, 0, ends[name])) for name in STREAMS)  # DuckDB finds them by name
    assert a.num_rows + b.num_rows == sum(ends.values())
    apart = f"abs(a.ts - b.ts) < {WINDOW_S * 1_000_000}"
    ((count,),) = duckdb.sql(f"SELECT count(*) FROM a JOIN b ON a.k = b.k AND {apart}").fetchall()
    return int(count)


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sluice-cluster-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


def rate(runs: int, scale: float) -> Iterator[tuple[str, Figures]]:
    """Yield the figures of each run of many-keys, by side."""
    with _directory() as directory, cluster(directory, engines=0, apis=0) as made:
        host = made.add_engine(RUNNER)
        for number in range(runs):
            yield LOCAL, rates(made, None, 2 * number, scale)
            yield APART, rates(made, host, 2 * number + 1, scale)


def live(runs: int, _: float) -> Iterator[tuple[str, Figures]]:
    """Yield the figures of each run of the live service, by side."""
    for _number in range(runs):
        with _directory() as directory, loaded_service(directory) as loaded:
            yield LOCAL, latencies(loaded.service)
        with _directory() as directory, cluster(directory) as made:
            (api,) = made.apis
            yield APART, latencies(api)


PARTS = {"rate": rate, "live": live}


def main(
    part: Annotated[list[str] | None, typer.Option(help=f"Only: {', '.join(PARTS)}.")] = None,
    runs: Runs = 3,
    scale: Annotated[float, typer.Option(min=0.01, max=1, help="Part of the rows of many-keys.")] = 1.0,
) -> None:
    """Measure, and print medians."""
    lines = []
    for name in chosen(part, list(PARTS), "part"):
        found: dict[str, list[Figures]] = {LOCAL: [], APART: []}
        for side, figures in PARTS[name](runs, scale):
            found[side].append(figures)
            typer.echo(f"{side}: {figures}", err=True)
        for figure in found[LOCAL][0]:
            local, apart = (median(run[figure] for run in found[side]) for side in (LOCAL, APART))
            lines.append((figure, local, apart, apart / local))
    typer.echo(table((f"medians of {runs} runs", LOCAL, APART, "ratio"), lines))


if __name__ == "__main__":
    typer.run(main)
