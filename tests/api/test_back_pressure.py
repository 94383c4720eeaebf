"""Back-pressure: requests with events are refused at a limit, by its name, and taken again below it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.store.pruning import REPLAYED_BATCHES
from service.workspace.back_pressure import RETRY_S
from service.workspace.input_retention import InputRetention
from tests.api.without_engine import Service
from tests.builders import stream_document
from tests.catalog.examples import commit, manifest
from tests.crash.disks import tmpfs
from tests.epochs import begin_epoch

Start = Callable[..., Service]
MB = 1 << 20


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a service on one data directory, after the one before has ended."""
    running: list[Service] = []

    def started(directory: Path = tmp_path / "data", **settings: object) -> Service:
        while running:
            running.pop().close()
        running.append(Service(directory, **settings))
        return running[-1]

    yield started
    while running:
        running.pop().close()


def events(count: int) -> list[dict[str, int]]:
    return [{"ts": n, "k": n} for n in range(count)]


def post(service: Service, count: int, stream: str = "A", key: str | None = None) -> httpx.Response:
    return service.send("POST", f"/streams/{stream}/events", events(count), key)


def read_up_to(service: Service, positions: dict[str, int], after_s: float = 1.0) -> None:
    """Commit a batch that has read so far, and let some time pass."""
    store = service.store
    batch = store.batches.last()
    made = manifest(0 if batch is None else batch + 1, begin_epoch(store))
    end = {str(store.streams.get(name).id): position for name, position in positions.items()}
    assert commit(store, replace(made, input_end=tuple(sorted({**end, "batch": made.batch + 1}.items()))))
    pressure = service.workspace._pressure
    now_s = pressure.clock_s() + after_s
    pressure.clock_s = lambda: now_s
    pressure.run_once(0)  # as the watcher does


def refused(answer: httpx.Response, *words: str) -> int:
    """Check a refusal, and return when to come back."""
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "ingest-full"), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for word in words:
        assert word in f"{problem['detail']} {problem['explanation']} {problem['hint']}"
    return int(answer.headers["retry-after"])


def look_anew(service: Service) -> None:
    """Have the disk looked at as if a second had passed."""
    service.workspace._pressure.disk._looked = None


def metric(service: Service, name: str, **labels: str) -> float:
    text = service.send("GET", "/metrics").text
    samples = (s for family in text_string_to_metric_families(text) for s in family.samples)
    return next(s.value for s in samples if s.name == name and s.labels == labels)


def test_a_backlog_in_rows_is_refused_until_a_batch_has_read_it(start: Start) -> None:
    service = start(max_backlog_rows=10)
    for name in ("A", "B"):
        service.made("POST", "/streams", stream_document(name))
    assert post(service, 9).status_code == 202
    assert post(service, 9).status_code == 202  # taken as a whole: the stream was below its limit
    wait_s = refused(post(service, 1), 'stream "A"', "18 events of the stream", "10 rows", "MAX_BACKLOG_ROWS")
    assert wait_s == RETRY_S  # no batch has read the stream, so nobody knows when one will
    assert post(service, 5, "B").status_code == 202  # another stream has a limit of its own

    assert service.made("GET", "/streams/A")["name"] == "A"
    assert metric(service, "sluice_backlog_rows", stream="A") == 18
    assert metric(service, "sluice_backlog_rows", stream="B") == 5
    assert metric(service, "sluice_ingest_refused_requests_total", limit="rows") == 1

    read_up_to(service, {"A": 9})
    assert post(service, 3).status_code == 202  # 9 waited
    assert metric(service, "sluice_backlog_rows", stream="A") == 12
    read_up_to(service, {"A": 21})
    assert post(service, 1).json()["first_offset"] == 21  # what was refused took no offset


def test_a_client_is_told_to_come_back_when_there_will_be_room(start: Start) -> None:
    service = start(max_backlog_rows=1000)
    service.made("POST", "/streams", stream_document("A"))
    assert post(service, 300).status_code == 202
    read_up_to(service, {"A": 100})
    assert post(service, 6000).status_code == 202
    read_up_to(service, {"A": 300}, after_s=2.0)  # a hundred events a second
    assert refused(post(service, 1)) == 51  # 6,000 wait, 5,001 of them are too many
    read_up_to(service, {"A": 5290}, after_s=10.0)
    assert refused(post(service, 1)) == 1
    read_up_to(service, {"A": 5290}, after_s=100.0)  # long ago, by now
    assert refused(post(service, 1)) == RETRY_S


def test_a_backlog_in_bytes_is_refused(start: Start) -> None:
    service = start(max_backlog_mb=1)
    service.made("POST", "/streams", stream_document("A"))
    taken = 0
    while (answer := post(service, 10_000)).status_code == 202:
        taken += 1
    refused(answer, "1.0 MB", "MAX_BACKLOG_MB")
    size = metric(service, "sluice_backlog_bytes", stream="A")
    assert MB <= size < MB * (1 + 1 / taken)
    assert metric(service, "sluice_ingest_refused_requests_total", limit="bytes") == 1
    read_up_to(service, {"A": 10_000})
    assert post(service, 1).status_code == 202


