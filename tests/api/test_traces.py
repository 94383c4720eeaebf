"""Posted events are followed to the batch that reads them, as spans of one trace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from api.traces import Traces
from catalog.store.store import Store
from catalog.values.counters.batch_counters import CpuCounters
from tests.api.running_service import RunningService, free_port, post, wait_for
from tests.builders import EMPTY_BATCH
from tests.service.pairs import open_store
from tests.waiting import until

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextmanager
def traced() -> Iterator[tuple[Traces, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    traces = Traces("http://127.0.0.1:9/v1/traces", SimpleSpanProcessor(exporter))
    try:
        yield traces, exporter
    finally:
        traces.close()


def commit(store: Store, batch: int, end: int, began_us: int) -> None:
    store.batches.commit(
        replace(
            EMPTY_BATCH,
            batch=batch,
            epoch=store.lease.epoch(),
            plan_version=3,
            started_at_us=began_us,
            committed_at_us=began_us + 40_000,
            cpu=CpuCounters(2_000, 3_000),
            input_end=(("7", end),),
        )
    )


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_events_are_followed_to_the_batch_that_reads_the_last_of_them(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, traced() as (traces, exporter):
        now_ns = time.time_ns()
        commit(store, 0, 10, now_ns // 1000 - 1_000_000)
        traces.accepted({"traceparent": CLIENT}, (7, "A"), (10, 29), now_ns)
        traces.look(store.batches)
        assert set(by_name(exporter)) == {"POST events"}
        commit(store, 1, 20, now_ns // 1000 + 50_000)
        traces.look(store.batches)
        assert set(by_name(exporter)) == {"POST events"}, "events 20 to 29 are not read yet"
        commit(store, 2, 35, now_ns // 1000 + 100_000)
        traces.look(store.batches)
        traces.look(store.batches)
    spans = by_name(exporter)
    assert len(exporter.get_finished_spans()) == 4
    assert set(spans) == {"POST events", "wait for a batch", "batch 2", "until it is seen"}
    posted = spans["POST events"]
    assert posted.attributes is not None
    assert dict(posted.attributes) == {
        "sluice.stream": "A",
        "sluice.first_offset": 10,
        "sluice.last_offset": 29,
    }
    assert posted.parent is not None
    assert posted.context is not None
    assert f"{posted.context.trace_id:032x}" == CLIENT.split("-")[1]
    for name in ("wait for a batch", "batch 2", "until it is seen"):
        parent = spans[name].parent
        assert parent is not None
        assert parent.span_id == posted.context.span_id
    batch = spans["batch 2"]
    assert (batch.start_time, batch.end_time) == (
        (now_ns // 1000 + 100_000) * 1000,
        (now_ns // 1000 + 140_000) * 1000,
    )
    assert batch.attributes is not None
    assert (batch.attributes["sluice.batch"], batch.attributes["sluice.chain_cpu_s"]) == (2, 0.003)


def test_a_request_that_was_answered_before_has_no_batch_of_its_own(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, traced() as (traces, exporter):
        now_ns = time.time_ns()
        commit(store, 0, 10, now_ns // 1000 - 1_000_000)
        traces.accepted({}, (7, "A"), (3, 4), now_ns)
        traces.look(store.batches)
    assert set(by_name(exporter)) == {"POST events"}


def test_what_a_client_does_not_sample_makes_no_spans(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, traced() as (traces, exporter):
        now_ns = time.time_ns()
        traces.accepted({"traceparent": CLIENT[:-2] + "00"}, (7, "A"), (0, 1), now_ns)
        commit(store, 0, 10, now_ns // 1000 + 1_000)
        traces.look(store.batches)
    assert not exporter.get_finished_spans()


@contextmanager
def collector() -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a collector, and the names of the spans that it has got."""
    names: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = ExportTraceServiceRequest.FromString(body)
            names.extend(
                s.name for r in request.resource_spans for scope in r.scope_spans for s in scope.spans
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", names
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.slow
def test_a_service_sends_the_traces_of_posted_events(tmp_path: Path) -> None:
    with collector() as (url, names):
        settings = {"SLUICE_TRACES_URL": url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        log = tmp_path / "log.txt"
        with RunningService(tmp_path / "data", log, free_port(), settings=settings) as service:
            service.register({"ts": "timestamp", "k": "bigint"}, "A", "B")
            query = {"name": "q", "cql": "SELECT a.k FROM A [RANGE 9 SECONDS] a, B [NOW] b WHERE a.k = b.k"}
            service.ok("POST", "/queries", 202, json=query)
            wait_for(service, "q", "running")
            post(service, "A", (1, 1))
            post(service, "B", (1, 1))
            until(lambda: names.count("until it is seen") == 2, lambda: names)
    assert names.count("POST events") == names.count("wait for a batch") == 2
