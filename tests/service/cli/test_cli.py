"""The command line as a shell sees it: what it prints, where, and its exit code.

Most commands run inside the test's process, through the entry point of the console script: an interpreter of
their own takes 2 s of imports each. Those that end a process in their own way have one.
"""

import errno
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from catalog.errors import SluiceError
from service.cli.client_cli import _cql, _sink
from tests.sluice_run import Command
from tests.sluice_run import sluice as sluice_process

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


@pytest.fixture
def posted(tmp_path: Path) -> Path:
    """The same workload without files."""
    path = tmp_path / "posted.yaml"
    path.write_text(re.sub(r"type: files, path: \w", "type: http", WORKLOAD))
    return path


def test_the_plan_of_a_workload_is_printed(sluice: Command, posted: Path) -> None:
    done = sluice("plan", posted)

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "family A.k = B.k",
        "  slice 1 [0s, 10s)   queries q1 q2",
        "  slice 2 [10s, 30s)  queries q2  keep A.v < 0.2",
        "",
    ]
    assert [line.split()[0] for line in lines[5:10]] == [
        "unshared",
        "pullup",
        "pushdown",
        "mem-opt",
        "cpu-opt",
    ]
    assert lines[8].endswith("chosen")
    assert lines[10].startswith("  mem-opt (fewest rows): decided by memory rows, ")
    assert lines[11] == "  A: 1,000 rows/s (assumed), 64 bytes/row (assumed)"
    assert lines[12] == "    0.5 pass A.v < 0.2 (assumed)"


@pytest.mark.slow
def test_the_installed_script_is_the_same_command(sluice: Command, workload: Path) -> None:
    script = Path(sys.executable).with_name("sluice")

    done = subprocess.run([script, "plan", workload], capture_output=True, text=True, check=True)

    assert done.stdout == sluice_process("plan", workload).stdout == sluice("plan", workload).stdout


@pytest.mark.slow
def test_a_process_prints_an_error_and_exits_as_the_command_does(sluice: Command, workload: Path) -> None:
    one, other = (run("plan", workload, "--chain", "10") for run in (sluice, sluice_process))

    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)
    assert other.returncode == 2


def test_a_plan_can_be_asked_for_under_other_statistics_and_with_a_chain(
    sluice: Command, posted: Path, tmp_path: Path
) -> None:
    statistics = tmp_path / "statistics.yaml"
    statistics.write_text(
        "streams: {A: {rate: 50, row_bytes: 48}, B: {rate: 50}}\n"
        "filters: {0.2 > A.v: 0.2}\n"
        "join_selectivity: 0.025\n"
    )
    options = ("--statistics", statistics, "--cost-model", "paper", "--c-sys", "100", "--strategy", "cpu-opt")
    done = sluice("plan", posted, *options, "--chain", "10, 30s")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("family A.k = B.k  cpu-opt\n")
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.startswith("  ")}
    assert rows["chain"][1:5] == rows["mem-opt"][1:5]  # the same boundaries
    assert rows["mem-opt"][1] == "2,200"  # Equation 3
    assert "cpu-opt (least CPU of all chains, paper model): beaten by pushdown by system, " in done.stdout
    assert "  A: 50 rows/s (given), 48 bytes/row (given)\n    0.2 pass A.v < 0.2 (given)\n" in done.stdout


