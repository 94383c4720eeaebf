"""A script that cannot be carried out is refused with its place, before anything of the run is written."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errors import InvalidInput
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.stream import GeneratorSource
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from service.config.settings import load_settings
from service.documents.workload import bind_workload, load_workload
from service.inputs.reading.sample import WorkloadRows
from service.planning import changes
from service.planning.preview import Statistician
from service.planning.versions import Versions
from service.statistics.samples.sampling import SampleCache
from service.workspace.bounded_run import _progress, _rows_there, _set_up, rehearse, run_workload
from tests.sluice_run import Command

KEY = "A.k = B.k"


def cql(window_s: int, streams: str = "A B") -> str:
    a, b = streams.split()
    window = f"[RANGE {window_s} SECONDS]"
    return f"SELECT {a}.k FROM {a} {window}, {b} {window} WHERE {a}.k = {b}.k"


def write(directory: Path, *script: dict[str, Any]) -> Path:
    """Write a workload of two queries over two streams of one file each; a step of the script per line."""
    columns = {"ts": pa.array(range(100), pa.timestamp("us")), "k": pa.array(range(100), pa.int64())}
    lines = ["streams:"]
    for name in "ABC":
        (directory / name).mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), directory / name / "0.parquet")
        source = {"type": "files", "format": "parquet", "path": name}
        types = {"ts": "timestamp", "k": "bigint"}
        stream = {"name": name, "columns": types, "event_time": "ts", "source": source}
        lines.append(f"  - {json.dumps(stream)}")
    lines.append("queries:")
    lines += [f"  - {json.dumps({'name': f'q{w}', 'cql': cql(w)})}" for w in (10, 30)]
    lines += ["script:", *(f"  - {json.dumps(step)}" for step in script)]
    file = directory / "workload.yaml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


#: The script begins in line 9.
@pytest.mark.parametrize(
    ("script", "line", "message"),
    [
        ([{"at_batch": 2, "migrate": {"merges": [{"at": "15s"}]}}], 9, "no slices of A meet at 15s"),
        ([{"at_batch": 2, "migrate": {"splits": [{"at": "10s"}]}}], 9, "slices of A meet at 10s already"),
        (
            [{"at_batch": 1, "remove": "q10"}, {"at_batch": 2, "migrate": {"merges": [{"at": "10s"}]}}],
            10,
            "no slices of A meet at 10s",
        ),
        (
            [
                {"at_batch": 1, "migrate": {"strategy": "unshared"}},
                {"at_batch": 4, "migrate": {"splits": [{"at": "5s"}]}},
            ],
            10,
            "has no chain to split or merge",
        ),
        (
            [
                {"at_batch": 1, "add": {"name": "other", "cql": cql(5, "A C")}},
                {"at_batch": 1, "migrate": {"merges": [{"at": "10s"}]}},
            ],
            10,
            "the merge does not say which of 2 families it is for",
        ),
        ([{"at_batch": 3, "migrate": {"rollback_to": 7}}], 9, "the history has no plan version 7"),
    ],
)
def test_what_the_versions_before_do_not_allow_is_refused_at_its_line(
    tmp_path: Path, script: list[dict[str, Any]], line: int, message: str
) -> None:
    file = write(tmp_path, *script)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidInput) as caught:
        run_workload(
            bind_workload(load_workload(file)),
            tmp_path / "out",
            results="per-query",
            settings=load_settings(data_dir=tmp_path / "none", buckets=2),
        )
    assert message in caught.value.primary
    location = caught.value.location
    assert location is not None
    assert (location.file, location.line) == (str(file), line)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_exits_2_with_file_line_and_cause(sluice: Command, tmp_path: Path) -> None:
    file = write(tmp_path, {"at_batch": 2, "migrate": {"merges": [{"at": "15s", "family": KEY}]}})
    done = sluice("run", file, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {file}:9:")
    assert "no slices of A meet at 15s\n" in done.stderr
    assert "hint: Merge at 10s." in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_sound_script_passes_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    file = write(
        tmp_path,
        {"at_batch": 1, "migrate": {"splits": [{"at": "15s"}], "merges": [{"at": "10s"}]}},
        {"at_batch": 2, "add": {"name": "late", "cql": cql(60)}},
        {"at_batch": 3, "migrate": {"merges": [{"at": "30s"}]}},
        {"at_batch": 4, "migrate": {"rollback_to": 1}},
        {"at_batch": 5, "migrate": {"strategy": "cpu-opt"}},
    )
    settings = load_settings(data_dir=tmp_path / "none", buckets=2)
    rehearse(bind_workload(load_workload(file)), Objective(), SHIPPED, settings, SampleCache())
    assert list(scratch.iterdir()) == []


GENERATED = """\
streams:
  - name: A
    columns: {ts: timestamp, k: bigint}
    event_time: ts
    source: {type: generator, rate_per_s: 9, rows: 7}
  - name: B
    columns: {ts: timestamp, k: bigint}
    event_time: ts
    source: {type: generator, rate_per_s: 9, rows: 5, start: 2026-01-01T00:00:00Z}
queries: [{name: q, cql: "SELECT A.k FROM A [NOW], B [NOW] WHERE A.k = B.k"}]
"""


def test_a_generator_of_a_run_starts_when_the_run_is_set_up(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "workload.yaml"
    file.write_text(GENERATED, encoding="utf-8")
    statistician = Statistician(store, WorkloadRows(), 2, 1000, SampleCache())
    before_us = wall_clock_us()
    for _ in range(2):  # a restarted run keeps its first start time
        _set_up(
            bind_workload(load_workload(file)),
            tmp_path,
            Versions(store, statistician, Objective("mem-opt")),
            SHIPPED,
        )
    a, b = (stream.source for stream in store.streams.all())
    assert isinstance(a, GeneratorSource)
    assert isinstance(b, GeneratorSource)
    assert a.start_us is not None
    assert before_us <= a.start_us <= wall_clock_us()
    assert b.start_us == 1_767_225_600_000_000
    assert _rows_there(store) == 12
    assert (_progress(store, 12).rows, _progress(store, 12).batches) == (0, 0)


def test_a_run_binds_each_text_once(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind_workload(
        load_workload(write(tmp_path, {"at_batch": 1, "add": {"name": "q", "cql": cql(60)}}))
    )
    again: list[str] = []
    monkeypatch.setattr(changes, "bind", lambda text, *_, **__: again.append(text))
    statistician = Statistician(store, WorkloadRows(), 2, 1000, SampleCache())

    _set_up(bound, tmp_path, Versions(store, statistician, Objective("mem-opt")), SHIPPED)

    assert again == []
    assert {record.query.name for record in store.queries.running()} >= {"q"}
