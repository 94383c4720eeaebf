"""The peers benchmark at small sizes: that it runs and counts right; rates are for a quiet machine."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.bench.peers.__main__ import main
from tests.bench.peers.batch_join import count_results
from tests.bench.peers.expected import differences, expected_counts
from tests.bench.peers.feeding import write_files
from tests.bench.peers.flink_join import _PRINTED, _counted, _progress, _view
from tests.bench.peers.inputs import write_csv, write_streams
from tests.bench.peers.job import Batch, Held, Job, Ran, answer, read_answer, read_job, write_job
from tests.bench.peers.live import Live
from tests.bench.peers.measurement import Measurement, Rates, rates_of
from tests.bench.peers.pathway_join import Counts
from tests.bench.peers.pathway_join import _progress as pathway_progress
from tests.bench.peers.peers import PEERS, peers_of
from tests.bench.peers.plan import given_up, groups, share_of
from tests.bench.peers.report import Report, read_report, write_report
from tests.bench.peers.results import best, frame, good, times, times_of
from tests.bench.peers.state import ARROW_FILTERED_BYTES, ARROW_ROW_BYTES, state_ratios, usable_rows
from tests.bench.peers.targets import TARGETS, Found
from tests.bench.peers.workloads import START_US, WORKLOADS, Query, Streams
from tests.bench.processes import ProgramFailed, run_program
from tests.bench.reports import rounded

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


def test_some_of_the_queries_are_among_more_of_them() -> None:
    sharing = WORKLOADS["sharing"]
    assert len(sharing.queries) == 1000
    for asked, count in ((sharing.asked("twelve"), 12), (sharing.asked("hundred"), 100)):
        assert len(asked) == len(set(asked)) == count
        assert Query("whole", sharing.largest.window_us) in asked
    assert sharing.asked("largest")[0].window_us == sharing.largest.window_us


def test_peers_that_are_given_the_same_rows_follow_each_other() -> None:
    many, few = WORKLOADS["many-keys"], WORKLOADS["few-keys"]
    planned = groups([many, few], None, 2, quick=False)
    assert [g.run for g in planned] == sorted(g.run for g in planned)
    names = [p.name for g in planned if g.run == 1 and g.workload is many for p in g.peers]
    assert sorted(names) == sorted(p.name for p in peers_of(many, quick=False))
    assert all({share_of(g.workload, p) for p in g.peers} == {g.share} for g in planned)


def test_a_peer_that_took_too_long_is_not_waited_for_twice() -> None:
    done = [
        measured("many-keys", "sluice", 1, 1.0, 1.0, bench="now"),
        measured("many-keys", "flink-read", 1, 1.0, 1.0, bench="now", error="not done after 400 s"),
    ]
    assert given_up(done, "now") == {("many-keys", "flink-read")}
    assert given_up(done, "before") == set()


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
    ran = Ran({"q1": 3}, 10, 1.5, [[Batch(0.0, 1.0, 10)]], True, {"Engine": "1"}, [Held(1, 2, 3, 4)])
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


def test_the_state_is_compared_with_rows_that_are_still_of_use(tmp_path: Path) -> None:
    directory = write_streams(tmp_path, FEW)
    ends_us = [START_US + n * 10_000 for n in (299, 899)]
    queries = (Query("q1", 500_000, a_below=0.3), Query("q2", 2_000_000, a_below=0.1), Query("q3", 50_000))
    with duckdb.connect() as connection:
        rows = {
            s: connection.sql(f"SELECT epoch_us(ts), v FROM '{directory / s}/*.parquet'").fetchall()
            for s in "AB"
        }
    wanted = [
        sum(
            us <= end_us
            and any(us > end_us - q.window_us and (s == "B" or v < (q.a_below or 1.0)) for q in queries)
            for s in "AB"
            for us, v in rows[s]
        )
        for end_us in ends_us
    ]
    held = [Held(2 * n, 8 * n, end_us, end_us) for n, end_us in zip(wanted, ends_us, strict=True)]
    assert usable_rows(directory, queries, held) == wanted
    assert wanted[1] > 200
    assert state_ratios(directory, queries, held) == (2.0, 8 / (ARROW_ROW_BYTES + ARROW_FILTERED_BYTES))
    assert state_ratios(directory, queries, []) == (None, None)


def test_posted_events_are_counted_as_they_were_written(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "A": [(START_US, np.array([1, 2]), np.array([0.5, 0.5]))],
            "B": [
                (START_US + 10, np.array([1]), np.array([0.5])),
                (START_US + 20, np.array([2]), np.array([0.5])),
            ],
        },
    )
    queries = (Query("q1", 1000), Query("q2", 1000, b_below=0.2))
    assert count_results(tmp_path, queries, replace(FEW, rows=2)) == {"q1": 2, "q2": 0}


def live_run(run: int, floor_s: float, **facts: Any) -> Live:
    one = Live("now", run, False, "a machine", "", 0.4, 0.9, 1000, 9000, 10_000.0, 0.3, floor_s)
    return replace(one, **facts)


def test_the_report_is_written_of_medians_and_says_what_failed(tmp_path: Path) -> None:
    report = Report()
    for run, sluice in enumerate((900.0, 1000.0, 1100.0), 1):
        for workload in WORKLOADS:
            mine = measured(workload, "sluice", run, sluice, sluice, state_rows=1.02, state_bytes=1.5)
            report = report.with_measurement(mine)
            report = report.with_measurement(measured(workload, "spark-hand", run, 50.0, sluice))
        report = report.with_measurement(measured("many-keys", "duckdb", run, 9000.0, sluice))
        report = report.with_measurement(measured("sharing", "sluice-one", run, 2.0 * sluice, sluice))
        report = report.with_measurement(measured("sharing", "sluice-12", run, 1.6 * sluice, sluice))
        wrong = "results differ: q1: 5 instead of 7"
        report = report.with_measurement(measured("many-keys", "flink-heap", run, 10.0, sluice, error=wrong))
        report = report.with_live(live_run(run, 0.2 * run))
    text = write_report(tmp_path, report)
    assert "a machine; Engine 1. Medians of up to 3 runs" in text
    assert "| 1 | many-keys | times faster than the best sharing by hand | ≥ 20 | 20 ✓ | 20 ✓ |" in text
    assert "| 1 | many-keys | times slower than DuckDB's batch join | ≤ 8 | 9 ✗ | 4.5 ✓ |" in text
    assert "| 1 | many-keys | times faster than one native Spark join | ≥ 15 | not measured | – |" in text
    assert "| 3 | sharing | 12 queries, time over one | ≤ 1.15 | 1.25 ✗ | 1.25 ✗ |" in text
    assert "| 3 | sharing | 1,000 queries, time over one | ≤ 3 | 2 ✓ | 2 ✓ |" in text
    assert "| 5 | many-keys | rows held over Theorem 4's | ≤ 1.05 | 1.02 ✓ | – |" in text
    assert "| 6 | live | floor of a micro-batch, s | ≤ 0.25 | 0.4 ✗ | – |" in text
    assert "| latency, p50, in floors | 1.00 | 2.00, 1.00, 0.67 |" in text
    assert "| flink-heap | 12 | 20,000 | **failed**: results differ: q1: 5 instead of 7 |" in text
    assert "| spark-hand | 12 | 20,000 | 25 | 50 | 100 | 20.00 | 20.00 | 20.00 |" in text
    assert {p.name for p in tmp_path.iterdir()} == {"peers.md", "peers.json"}
    assert rounded(asdict(read_report(tmp_path))) == rounded(asdict(report))
    again = report.with_measurement(measured("many-keys", "sluice", 1, 1.0, 1.0))
    assert len(again.measured) == len(report.measured)


def test_targets_speak_of_workloads_and_peers_that_there_are(tmp_path: Path) -> None:
    assert {t.where for t in TARGETS} <= {*WORKLOADS, "live", "many-keys, own batches"}
    assert "not measured" in write_report(tmp_path, Report())
    both = [
        measured("many-keys", *peer, 1000.0) for peer in (("sluice", 1, 1000.0), ("sluice-one", 1, 1100.0))
    ]
    sharing = next(t for t in TARGETS if (t.where, t.number) == ("many-keys", 3))
    assert sharing.found(Found({"many-keys": frame(both)})) == (pytest.approx(1.1), pytest.approx(1.1))


def test_the_best_peer_is_the_fastest_not_the_one_over_so_few_rows_that_sluice_mostly_starts() -> None:
    found = [
        measured("many-keys", "flink-heap", 1, 8_000.0, 100_000.0, share=0.01),
        measured("many-keys", "pathway", 1, 40_000.0, 800_000.0, share=0.1),
        # More over fewer rows says less: a peer counts with the largest part that it was given.
        measured("many-keys", "pathway", 1, 50_000.0, 100_000.0, share=0.01),
        measured("many-keys", "spark-each", 1, 90_000.0, 90_000.0, share=0.1, error="results differ"),
    ]
    row = best(frame(found), ["flink-heap", "pathway", "spark-each"])
    assert row is not None
    assert (row["peer"].iloc[0], row["share"].iloc[0], times(row, "job")) == ("pathway", 0.1, 20.0)


def test_ratios_are_medians_of_ratios_that_were_each_taken_within_a_run_of_a_bench() -> None:
    runs = [(100.0, 100.0), (200.0, 50.0), (300.0, 200.0)]
    found = [measured("many-keys", "sluice-auto", run, fast, fast) for run, (fast, _) in enumerate(runs, 1)]
    found += [measured("many-keys", "sluice-one", run, slow, slow) for run, (_, slow) in enumerate(runs, 1)]
    fast, slow = (good(frame(found), peer) for peer in ("sluice-auto", "sluice-one"))
    assert fast["rates.job"].median() == 2 * slow["rates.job"].median()
    assert times_of(fast, slow, "job") == 1.5
    assert times_of(fast, slow, "job", "steady") == 3.0
    apart = frame([replace(m, bench=m.peer) for m in found])
    assert times_of(good(apart, "sluice-auto"), good(apart, "sluice-one"), "job") is None


def test_a_peer_is_compared_with_the_sluice_of_its_run_though_sluice_was_measured_again() -> None:
    found = [
        replace(measured("many-keys", "sluice", 1, 700.0, 700.0), bench="later"),
        measured("many-keys", "sluice-one", 1, 1100.0, 1000.0),
        measured("many-keys", "duckdb", 1, 8000.0, 1000.0),
    ]
    mine, one, duckdb = (good(frame(found), m.peer) for m in found)
    assert times_of(one, mine, "job") == pytest.approx(1.1)
    assert times_of(mine, one, "job") == pytest.approx(1 / 1.1)
    assert times_of(duckdb, mine, "steady", "job") == pytest.approx(4.0)
    assert times_of(duckdb, one, "job") == pytest.approx(8000 / 1100)


@pytest.mark.slow
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
    found = {m.peer: m for m in read_report(tmp_path / "out").measured}
    assert {name: m.error for name, m in found.items()} == dict.fromkeys(
        ("sluice", "spark-hand", "duckdb"), ""
    )
    assert found["sluice"].results == found["spark-hand"].results == found["duckdb"].results > 0
    assert all(found[name].rates.steady for name in ("sluice", "spark-hand"))
    assert found["sluice"].state_rows is not None
