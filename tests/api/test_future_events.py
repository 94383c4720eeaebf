"""Events far ahead of the clock: kept apart, counted, shown; and a watermark that went too far goes back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from service.inputs.sources.listed.files import list_files
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "data")
    yield service
    service.close()


def events(*days_ahead: float) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    return [{"ts": (now + timedelta(days=days)).isoformat(), "k": k} for k, days in enumerate(days_ahead)]


def test_an_event_a_year_ahead_is_kept_apart_and_shown(service: Service) -> None:
    assert service.made("POST", "/streams", stream_document("A"))["max_ahead"] == "1d"
    receipt = service.made("POST", "/streams/A/events", events(0, 365, 0.9, 1.1))
    assert receipt == {"accepted": 2, "quarantined": 2, "first_offset": 0, "last_offset": 1}
    shown = service.made("GET", "/streams/A/quarantine")
    assert shown["rows"] == 2
    assert [event["k"] for event in shown["events"]] == [1, 3]
    first, second = map(datetime.fromisoformat, shown["kept_out_at"])
    assert first == second
    assert abs(first - datetime.now(UTC)) < timedelta(hours=1)
    assert shown["reason"] == "further ahead of the clock than max_ahead of the stream"


def test_a_request_of_events_from_the_future_alone_takes_no_offset(service: Service) -> None:
    service.made("POST", "/streams", stream_document("A"))
    receipt = service.made("POST", "/streams/A/events", events(2))
    assert receipt == {"accepted": 0, "quarantined": 1, "first_offset": 0, "last_offset": -1}
    assert service.made("POST", "/streams/A/events", events(0))["first_offset"] == 0


def test_the_newest_are_kept_and_all_are_counted(service: Service, tmp_path: Path) -> None:
    service.made("POST", "/streams", stream_document("A"))
    for number in range(110):
        service.made("POST", "/streams/A/events", events(2) if number % 2 else events(2, 3))
    shown = service.made("GET", "/streams/A/quarantine?limit=1000")
    assert (shown["rows"], len(shown["events"])) == (165, 150)
    with sqlite3.connect(tmp_path / "data" / "events.db") as log:
        assert log.execute("SELECT count(*), sum(rows) FROM quarantine").fetchone() == (101, 165)


@pytest.mark.parametrize(("said", "kept"), [(None, None), ("1000 days", "1000d"), (0, "0s")])
def test_a_stream_says_how_far_ahead_its_events_may_be(service: Service, said: Any, kept: str | None) -> None:
    service.made("POST", "/streams", stream_document("A") | {"max_ahead": said})
    assert service.made("GET", "/streams/A")["max_ahead"] == kept
    assert service.made("POST", "/streams/A/events", events(365))["quarantined"] == int(said == 0)


def test_a_file_with_rows_from_the_future_is_set_aside_unless_the_stream_allows_it(
    service: Service, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.jsonl").write_text('{"ts": "2999-01-01T00:00:00Z", "k": 1}\n')
    source = {"type": "files", "format": "jsonl", "path": str(tmp_path / "in"), "settle": 0}
    service.made("POST", "/streams", stream_document("any") | {"source": source, "max_ahead": None})
    assert service.made("POST", "/streams", stream_document("near") | {"source": source})["max_ahead"] == "1d"
    listed = {}
    for name in ("any", "near"):
        stream = service.workspace.streams.get(name)
        list_files(service.store, stream)
        (listed[name],) = service.store.source_files.page(stream.id, 0, 9)
    assert listed["any"].verdict == "ok"
    assert "more than 1d ahead of the clock" in str(listed["near"].reason)


@pytest.mark.parametrize("lateness", ["106751990 days", "1001 y", 1e18, "365251 days"])
def test_a_length_of_time_beyond_1000_years_is_refused(service: Service, lateness: Any) -> None:
    answer = service.send("POST", "/streams", stream_document("L") | {"lateness": lateness})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "#/lateness"
    assert service.send("POST", "/streams", stream_document("L") | {"lateness": "365250 days"}).is_success


def test_a_reset_is_a_record_of_the_control_log(service: Service) -> None:
    for name in ("A", "B"):
        service.made("POST", "/streams", stream_document(name))
    service.made("POST", "/queries", {"name": "q", "cql": CQL})
    assert service.send("POST", "/streams/A:reset-watermark").status_code == 202
    assert service.send("POST", "/streams/none:reset-watermark").status_code == 404
    last = service.store.control_log.records(0)[-1]
    assert last.heartbeat is not None
    assert (last.heartbeat.stream_id, last.heartbeat.watermark_us) == (1, None)


def test_nothing_is_skipped_while_nothing_fails(service: Service) -> None:
    answer = service.send("POST", "/engine:skip", {})
    assert answer.status_code == 409
    assert answer.json()["code"] == "nothing-to-skip"
