"""Prometheus' view of a catalog, read back with its own parser."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.store.results import retention
from catalog.values.counters.batch_counters import CpuCounters, StreamCounters
from catalog.values.counters.family_counters import AbsenceCounters, SliceCounters
from catalog.values.query import Output
from catalog.values.sink import FilesSink
from service.inputs.limits.backlog import Backlog
from service.statistics.metrics import IngestFigures, Metrics
from service.statistics.series_bound import SeriesBound
from tests.builders import EMPTY_BATCH
from tests.service.pairs import Batches, add_query, open_store

CALM = IngestFigures(backlogs={}, refused={}, free_bytes=9, least_bytes=4, held=False)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    families = text_string_to_metric_families(text.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_an_empty_catalog_has_metrics_too(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        found = samples(Metrics().text(store, "starting", CALM))
    assert found["sluice_engine_state", (("state", "starting"),)] == 1
    assert found["sluice_engine_state", (("state", "running"),)] == 0
    assert found["sluice_batches_total", ()] == 0


def test_counters_are_the_manifests_totals(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        query = add_query(store, "q1", [Output("k", 'a."k"', "bigint")])
        for batch in range(2):
            store.batches.commit(
                replace(
                    EMPTY_BATCH,
                    batch=batch,
                    epoch=store.lease.epoch(),
                    plan_version=3,
                    streams=(StreamCounters(1, 10, 2, 1, 5_000_000, 6_000_000),),
                    slices=(
                        SliceCounters("f", "a", 1, rows=7 - batch, bytes=100, segments=2),
                        SliceCounters("f", "a", 1, rows=0, join="q5"),
                    ),
                    query_rows=((query.id, 4),),
                    absence=(AbsenceCounters("f", "a", undecided=5 + batch, absent=1, marks=3),),
                    started_at_us=1_000_000,
                    committed_at_us=1_500_000,
                    cpu=CpuCounters(250_000, 125_000),
                )
            )
        found = samples(Metrics().text(store, "running", CALM))
    of_a = (("stream", "A"),)
    assert found["sluice_input_rows_total", of_a] == 20
    assert found["sluice_late_rows_total", of_a] == 4
    assert found["sluice_rejected_rows_total", of_a] == 2
    assert found["sluice_watermark_timestamp_seconds", of_a] == 5
    assert found["sluice_query_results_total", (("query", "q1"),)] == 8
    of_slice = (("family", "f"), ("join", "shared"), ("side", "a"), ("slice", "1"))
    assert found["sluice_slice_rows", of_slice] == 6
    of_another_join = (("family", "f"), ("join", "q5"), ("side", "a"), ("slice", "1"))
    assert found["sluice_slice_rows", of_another_join] == 0
    assert found["sluice_undecided_rows", (("family", "f"), ("side", "a"))] == 6
    assert found["sluice_marks", (("family", "f"), ("side", "a"))] == 3
    assert found["sluice_last_batch_cpu_seconds", (("part", "pack"),)] == 0.25
    assert found["sluice_last_batch_cpu_seconds", (("part", "chain"),)] == 0.125
    assert found["sluice_state_rows_peak", ()] == 7
    assert found["sluice_plan_version", ()] == 3
    assert found["sluice_last_batch_seconds", ()] == 0.5


def test_sinks_have_lag_and_totals(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        query = add_query(store, "q1", [Output("k", 'a."k"', "bigint")])
        store.sinks.set(query.id, FilesSink("alerts"))
        batches = Batches(store, tmp_path / "results", {1: (query.id,)})
        for n in range(3):
            batches.commit([{"route": 1, "t": 1, "pos": (n, 0), "a_k": 1, "b_k": 1}])
        (record,) = store.sinks.pending()
        store.sinks.delivered(record, 0, 1, whole=True)
        store.sinks.failed(record.id, "no space left")
        batches.commit([{"route": 1, "t": 1, "pos": (9, 0), "a_k": 1, "b_k": 1}] * 2)
        (record,) = store.sinks.pending()
        store.sinks.lose(record, 2)
        found = samples(Metrics().text(store, "running", CALM))
        (record,) = store.sinks.pending()
        store.sinks.lose(record, 4)
        later = samples(Metrics().text(store, "running", CALM))
    of = (("query", "q1"), ("type", "files"))
    assert found["sluice_sink_lag_batches", of] == 2
    assert found["sluice_sink_rows_total", of] == 1
    assert found["sluice_sink_batches_total", of] == 1
    assert found["sluice_sink_failures_total", of] == 1
    assert found["sluice_sink_lost_batches_total", of] == 1
    assert found["sluice_sink_lost_rows_total", of] == 1
    # Batches here were committed in 1970.
    assert abs(found["sluice_sink_lag_seconds", of] - time.time()) < 600
    assert later["sluice_sink_lost_batches_total", of] == 3
    assert later["sluice_sink_lost_rows_total", of] == 4
    assert later["sluice_sink_lag_batches", of] == later["sluice_sink_lag_seconds", of] == 0


def test_files_that_are_kept_for_a_sink_alone_have_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "KEPT_BATCHES", 1)
    with open_store(tmp_path) as store:
        query = add_query(store, "q1", [Output("k", 'a."k"', "bigint")])
        store.sinks.set(query.id, FilesSink("alerts"))
        batches = Batches(store, tmp_path / "results", {1: (query.id,)})
        batches.sized = True
        for n in range(4):
            batches.commit([{"route": 1, "t": 1, "pos": (n, 0), "a_k": 1, "b_k": 1}])
        (record,) = store.sinks.pending()
        store.sinks.delivered(record, 0, 1, whole=True)
        sizes = [path.stat().st_size for path in sorted((tmp_path / "results").iterdir())]
        of = (("query", "q1"), ("type", "files"))
        kept, held_by_readers = (
            samples(Metrics().text(store, "running", CALM, results_us=us))["sluice_sink_kept_bytes", of]
            for us in (0, None)
        )
    assert kept == sum(sizes[1:3]), "it has the first, and the newest is there anyway"
    assert held_by_readers == 0


def test_back_pressure_is_told_by_stream_and_by_limit(tmp_path: Path) -> None:
    figures = IngestFigures({"A": Backlog(7, 700)}, {"disk": 2}, free_bytes=3, least_bytes=8, held=True)
    with open_store(tmp_path) as store:
        found = samples(Metrics().text(store, "running", figures))
    assert found["sluice_backlog_rows", (("stream", "A"),)] == 7
    assert found["sluice_backlog_bytes", (("stream", "A"),)] == 700
    refused = {
        limit: found["sluice_ingest_refused_requests_total", (("limit", limit),)]
        for limit in ("rows", "bytes", "disk")
    }
    assert refused == {"rows": 0, "bytes": 0, "disk": 2}
    assert (found["sluice_disk_free_bytes", ()], found["sluice_disk_free_least_bytes", ()]) == (3, 8)
    assert found["sluice_input_held", ()] == 1


def test_a_thousand_queries_make_a_bounded_number_of_series(tmp_path: Path) -> None:
    metrics = Metrics(3)
    with open_store(tmp_path) as store:
        ids = [add_query(store, f"q{n:02}", [Output("k", 'a."k"', "bigint")]).id for n in range(20)]
        for query_id in ids:
            store.sinks.set(query_id, FilesSink("alerts"))

        def committed(batch: int, rows: list[int]) -> Samples:
            slices = tuple(
                SliceCounters("f", "a", n, rows=n, bytes=10 * n, segments=1, join=f"q{n}")
                for n in range(1, 21)
            )
            store.batches.commit(
                replace(
                    EMPTY_BATCH,
                    batch=batch,
                    epoch=store.lease.epoch(),
                    slices=slices,
                    query_rows=tuple((i, count) for i, count in zip(ids, rows, strict=True) if count),
                    started_at_us=1_000_000,
                    committed_at_us=1_500_000,
                )
            )
            return samples(metrics.text(store, "running", CALM))

        def results(found: Samples) -> dict[str, float]:
            return {
                dict(labels)["query"]: v for (name, labels), v in found.items() if "query_results" in name
            }

        first = committed(0, list(range(20)))
        assert results(first) == {"q19": 19, "q18": 18, "q17": 17, "(other)": sum(range(17))}
        # A query gets a name: what it has counted under (other) stays there, so that the sum does not fall.
        second = committed(1, [100, *[1] * 19])
        assert results(second) == {"q00": 100, "q19": 20, "q18": 19, "(other)": sum(range(17)) + 17}
    of_slices = {labels: value for (name, labels), value in first.items() if name == "sluice_slice_rows"}
    assert len(of_slices) == 4
    assert sum(of_slices.values()) == sum(range(1, 21))
    sinks = {labels for name, labels in first if name == "sluice_sink_rows_total"}
    assert len(sinks) == 4
    assert (("query", "(other)"), ("type", "files")) in sinks


def test_a_counter_that_begins_anew_takes_nothing_away() -> None:
    others = SeriesBound(1)
    assert others.others("m", {("a", "files"): 5, ("b", "files"): 7}, [("b", "files")], 1) == {
        ("(other)", "files"): 5
    }
    # Its counter began anew: it does not take away.
    assert others.others("m", {("a", "files"): 2, ("b", "files"): 9}, [("b", "files")], 1) == {
        ("(other)", "files"): 5
    }
