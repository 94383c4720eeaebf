"""The peers benchmark at small sizes: that it runs and counts right; rates are for a quiet machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from tests.bench.peers.__main__ import main
from tests.bench.peers.batch_join import count_results, expected_counts
from tests.bench.peers.inputs import write_csv, write_streams
from tests.bench.peers.job import Batch, Ran, rates_of
from tests.bench.peers.peers import PEERS, share_of
from tests.bench.peers.report import TARGETS, frame, ratio, read_report
from tests.bench.peers.state import Held, state_ratios, usable_rows
from tests.bench.peers.workloads import START_US, WORKLOADS, Query, Streams

#: Three keys, so that windows far smaller than the input have partners.
FEW = Streams(rows=1200, files=4, rate_per_s=100, keys=3)
QUERIES = (Query("q1", 20_000), Query("q2", 500_000, a_below=0.3), Query("q3", 200_000, b_below=0.5))


def rows_of(directory: Path, stream: str) -> list[tuple[int, int, float]]:
    with duckdb.connect() as connection:
        return connection.sql(
            f"SELECT epoch_us(ts), k, v FROM '{directory / stream}/*.parquet' ORDER BY 1"
        ).fetchall()


@pytest.mark.parametrize("streams", [FEW, replace(FEW, keys=600), replace(FEW, keys=50, zipf=1.2)])
def test_both_forms_of_the_batch_join_count_what_nested_loops_count(tmp_path: Path, streams: Streams) -> None:
    directory = write_streams(tmp_path, streams)
    a, b = (rows_of(directory, stream) for stream in "AB")
    wanted = {
        q.name: sum(
            x[1] == y[1]
            and abs(x[0] - y[0]) < q.window_us
            and x[2] < (q.a_below or 1)
            and y[2] < (q.b_below or 1)
            for x in a
            for y in b
        )
        for q in QUERIES
    }
    assert expected_counts(directory, streams, QUERIES) == wanted
    assert count_results(directory, QUERIES, replace(streams, keys=1)) == wanted
    assert sum(wanted.values()) > 0


def test_results_of_three_streams_are_counted_as_by_nested_loops(tmp_path: Path) -> None:
    streams = replace(FEW, rows=160, keys=5, count=3)
    directory = write_streams(tmp_path, streams)
    a, b, c = (rows_of(directory, stream) for stream in streams.names)
    wanted = {
        q.name: sum(
            x[1] == y[1] == z[1]
            and max(x[0], y[0], z[0]) - min(x[0], y[0], z[0]) < q.window_us
            and x[2] < (q.a_below or 1)
            and y[2] < (q.b_below or 1)
            for x in a
            for y in b
            for z in c
        )
        for q in QUERIES
    }
    assert count_results(directory, QUERIES, streams) == wanted
    assert sum(wanted.values()) > 0


def test_results_of_left_joins_are_counted_as_by_nested_loops(tmp_path: Path) -> None:
    streams = replace(FEW, keys=600, ended=True)
    queries = [Query("q1", 20_000, left=True), Query("q2", 500_000, left=True), Query("q3", 10**7, left=True)]
    directory = write_streams(tmp_path, streams)
    a, b = (rows_of(directory, stream) for stream in streams.names)
    found = {
        q.name: [sum(x[1] == y[1] and abs(x[0] - y[0]) < q.window_us for y in b) for x in a[:-1]]
        for q in queries
    }
    wanted = {name: sum(max(partners, 1) for partners in of_rows) for name, of_rows in found.items()}
    assert expected_counts(directory, streams, queries) == wanted
    assert streams.rows < wanted["q2"] < wanted["q3"]


def test_csv_copies_hold_the_same_rows_in_order(tmp_path: Path) -> None:
    directory = write_streams(tmp_path, FEW)
    header, *lines = (
        (write_csv(directory, FEW, header=True) / "A.csv").read_text(encoding="utf-8").splitlines()
    )
    assert header == "us,k,v"
    assert [int(line.split(",")[0]) for line in lines] == [us for us, *_ in rows_of(directory, "A")]


def test_the_state_is_compared_with_rows_that_are_still_of_use(tmp_path: Path) -> None:
    directory = write_streams(tmp_path, FEW)
    queries = (Query("q1", 500_000, a_below=0.3), Query("q2", 2_000_000, a_below=0.1), Query("q3", 50_000))
    end_us = START_US + 899 * 10_000
    wanted = sum(
        us <= end_us
        and any(us > end_us - q.window_us and (stream == "B" or v < (q.a_below or 1)) for q in queries)
        for stream in "AB"
        for us, _, v in rows_of(directory, stream)
    )
    held = [Held(2 * wanted, 8 * wanted, end_us, end_us)]
    assert usable_rows(directory, queries, held) == [wanted]
    assert wanted > 200
    assert state_ratios(directory, queries, held) == {"state_rows": 2.0, "state_bytes": 8 / 24}


def test_steady_state_begins_when_every_join_has_done_two_batches() -> None:
    fast = [Batch(float(n), n + 1.0, 100) for n in range(4)]
    rates = {"process": 50.0, "job": 80.0, "steady": 100.0}
    assert rates_of(Ran({}, 400, 5.0, [fast]), 8.0, files=4) == rates
    slow = [Batch(2.0 * n, 2.0 * n + 2.0, 100) for n in range(4)]
    # From 4 s, when the slower one has done two; the other one is done by then.
    assert rates_of(Ran({}, 400, 8.0, [fast, slow]), 8.0, files=4)["steady"] == 25.0
    # One batch of everything leaves no steady state, nor does an engine without batches.
    assert rates_of(Ran({}, 400, 8.0, [[Batch(0.0, 8.0, 400)]]), 8.0, files=4)["steady"] is None
    assert rates_of(Ran({}, 400, 8.0), 8.0, files=4)["steady"] is None


def test_targets_and_workloads_speak_of_peers_that_there_are() -> None:
    assert {t.where for t in TARGETS} <= {*WORKLOADS, "live"}
    assert {name for t in TARGETS if t.slow for name in (t.fast, *t.slow)} <= set(PEERS)
    for workload in WORKLOADS.values():
        assert set(workload.peers) <= set(PEERS)
        assert all(0 < share_of(workload, peer) <= 1 for peer in PEERS.values())
        asked = workload.asked(12)
        assert max(q.window_us for q in asked) == max(q.window_us for q in workload.queries)


def test_ratios_are_medians_of_ratios_that_were_each_taken_within_a_run() -> None:
    def measured(peer: str, run: int, rate: float, sluice: float, share: float = 1.0) -> dict[str, object]:
        rates, own = (dict.fromkeys(("process", "job", "steady"), of) for of in (rate, sluice))
        facts = {"workload": "many-keys", "peer": peer, "run": run, "scale": 1.0, "share": share, "error": ""}
        facts |= {"bench": "today"}
        return facts | {"rates": rates, "sluice": own}

    found = [measured("sluice-one", run, *rates) for run, rates in enumerate([(1, 2), (2, 3), (9, 9)], 1)]
    found += [measured("sluice", 1, 2.0, 2.0), measured("spark-each", 1, 9.0, 9.0, share=0.1)]
    found += [measured("pathway", 1, 10.0, 200.0, share=0.1), measured("pathway", 2, 50.0, 90.0, share=0.01)]
    runs = frame(found)
    assert ratio(runs, "sluice", ["sluice-one"], "job") == 1.5
    assert ratio(runs, "sluice-one", ["sluice"], "job") == pytest.approx(1 / 1.5)
    # A peer counts with the largest part that it was given, and the best is the fastest.
    assert ratio(runs, "sluice", ["pathway", "spark-each"], "job") == 20.0
    assert np.isnan(ratio(runs, "sluice-one", ["pathway"], "job")), "not over the same rows"
    assert np.isnan(ratio(runs, "sluice", ["duckdb"], "job"))


@pytest.mark.slow
@pytest.mark.spark
def test_sluice_and_a_native_join_count_the_same_at_smoke_size(tmp_path: Path) -> None:
    main(
        workload=["many-keys", "live"],
        peer=["spark-hand", "spark-shuffle", "duckdb"],
        runs=1,
        scale=0.01,
        out=tmp_path / "out",
        root=tmp_path / "root",
        cores=2,
        memory_gb=1,
        timeout_s=120.0,
    )
    report = read_report(tmp_path / "out")
    found = {(m["peer"], m["share"]): m for m in report["measurements"]}
    assert {key: m["error"] for key, m in found.items()} == dict.fromkeys(found, "")
    assert {peer for peer, _ in found} == {"sluice", "spark-hand", "spark-shuffle", "duckdb"}
    assert found["duckdb", 1.0]["results"] == found["sluice", 1.0]["results"] > 0
    assert found["sluice", 1.0]["state_rows"] >= 1
    (live,) = report["live"]
    assert live["error"] == ""
    assert live["latency_p99_s"] > 0
    assert live["results"] > 0