def test_the_json_of_a_plan_has_costs_and_statistics(sluice: Command, posted: Path) -> None:
    done = sluice("plan", posted, "--format", "json", "--chain", "A=10,30", "--chain", "B=30")
    document = json.loads(done.stdout)

    (family,) = document["families"]
    assert list(family["costs"]) == ["unshared", "pullup", "pushdown", "mem-opt", "cpu-opt"]
    assert family["chain"]["joins"][0]["boundaries_s"] == {"a": [10.0, 30.0], "b": [30.0]}
    assert family["chains"]["a"][0]["cost"]["comparisons_per_s"]["probe"] > 0
    assert document["statistics"]["streams"]["A"]["rate"]["origin"] == "assumed"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--chain", "10"], 'the chain of "A" ends at 10 s, not at the largest window'),
        (["--chain", "10,x"], 'chain "10,x": "x" is not a length of time'),
        (["--chain", "0,30"], 'chain "0,30": a slice cannot end at 0'),
        (["--chain", "C=30"], '"C" is not a side of the family'),
        (["--chain", "A=10,30"], 'the chain of "B" is missing'),
        (["--chain", "30", "--chain", "A=30"], "one --chain is for both streams, another for one stream"),
        (["--chain", "30", "--chain-family", "A.k = B.v"], 'family "A.k = B.v" does not exist'),
    ],
)
def test_a_chain_that_is_invalid_exits_2(
    sluice: Command, posted: Path, options: list[str], error: str
) -> None:
    done = sluice("plan", posted, *options)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {error}\n")


@pytest.mark.parametrize(
    ("text", "place", "error"),
    [
        ("streams: {A: {rate: -1}}", "1:21", "rate: expected at least 0, not -1"),
        ("streams: {A: {rat: 1}}", "1:15", 'key "rat" is not known'),
        ("streams: {AA: {rate: 1}}", "1:15", 'stream "AA" does not exist'),
        ("join_selectivity: 2", "1:19", "join_selectivity: expected at most 1, not 2"),
        ("filters: {A.v < 0.3: 0.5}", "1:22", 'no query has the filter "A.v < 0.3"'),
        ("filters: {A.v <: 0.5}", "1:11", "the query ends too early"),
        ("[", "2:1", "not valid YAML: expected the node content, but found '<stream end>'"),
    ],
)
def test_statistics_that_are_invalid_exit_2_with_their_place(
    sluice: Command, workload: Path, tmp_path: Path, text: str, place: str, error: str
) -> None:
    statistics = tmp_path / "statistics.yaml"
    statistics.write_text(text + "\n")
    done = sluice("plan", workload, "--statistics", statistics)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {statistics}:{place}: {error}\n")


def test_options_of_a_workload_are_refused_without_one(sluice: Command) -> None:
    done = sluice("plan", "--strategy", "cpu-opt")

    assert done.returncode == 2
    assert done.stderr.startswith("error: --strategy needs a workload file\n")


@pytest.mark.parametrize(
    ("form", "start"), [("json", "{"), ("mermaid", "flowchart"), ("dot", "digraph"), ("svg", "<svg ")]
)
def test_the_plan_has_other_forms(sluice: Command, workload: Path, form: str, start: str) -> None:
    done = sluice("plan", workload, "--format", form)

    assert done.returncode == 0
    assert done.stdout.startswith(start)
    if form == "json":
        assert json.loads(done.stdout)["version"] == 1


def test_a_plan_says_once_which_files_it_could_not_use(
    sluice: Command, workload: Path, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.parquet").write_text("no Parquet")
    (tmp_path / "b" / "2024").mkdir(parents=True)

    done = sluice("plan", workload)

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "family A.k = B.k")
    aside, absent = sorted(done.stderr.splitlines())
    assert aside.startswith(
        f'warning: file "{tmp_path}/a/1.parquet" of stream "A" is set aside: it is not a valid'
    )
    assert absent == (
        f'warning: stream "B" has no files: "{tmp_path}/b" holds none, but 1 directory; '
        f'write path: "{tmp_path}/b/**/*" to read the files in it'
    )


def test_a_plan_says_which_sources_do_not_exist(sluice: Command, workload: Path, tmp_path: Path) -> None:
    done = sluice("plan", workload)

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "family A.k = B.k")
    assert sorted(done.stderr.splitlines()) == [
        f'warning: stream "{stream}" has no files: "{tmp_path / stream.lower()}" does not exist'
        for stream in ("A", "B")
    ]