def test_the_numbers_are_right_after_a_restart_and_after_old_events_were_dropped(start: Start) -> None:
    service = start(max_backlog_rows=100)
    service.made("POST", "/streams", stream_document("A"))
    for _ in range(4):
        post(service, 30)
    read_up_to(service, {"A": 60})
    for _ in range(REPLAYED_BATCHES + 1):
        read_up_to(service, {"A": 60})
    before = metric(service, "sluice_backlog_bytes", stream="A")
    retention = InputRetention(service.store, service.workspace._events, {}, interval_s=0, sample_rows=0)
    assert retention.run_once(0) == (60, 0)
    assert metric(service, "sluice_backlog_bytes", stream="A") == before

    service = start(max_backlog_rows=60)
    refused(post(service, 1), "60 events of the stream")
    assert metric(service, "sluice_backlog_bytes", stream="A") == before
    assert start(max_backlog_rows=61).send("POST", "/streams/A/events", events(1)).status_code == 202


def test_a_request_that_was_stored_before_gets_its_receipt(start: Start) -> None:
    service = start(max_backlog_rows=10)
    service.made("POST", "/streams", stream_document("A"))
    first = post(service, 10, key="one")
    assert first.status_code == 202
    refused(post(service, 10, key="two"))
    assert post(service, 10, key="one").json() == first.json()
    # A crash between the event log and the answer: the receipt alone is there.
    with sqlite3.connect(service.workspace.data_dir.catalog_db) as catalog:
        assert catalog.execute("DELETE FROM idempotency_keys").rowcount == 1
    assert post(service, 10, key="one").json() == first.json()
    assert service.send("POST", "/streams/A/events", events(9), "one").status_code == 409
    read_up_to(service, {"A": 10})
    assert post(service, 10, key="two").json()["first_offset"] == 10


def test_a_stream_that_no_query_reads_says_so(start: Start) -> None:
    service = start(max_backlog_rows=1)
    service.made("POST", "/streams", stream_document("A"))
    post(service, 1)
    refused(post(service, 1), "No batch has read the stream yet")
    read_up_to(service, {"A": 1})
    post(service, 1)
    assert "No batch has read" not in post(service, 1).json()["hint"]


def test_the_events_of_a_stream_that_begins_with_the_latest_are_those_since_then(start: Start) -> None:
    service = start(max_backlog_rows=5)
    service.made("POST", "/streams", stream_document("A") | {"start": "latest"})
    assert [post(service, 5).status_code for _ in range(2)] == [202, 429]


@pytest.mark.parametrize("limits", [{"max_backlog_rows": 0, "max_backlog_mb": 0, "min_free_mb": 0}, {}])
def test_without_limits_and_far_below_the_usual_ones_everything_is_taken(
    start: Start, limits: dict[str, Any]
) -> None:
    service = start(**limits)
    service.made("POST", "/streams", stream_document("A"))
    assert {post(service, 1000).status_code for _ in range(5)} == {202}


@pytest.mark.mounts
def test_a_disk_that_is_nearly_full_takes_no_events_but_gives_results_and_takes_changes(
    start: Start, tmp_path: Path
) -> None:
    with tmpfs(tmp_path / "disk", 64) as disk:
        service = start(disk.root / "data", min_free_mb=16)
        service.made("POST", "/streams", stream_document("A"))
        service.made("POST", "/streams", stream_document("B"))
        assert post(service, 1, key="one").status_code == 202
        disk.fill(12 * MB)
        look_anew(service)
        assert refused(post(service, 1), "MB free", "16.8 MB", "MIN_FREE_MB") == RETRY_S
        assert post(service, 1, key="one").json()["last_offset"] == 0
        assert service.workspace.input_held() is None
        disk.fill(7 * MB)
        look_anew(service)
        assert "8.4 MB" in str(service.workspace.input_held())
        assert service.made("GET", "/engine")["input_held"]
        assert metric(service, "sluice_input_held") == 1
        assert metric(service, "sluice_ingest_refused_requests_total", limit="disk") == 1
        assert metric(service, "sluice_disk_free_bytes") < 8 * MB
        service.made("DELETE", "/streams/B")
        disk.clear()
        look_anew(service)
        assert post(service, 1).json()["first_offset"] == 1
        assert service.made("GET", "/engine")["input_held"] is None
        start(tmp_path / "elsewhere")  # ends the service on the small disk


def test_the_document_promises_what_is_done(start: Start) -> None:
    document = start().made("GET", "/openapi.json")
    responses = document["paths"]["/api/v1/streams/{name}/events"]["post"]["responses"]
    assert {"429", "503"} <= responses.keys()
    assert "disk has space" in responses["429"]["description"]
    assert "Retry-After" in responses["429"]["headers"]
