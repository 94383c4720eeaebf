"""The peers benchmark at small sizes: that it runs and counts right; rates are for a quiet machine."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.bench.peers.__main__ import main
from tests.bench.peers.batch_join import count_results
from tests.bench.peers.expected import differences, expected_counts
from tests.bench.peers.flink_join import _PRINTED, _counted, _progress, _view
from tests.bench.peers.inputs import write_csv, write_streams
from tests.bench.peers.job import Batch, Job, Ran, answer, read_answer, read_job, write_job
from tests.bench.peers.measure import share_of
from tests.bench.peers.measurement import Measurement, Rates, rates_of
from tests.bench.peers.medians import sections
from tests.bench.peers.pathway_join import Counts
from tests.bench.peers.pathway_join import _progress as pathway_progress
from tests.bench.peers.peers import PEERS
from tests.bench.peers.processes import ProgramFailed, run_program
from tests.bench.peers.report import merge, read_report, write_report
from tests.bench.peers.targets import TARGETS
from tests.bench.peers.workloads import WORKLOADS, Query, Streams

#: Three keys, so that windows far smaller than the input have partners.
FEW = Streams(rows=1200, files=4, rate_per_s=100, keys=3)
QUERIES = (Query("q1", 20_000), Query("q2", 500_000, a_below=0.3), Query("q3", 200_000, b_below=0.5))


def test_workloads_are_as_they_are_described() -> None:
    selective, fan_out = WORKLOADS["selective"].queries, WORKLOADS["fan-out"].queries
    for queries, count in ((selective, 100), (fan_out, 1000)):
        assert len(queries) == len({(q.window_us, q.a_below, q.b_below) for q in queries}) == count
        assert len({q.window_us for q in queries}) == 50
        assert len({(q.a_below, q.b_below) for q in queries}) == 40
    assert [q.window_us for q in WORKLOADS["many-keys"].queries] == [2_500_000 * n for n in range(1, 13)]
    lengths = [WORKLOADS[f"long-window-{n}"] for n in (1, 10, 100)]
    partners = [w.streams.rate_per_s * w.largest.window_us / w.streams.keys for w in lengths]
    assert partners == pytest.approx([partners[0]] * 3, rel=1e-3)
    assert lengths[2].largest.window_us == 100 * lengths[0].largest.window_us


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_a_small_form_and_known_peers(name: str) -> None:
    workload = WORKLOADS[name]
    small = workload.quick()
    assert small.streams.rows <= 200_000
    assert len(small.queries) == len(workload.queries)
    assert set(workload.peers) <= set(PEERS)
    asked = workload.asked("each")
    assert len(asked) == min(len(workload.queries), workload.most_joins)
    assert max(q.window_us for q in asked) == workload.largest.window_us
    assert all(0 < share_of(workload, peer) <= 1 for peer in PEERS.values())


def test_a_part_of_the_streams_is_whole_files_and_never_fewer_than_four() -> None:
    streams = WORKLOADS["many-keys"].streams
    assert (streams.first(0.5).rows, streams.first(0.5).files) == (5_000_000, 10)
    assert (streams.first(0.001).rows, streams.first(0.001).files) == (10_000, 4)
    assert streams.first(1.0) == streams


@pytest.mark.parametrize("streams", [FEW, replace(FEW, keys=600), replace(FEW, keys=50, zipf=1.2)])
def test_both_forms_of_the_batch_join_count_what_nested_loops_count(tmp_path: Path, streams: Streams) -> None:
    directory = write_streams(tmp_path, streams)
    found = expected_counts(directory, streams, QUERIES)
    assert found == count_results(directory, QUERIES, replace(streams, keys=1)) == nested_loops(directory)
    assert found == expected_counts(directory, streams, QUERIES)  # as kept beside the files
    assert sum(found.values()) > 0


def nested_loops(directory: Path) -> dict[str, int]:
    with duckdb.connect() as connection:
        a, b = (
            connection.sql(f"SELECT epoch_us(ts), k, v FROM '{directory / s}/*.parquet'").fetchall()
            for s in "AB"
        )
    return {
        q.name: sum(
            x[1] == y[1]
            and abs(x[0] - y[0]) < q.window_us
            and (q.a_below is None or x[2] < q.a_below)
            and (q.b_below is None or y[2] < q.b_below)
            for x in a
            for y in b
        )
        for q in QUERIES
    }


def test_csv_copies_hold_the_same_rows_in_order(tmp_path: Path) -> None:
    directory = write_streams(tmp_path, FEW)
    for header in (False, True):
        lines = (write_csv(directory, header=header) / "A.csv").read_text(encoding="utf-8").splitlines()
        rows = [line.split(",") for line in lines[header:]]
        assert len(rows) == FEW.rows
        assert [int(r[0]) for r in rows] == sorted(int(r[0]) for r in rows)
        assert (lines[0] == "us,k,v") == header


def test_a_job_and_its_answer_come_through_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job("in", "scratch", FEW, QUERIES, 2, 4, {"rocksdb": True})
    write_job(tmp_path / "job.json", job)
    assert read_job(str(tmp_path / "job.json")) == job
    ran = Ran({"q1": 3}, 10, 1.5, [[Batch(0.0, 1.0, 10)]], True, {"Engine": "1"})
    print("what the engine has to say")
    answer(ran)
    assert read_answer(capsys.readouterr().out) == ran


def test_steady_state_begins_when_every_join_has_done_two_batches() -> None:
    fast = [Batch(float(n), n + 1.0, 100) for n in range(4)]
    assert rates_of(Ran({}, 400, 5.0, [fast]), 8.0, files=4) == Rates(50.0, 80.0, 100.0)
    slow = [Batch(2.0 * n, 2.0 * n + 2.0, 100) for n in range(4)]
    # From 4 s, when the slower one has done two; the other one is done by then.
    assert rates_of(Ran({}, 400, 8.0, [fast, slow]), 8.0, files=4).steady == 25.0
    # One batch of everything leaves no steady state, nor does an engine without batches.
    assert rates_of(Ran({}, 400, 8.0, [[Batch(0.0, 8.0, 400)]]), 8.0, files=4).steady is None
    assert rates_of(Ran({}, 400, 8.0), 8.0, files=4).steady is None


def test_counts_that_differ_are_named() -> None:
    assert differences({"q1": 1, "q2": 2}, {"q1": 1, "q2": 2}) == ""
    assert differences({"q1": 1}, {"q1": 1, "q2": 2000}) == "q2: 0 instead of 2,000"
    many = {f"q{n}": 1 for n in range(5)}
    assert differences({}, many).endswith("; and 2 more")


def test_flink_prints_and_statements_are_understood() -> None:
    found = [_PRINTED.match(line) for line in ("q1> +I[7]", "q2:1> +I[12]", "some warning")]
    assert [m and (m["name"], m["count"]) for m in found] == [("q1", "7"), ("q2", "12"), None]
    view = _view(Query("q7", 2_500_000, a_below=0.2))
    assert "INTERVAL '0 00:00:02.500' DAY TO SECOND(3)" in view
    assert "ABS(a.us - b.us) < 2500000 AND a.v < 0.2" in view
    # 12 s of input, a hundred windows.
    assert "INTERVAL '0 00:00:00.120' DAY TO SECOND(3)" in _counted(
        "A", "A", Job("in", "scratch", FEW, (), 2, 4)
    )
    assert _progress([(2.0, 10), (3.0, 20)], 1.0, 5.0) == [Batch(1.0, 2.0, 10), Batch(2.0, 5.0, 20)]


def test_pathway_has_joined_what_every_count_has_closed() -> None:
    counts = Counts(["A", "B", "q1"], rows=20)
    counts.changed("A", 10, 2)
    counts.changed("B", 20, 2)
    for name in ("A", "B"):
        counts.closed(name, 2)
    assert counts.done == []
    counts.closed("q1", 2)
    counts.changed("A", 20, 4)
    assert not counts.finished.is_set()
    for name in ("q1", "B", "A"):
        counts.closed(name, 4)
    assert [rows for _, rows in counts.done] == [30, 40]
    assert counts.finished.is_set()
    assert pathway_progress([(2.0, 30), (5.0, 40)], 1.0) == [Batch(1.0, 2.0, 30), Batch(2.0, 5.0, 10)]


def test_a_program_that_fails_or_takes_too_long_is_told() -> None:
    with pytest.raises(ProgramFailed, match="exit status 3"):
        run_program([sys.executable, "-c", "raise SystemExit(3)"], 30)
    with pytest.raises(ProgramFailed, match="not done after 1 s"):
        run_program([sys.executable, "-c", "import time; time.sleep(60)"], 1)
    assert run_program([sys.executable, "-c", "print('done')"], 30).stdout == "done\n"


def measured(workload: str, peer: str, run: int, rate: float, sluice: float, **facts: Any) -> Measurement:
    one = Measurement(workload, peer, run, 1.0, 1.0, False, 20_000, 12, 12, machine="a machine")
    rates, own = Rates(rate / 2, rate, rate * 2), Rates(sluice / 2, sluice, sluice * 2)
    return replace(one, **{"rates": rates, "sluice": own, "versions": {"Engine": "1"}, **facts})


def test_the_report_is_written_of_medians_and_says_what_failed(tmp_path: Path) -> None:
    found: list[Measurement] = []
    for run, sluice in enumerate((900.0, 1000.0, 1100.0), 1):
        for workload in WORKLOADS:
            found = merge(found, measured(workload, "sluice", run, sluice, sluice))
            found = merge(found, measured(workload, "spark-hand", run, 50.0, sluice))
        found = merge(found, measured("many-keys", "duckdb", run, 9000.0, sluice))
        wrong = "results differ: q1: 5 instead of 7"
        found = merge(found, measured("many-keys", "flink-heap", run, 10.0, sluice, error=wrong))
    text = write_report(tmp_path, found)
    assert "a machine; Engine 1. Medians of up to 3 runs" in text
    assert "| many-keys | the best sharing by hand | ≥ 20 | 20 ✓ | 20 ✓ |" in text
    assert "| many-keys | DuckDB's batch join over Sluice | ≤ 8 | 9 ✗ |" in text
    assert "| flink-heap | 12 | 20,000 | **failed**: results differ: q1: 5 instead of 7 |" in text
    assert "| spark-hand | 12 | 20,000 | 25 | 50 | 100 | 20.00 | 20.00 | 20.00 |" in text
    assert "| sluice | 100 | 1.00 |" in text
    assert {p.name for p in tmp_path.iterdir()} == {
        *("peers.md", "peers.json", "peers-long-windows.png"),
        *(f"peers-{name}.png" for name in WORKLOADS),
    }
    assert all(p.stat().st_size < 150_000 for p in tmp_path.glob("*.png"))
    assert read_report(tmp_path) == found
    again = measured("many-keys", "sluice", 1, 1.0, 1.0)
    assert len(merge(found, again)) == len(found)


def test_targets_speak_of_workloads_that_there_are() -> None:
    assert {t.workload for t in TARGETS} <= set(WORKLOADS)
    one = sections([measured("many-keys", "sluice-one", 1, 1100.0, 1000.0)], list(WORKLOADS))[0]
    sharing = next(t for t in TARGETS if t.says == "12 queries over one, time")
    assert sharing.found(one) == (pytest.approx(1.1), pytest.approx(1.1))


@pytest.mark.spark
def test_sluice_and_a_native_join_count_the_same_at_smoke_size(tmp_path: Path) -> None:
    main(
        workload=["many-keys"],
        peer=["spark-hand", "duckdb"],
        runs=1,
        scale=1.0,
        quick=True,
        report_only=False,
        out=tmp_path / "out",
        root=tmp_path / "root",
        cores=2,
        memory_gb=1,
        timeout_s=120.0,
    )
    found = {m.peer: m for m in read_report(tmp_path / "out")}
    assert {name: m.error for name, m in found.items()} == dict.fromkeys(
        ("sluice", "spark-hand", "duckdb"), ""
    )
    assert found["sluice"].results == found["spark-hand"].results == found["duckdb"].results > 0
    assert all(found[name].rates.steady for name in ("sluice", "spark-hand"))