def test_a_plan_is_made_without_files_that_may_not_be_read(
    sluice: Command, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()

    def refused(path: str) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("service.inputs.reading.sample.candidates", refused)
    done = sluice("plan", workload)

    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == (
        f"warning: files of stream \"A\" cannot be read: [Errno 13] Permission denied: '{tmp_path / 'a'}'"
    )


def test_a_bad_workload_exits_2_with_its_place_and_writes_nothing(
    sluice: Command, workload: Path, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    workload.write_text(WORKLOAD.replace("B.k AND", "B.kk AND"))

    done = sluice("run", workload, "--out", tmp_path / "out")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f'error: {workload}:6:87: column "kk" does not exist in stream "B"\n')
    assert 'hint: Did you mean "k"?' in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_source_that_does_not_exist_exits_2_and_writes_nothing(
    sluice: Command, workload: Path, tmp_path: Path
) -> None:
    done = sluice("run", workload, "--out", tmp_path / "out")

    assert done.returncode == 2
    assert f'{tmp_path / "a"}" of stream "A" does not exist' in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_option_exits_2(sluice: Command) -> None:
    assert sluice("run", "--nonsense").returncode == 2


def test_a_value_out_of_range_exits_2(sluice: Command, workload: Path, tmp_path: Path) -> None:
    done = sluice("run", workload, "--out", tmp_path / "out", "--buckets", "0")

    assert done.returncode == 2
    assert 'setting "buckets" cannot be 0' in done.stderr


def test_without_a_service_the_client_says_how_to_start_one(sluice: Command) -> None:
    done = sluice("query", "list", "--url", "http://127.0.0.1:9")

    assert done.returncode == 1
    assert 'no answer from "http://127.0.0.1:9"' in done.stderr
    assert "sluice serve" in done.stderr


def test_help_loads_neither_spark_nor_sqlglot() -> None:
    heavy = {"pyspark", "sqlglot", "pandas", "duckdb"}
    code = f"import sys, api.main; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("written", "primary"),
    [
        ('{"type": "files",', "the sink is not valid JSON"),
        ("@missing.yaml", 'file "missing.yaml" cannot be read'),
        ("@list.yaml", 'file "list.yaml" does not describe a sink'),
        ("tape:alerts", '"tape:alerts" is not a sink'),
    ],
)
def test_a_sink_that_cannot_be_read_is_refused(
    written: str, primary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.yaml").write_text("- parquet\n")
    with pytest.raises(SluiceError) as refused:
        _sink(written)
    assert refused.value.primary == primary


@pytest.mark.parametrize(
    ("words", "primary"),
    [
        ((), "there is no CQL text"),
        (("SELECT 1", "--file", "q.cql"), "the CQL text is given twice"),
        (("--file", "missing.cql"), 'file "missing.cql" cannot be read'),
        (("-f", "latin.cql"), 'file "latin.cql" is not UTF-8 text'),
    ],
)
def test_a_text_that_is_not_there_is_refused(
    words: tuple[str, ...], primary: str, sluice: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.cql").write_bytes("SELECT é".encode("latin-1"))
    for command in (("add", "q"), ("validate",)):
        done = sluice("query", *command, *words, "--url", "http://127.0.0.1:9")
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {primary}")


def test_a_text_is_read_from_a_file_or_from_stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "SELECT a.k -- é\nFROM A a"
    (tmp_path / "q.cql").write_bytes(b"\xef\xbb\xbf" + text.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert _cql(None, str(tmp_path / "q.cql")) == _cql(None, "-") == _cql(text, None) == text


def test_a_sink_is_said_in_json_or_in_a_file(tmp_path: Path) -> None:
    sink = {
        "type": "postgres",
        "server": "db:5432",
        "database": "d",
        "user": "u",
        "password": {"env": "SLUICE_SECRET_DB"},
        "table": "alerts",
        "key": ["k"],
    }
    file = tmp_path / "sink.yaml"
    file.write_text(
        "type: postgres\nserver: db:5432\ndatabase: d\nuser: u\npassword: {env: SLUICE_SECRET_DB}\n"
        "table: alerts\nkey: [k]\n"
    )
    assert _sink(json.dumps(sink)) == _sink(f"@{file}") == {"sink": sink}
