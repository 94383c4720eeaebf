"""The command line as a shell sees it: what it prints, where, and its exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOAD = """\
streams:
  - {name: A, columns: {ts: timestamp, k: bigint, v: double}, event_time: ts, source: {type: files, path: a}}
  - {name: B, columns: {ts: timestamp, k: bigint}, event_time: ts, source: {type: files, path: b}}
queries:
  - {name: q1, cql: "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k"}
  - {name: q2, cql: "SELECT A.k FROM A [RANGE 30 SEC], B [RANGE 30 SEC] WHERE A.k = B.k AND A.v < 0.2"}
"""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "workload.yaml"
    path.write_text(WORKLOAD)
    return path


def sluice(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_plan_of_a_workload_is_printed(workload: Path) -> None:
    done = sluice("plan", workload)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "family A.k = B.k\n"
        "  slice 1 [0s, 10s)   queries q1 q2\n"
        "  slice 2 [10s, 30s)  queries q2  keep A.v < 0.2\n"
    )


@pytest.mark.parametrize(("form", "start"), [("json", "{"), ("mermaid", "flowchart"), ("dot", "digraph")])
def test_the_plan_has_other_forms(workload: Path, form: str, start: str) -> None:
    done = sluice("plan", workload, "--format", form)

    assert done.returncode == 0
    assert done.stdout.startswith(start)
    if form == "json":
        assert json.loads(done.stdout)["version"] == 1


def test_a_bad_workload_exits_2_with_its_place_and_writes_nothing(workload: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    workload.write_text(WORKLOAD.replace("B.k AND", "B.kk AND"))

    done = sluice("run", workload, "--out", tmp_path / "out")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f'error: {workload}:6:87: column "kk" does not exist in stream "B"\n')
    assert 'hint: Did you mean "k"?' in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_source_that_does_not_exist_exits_2_and_writes_nothing(workload: Path, tmp_path: Path) -> None:
    done = sluice("run", workload, "--out", tmp_path / "out")

    assert done.returncode == 2
    assert f'{tmp_path / "a"}" of stream "A" does not exist' in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_option_exits_2() -> None:
    assert sluice("run", "--nonsense").returncode == 2


def test_a_value_out_of_range_exits_2(workload: Path, tmp_path: Path) -> None:
    done = sluice("run", workload, "--out", tmp_path / "out", "--buckets", "0")

    assert done.returncode == 2
    assert 'setting "buckets" cannot be 0' in done.stderr


def test_without_a_service_the_client_says_how_to_start_one() -> None:
    done = sluice("query", "list", "--url", "http://127.0.0.1:9")

    assert done.returncode == 1
    assert 'no answer from "http://127.0.0.1:9"' in done.stderr
    assert "sluice serve" in done.stderr


def test_help_loads_neither_spark_nor_sqlglot() -> None:
    heavy = {"pyspark", "sqlglot", "pandas", "duckdb"}
    code = f"import sys, service.cli; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
