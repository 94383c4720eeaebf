"""A run whose chains are split, merged, left behind, cleaned up and rolled back gives the oracle's rows.

`make test` plans the script as `sluice run` does, and runs the plans in this process.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.store.store import Store
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from service.documents.workload import bind_workload, load_workload
from service.inputs.reading.sample import WorkloadRows
from service.planning.preview import Statistician
from service.planning.records.plan_record import record_in
from service.planning.versions import Versions
from service.statistics.samples.sampling import SampleCache
from service.workspace.bounded_run import _set_up
from tests.operators.harness import Runner
from tests.sluice_run import finish, start

BATCHES, ROWS_PER_FILE, KEYS = 10, 200, 7
#: Event time between two rows of a stream, µs; the windows are of a few files.
STEP_US = 50_000
WINDOWS_S = {"q1": 3, "q2": 12, "gone": 25}

SCRIPT = [
    {"at_batch": 2, "migrate": {"splits": [{"at": "7s"}], "merges": [{"at": "3s", "side": "A"}]}},
    {"at_batch": 3, "migrate": {"on_leave": "manual"}},
    {"at_batch": 4, "remove": "gone"},
    {"at_batch": 5, "migrate": {"strategy": "pullup"}},
    {"at_batch": 6, "migrate": {"rollback_to": 2}},
    {"at_batch": 7, "migrate": {"cleanup": True}},
    {"at_batch": 8, "migrate": {"family_strategies": {"A.k = B.k": "pushdown"}, "on_leave": "auto"}},
    {"at_batch": 9, "migrate": {"family_strategies": {"A.k = B.k": None}, "strategy": "cpu-opt"}},
]


def cql(window_s: int) -> str:
    window = f"[RANGE {window_s} SECONDS]"
    return f"SELECT A.n AS a, B.n AS b FROM A {window}, B {window} WHERE A.k = B.k AND A.n % 3 < 2"


def workload(directory: Path) -> Path:
    """Write two streams of files that arrive one a batch, and the workload over them."""
    streams = []
    for shift, name in enumerate("AB"):
        (directory / name).mkdir()
        for batch in range(BATCHES):
            numbers = range(batch * ROWS_PER_FILE, (batch + 1) * ROWS_PER_FILE)
            columns = {
                "ts": pa.array([n * STEP_US + shift * 1000 for n in numbers], pa.timestamp("us")),
                "k": pa.array([(n * (shift + 1)) % KEYS for n in numbers], pa.int64()),
                "n": pa.array(list(numbers), pa.int64()),
            }
            pq.write_table(pa.table(columns), directory / name / f"{batch:02}.parquet")
        source = {"type": "files", "format": "parquet", "path": name, "max_files_per_batch": 1}
        columns_of = {"ts": "timestamp", "k": "bigint", "n": "bigint"}
        streams.append({"name": name, "columns": columns_of, "event_time": "ts", "source": source})
    queries = [{"name": name, "cql": cql(window)} for name, window in WINDOWS_S.items()]
    file = directory / "workload.yaml"
    file.write_text(json.dumps({"streams": streams, "queries": queries, "script": SCRIPT}))
    return file


def oracle(directory: Path, window_s: int) -> Counter[tuple[int, int]]:
    window = f"INTERVAL {window_s} SECONDS"
    found = duckdb.sql(
        f"SELECT a.n, b.n FROM '{directory}/A/*.parquet' a, '{directory}/B/*.parquet' b "
        f"WHERE a.k = b.k AND a.n % 3 < 2 AND (b.ts >= a.ts AND b.ts - a.ts < {window} "
        f"OR a.ts > b.ts AND a.ts - b.ts < {window})"
    )
    return Counter(found.fetchall())


def check_history(store: Store) -> None:
    entries = store.plan_history.page()
    changes = {e.version: [step["text"] for step in record_in(e).changes] for e in entries}
    assert {e.actor for e in entries} == {"script"}
    assert changes[2] == ["merge A at 3s", "split A at 7s", "split B at 7s"]
    assert "truncate A from 25s to 12s" not in changes[4]
    assert [text for text in changes[7] if text.startswith("truncate")] == []


def test_the_plans_of_every_kind_of_migration_give_the_oracle_s_rows(store: Store, tmp_path: Path) -> None:
    statistician = Statistician(store, WorkloadRows(), 2, 1000, SampleCache())
    versions = Versions(store, statistician, Objective())
    _set_up(bind_workload(load_workload(workload(tmp_path))), tmp_path, versions, SHIPPED)
    check_history(store)
    plans = {record.at_batch: record.plan for record in store.control_log.records(0)}
    assert len(plans) == 1 + len(SCRIPT)
    streams = {stream.id: stream for stream in store.streams.all()}
    ids = {record.query.name: record.query.id for record in store.queries.running()}
    runner = Runner(streams, 2, slack_us=None)
    for batch in range(BATCHES):
        rows = {}
        for stream_id, stream in streams.items():
            table = pq.read_table(tmp_path / stream.name / f"{batch:02}.parquet")
            rows[stream_id] = table.append_column("_pos", table["n"])
        plan = plans.get(batch)
        runner.step(rows, () if plan is None else (plan,))
    for name in ("q1", "q2"):
        found = Counter({(a, b): n for (query, a, b), n in runner.results.items() if query == ids[name]})
        assert found == oracle(tmp_path, WINDOWS_S[name])


@pytest.mark.slow
@pytest.mark.spark
def test_a_script_of_every_kind_of_migration_gives_the_oracle_s_rows(tmp_path: Path) -> None:
    file, out = workload(tmp_path), tmp_path / "out"
    run = finish(start(file, out))
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.summary["plan_version"] == 1 + len(SCRIPT)
    for name in ("q1", "q2"):
        files = f"'{out}/{name}/*.parquet'"
        results = Counter(duckdb.sql(f"SELECT a, b FROM {files}").fetchall())
        expected = oracle(tmp_path, WINDOWS_S[name])
        print(f"{name}: {sum(expected.values())} results")
        assert results == expected
    with Store.open(f"sqlite:///{out}/_sluice/catalog.db") as store:
        check_history(store)
