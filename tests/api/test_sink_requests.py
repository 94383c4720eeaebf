"""Sinks in requests and answers, without an engine: what is refused, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.timestamps import timestamp
from catalog.times.clock import wall_clock_us
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document
from tests.catalog.examples import commit, manifest
from tests.epochs import begin_epoch

FILES = {"type": "files", "path": "alerts/q", "format": "ndjson"}
HOOK = {"type": "webhook", "url": "http://127.0.0.1:9/hook"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    opened = Service(tmp_path / "data")
    for name in ("A", "B"):
        opened.made("POST", "/streams", stream_document(name))
    opened.made("POST", "/queries", {"name": "q", "cql": CQL})
    yield opened
    opened.close()


def problem_of(service: Service, method: str, path: str, body: Any, status: int) -> dict[str, Any]:
    """The problem that answers a request which must change nothing."""
    before = (service.store.queries.all(), service.store.sinks.all(), service.store.control_log.latest_plan())
    answer = service.send(method, path, body)
    assert answer.status_code == status, answer.text
    assert (
        service.store.queries.all(),
        service.store.sinks.all(),
        service.store.control_log.latest_plan(),
    ) == before
    problem: dict[str, Any] = answer.json()
    return problem


@pytest.mark.parametrize(
    ("sink", "code", "detail", "pointer"),
    [
        ({"type": "files", "path": "/etc"}, "invalid-sink", 'path "/etc" is not relative', "#/sink/path"),
        (
            {"type": "files", "path": "a/../../b"},
            "invalid-sink",
            'path "a/../../b" leaves the directory of exports',
            "#/sink/path",
        ),
        ({"type": "files", "path": "a/.b"}, "invalid-sink", 'path "a/.b" is not allowed', "#/sink/path"),
        ({"type": "files", "path": "a//b"}, "invalid-sink", 'path "a//b" is not allowed', "#/sink/path"),
        ({"type": "files", "path": "a/"}, "invalid-sink", 'path "a/" is not allowed', "#/sink/path"),
        ({"type": "files", "path": "a\x00b"}, "invalid-sink", 'path "a\x00b" is not allowed', "#/sink/path"),
        ({"type": "files", "path": ""}, "invalid-request", None, "#/sink/path"),
        ({"type": "files"}, "invalid-request", 'field "path" is missing', "#/sink/path"),
        (FILES | {"format": "avro"}, "invalid-request", None, "#/sink/format"),
        (FILES | {"batches_per_file": 0}, "invalid-request", None, "#/sink/batches_per_file"),
        (FILES | {"batches_per_file": 1001}, "invalid-request", None, "#/sink/batches_per_file"),
        (FILES | {"batches_per_file": 2, "max_delay": "soon"}, "invalid-request", None, "#/sink/max_delay"),
        (
            FILES | {"max_delay": "5s"},
            "invalid-sink",
            "a file of one batch cannot wait for more batches",
            "#/sink/max_delay",
        ),
        (
            FILES | {"batches_per_file": 2, "max_delay": "2h"},
            "invalid-sink",
            "max_delay 2h is longer than an hour",
            "#/sink/max_delay",
        ),
        (FILES | {"mode": "append"}, "invalid-request", 'field "mode" is not known', "#/sink/mode"),
        ({"type": "carrier"}, "invalid-request", 'sink type "carrier" is not known', "#/sink/type"),
        ({"path": "alerts"}, "invalid-request", 'field "type" is missing', "#/sink/type"),
        (
            "s3",
            "invalid-request",
            'field "sink": expected an object with keys and values, not "s3"',
            "#/sink",
        ),
        (
            {"type": "webhook", "url": "ftp://example.org/"},
            "invalid-sink",
            '"ftp://example.org/" is not an http or https URL',
            "#/sink/url",
        ),
        ({"type": "webhook", "url": "http://"}, "invalid-sink", None, "#/sink/url"),
        ({"type": "webhook", "url": "http://a:99999/"}, "invalid-sink", None, "#/sink/url"),
        ({"type": "webhook", "url": "http://a/\r\nHost: b"}, "invalid-sink", None, "#/sink/url"),
        ({"type": "webhook", "url": "http://u:p@a/"}, "invalid-sink", None, "#/sink/url"),
        (
            HOOK | {"headers": {"Authorization": "Bearer x"}},
            "invalid-sink",
            None,
            "#/sink/headers/Authorization",
        ),
        (
            HOOK | {"headers": {"X": {"env": "PATH"}}},
            "invalid-request",
            'field "X": write text, or {"env": "SLUICE_SECRET_..."} for a secret',
            "#/sink/headers/X",
        ),
    ],
)
def test_a_sink_that_cannot_be_meant_is_refused_with_its_place(
    service: Service, sink: Any, code: str, detail: str | None, pointer: str
) -> None:
    requests = [
        ("PATCH", "/queries/q", {"sink": sink}, ""),
        ("PATCH", "/queries/q", {"window": "5s", "sink": sink}, ""),
        ("POST", "/queries", {"name": "q2", "cql": CQL, "sink": sink}, ""),
        ("PUT", "/queries/q2", {"cql": CQL, "sink": sink}, ""),
        ("POST", "/changes", {"changes": [{"update": {"name": "q", "sink": sink}}]}, "/changes/0/update"),
        (
            "POST",
            "/changes",
            {"changes": [{"pause": "q"}, {"add": {"name": "q2", "cql": CQL, "sink": sink}}]},
            "/changes/1/add",
        ),
    ]
    for method, path, body, where in requests:
        problem = problem_of(service, method, path, body, 422)
        assert problem["code"] == code
        assert detail in (None, problem["detail"])
        assert [fault["pointer"] for fault in problem["errors"]] == [f"#{where}{pointer.removeprefix('#')}"]


def test_a_sink_is_set_without_a_new_plan_version(service: Service) -> None:
    version = service.made("GET", "/queries/q")["plan_version"]
    answer = service.send("PATCH", "/queries/q", {"sink": FILES})
    assert (answer.status_code, answer.headers["etag"]) == (200, f'"{version}"')
    found = answer.json()
    observed = found["sink_observed"]
    assert (found["sink"], found["former_sinks"], found["plan_version"]) == (FILES, [], version)
    assert (observed["sink"], observed["state"], observed["from_batch"]) == (FILES, "current", 0)
    assert (observed["lag_batches"], observed["rows"], observed["last_batch"]) == (0, 0, None)
    assert observed["observed_at"].endswith("Z")
    assert service.store.control_log.head() == len(service.store.plan_history.page()) == version
    # Said again it is so already; nothing is set.
    assert service.send("PATCH", "/queries/q", {"sink": FILES}).json() == found
    assert len(service.store.sinks.all()) == 1
    taken = service.made("PATCH", "/queries/q", {"sink": None})
    assert (taken["sink"], taken["sink_observed"]) == (None, None)
    assert service.made("PATCH", "/queries/q", {"sink": None})["sink"] is None


def test_options_of_files_are_answered_as_they_are_understood(service: Service) -> None:
    options = {"batches_per_file": 50, "max_delay": "1 min"}
    found = service.made("PATCH", "/queries/q", {"sink": FILES | options})
    answered = FILES | {"batches_per_file": 50, "max_delay": "1min"}
    assert (found["sink"], found["sink_observed"]["sink"]) == (answered, answered)
    assert (
        service.send(
            "PATCH", "/queries/q", {"sink": FILES | {"batches_per_file": 50, "max_delay": 60}}
        ).json()
        == found
    )
    assert service.made("PATCH", "/queries/q", {"sink": FILES})["sink"] == FILES


def test_what_a_sink_lags_and_loses_is_answered(service: Service) -> None:
    service.made("PATCH", "/queries/q", {"sink": FILES})
    store = service.store
    query_id = store.queries.get("q").query.id
    an_hour_ago_us = wall_clock_us() - 3_601_000_000

    def observed() -> dict[str, Any]:
        found: dict[str, Any] = service.made("GET", "/queries/q")["sink_observed"]
        return found

    epoch = begin_epoch(store)
    for batch, at_us in enumerate((an_hour_ago_us, wall_clock_us(), wall_clock_us())):
        commit(store, replace(manifest(batch, epoch, {query_id: 3}), committed_at_us=at_us))
    assert (observed()["state"], observed()["lag_batches"]) == ("lagging", 3)
    assert observed()["waiting_since"] == timestamp(an_hour_ago_us)
    (record,) = store.sinks.pending()
    assert store.sinks.lose(record, 2)
    found = observed()
    lost = {"state": "lost", "lag_batches": 1, "lost_batches": 2, "lost_rows": 6, "last_lost_batch": 1}
    assert {key: found[key] for key in lost} == lost
    assert found["lost_at"] == found["observed_at"]
    (record,) = store.sinks.pending()
    store.sinks.delivered(record, 2, 3, whole=True)
    assert (observed()["state"], observed()["lost_rows"], observed()["waiting_since"]) == ("current", 6, None)


def test_a_sink_that_comes_with_a_text_waits_for_its_version(service: Service) -> None:
    answer = service.send("PATCH", "/queries/q", {"window": "5s", "sink": HOOK})
    found = answer.json()
    assert (answer.status_code, found["plan_version"], found["sink"]) == (202, 2, HOOK)
    assert (found["sink_observed"]["state"], found["sink_observed"]["from_batch"]) == ("pending", None)
    # Without a sink in the request it stays what it is.
    kept = service.made("PATCH", "/queries/q", {"window": "6s"})
    assert (kept["sink"], kept["plan_version"]) == (HOOK, 3)


def test_a_query_comes_with_its_sink(service: Service) -> None:
    added = service.made("POST", "/queries", {"name": "q2", "cql": CQL, "sink": FILES})
    assert (added["sink"], added["sink_observed"]["state"]) == (FILES, "pending")
    body = {"cql": CQL, "sink": FILES}
    assert service.send("PUT", "/queries/q2", body).status_code == 200
    assert service.send("PUT", "/queries/q2", {"cql": CQL}).status_code == 409
    assert service.send("PUT", "/queries/q2", body | {"sink": HOOK}).status_code == 409
    page = service.made("GET", "/queries")
    assert [(item["name"], item["sink"]) for item in page["items"]] == [("q", None), ("q2", FILES)]


def test_two_queries_do_not_write_to_one_place(service: Service) -> None:
    service.made("PATCH", "/queries/q", {"sink": FILES})
    other = FILES | {"path": "Alerts/Q", "format": "csv"}
    add = {"name": "q2", "cql": CQL, "sink": other}
    problem = problem_of(service, "POST", "/queries", add, 409)
    assert (problem["code"], problem["detail"]) == ("sink-in-use", 'path "Alerts/Q" is in use')
    assert problem["explanation"] == 'Query "q" writes its files there.'
    problem_of(service, "POST", "/queries", add, 409)
    # A paused query keeps its place, a removed one gives it up.
    service.made("POST", "/queries/q:pause")
    problem_of(service, "POST", "/queries", add, 409)
    service.made("DELETE", "/queries/q")
    assert service.made("POST", "/queries", add)["sink"] == other


def test_a_place_changes_hands_in_one_list_in_any_order(service: Service) -> None:
    service.made("POST", "/queries", {"name": "q2", "cql": CQL, "sink": FILES})
    give, take = {"update": {"name": "q2", "sink": HOOK}}, {"update": {"name": "q", "sink": FILES}}
    changed = service.made("POST", "/changes", {"changes": [take, give]})
    assert [query["sink"] for query in changed["queries"]] == [FILES, HOOK]
    assert changed["plan_version"] == 2, "sinks alone make no version"
    back = [{"remove": "q"}, {"update": {"name": "q2", "sink": FILES}}]
    changed = service.made("POST", "/changes", {"changes": back})
    assert [(query["desired"], query["sink"]) for query in changed["queries"]] == [
        ("removed", FILES),
        ("running", FILES),
    ]


def test_a_bad_sink_fails_all_of_a_list(service: Service) -> None:
    changes = [
        {"add": {"name": "q2", "cql": CQL, "sink": FILES}},
        {"add": {"name": "q3", "cql": CQL, "sink": FILES}},
        {"add": {"name": "q4", "cql": CQL, "sink": FILES | {"path": "../x"}}},
        {"update": {"name": "q", "window": "3s"}},
    ]
    problem = problem_of(service, "POST", "/changes", {"changes": changes}, 422)
    assert [(fault["pointer"], fault["detail"]) for fault in problem["errors"]] == [
        ("#/changes/2/add/sink/path", 'path "../x" leaves the directory of exports'),
        ("#/changes/1/add/sink/path", 'path "alerts/q" is in use'),
    ]
    problem = problem_of(service, "POST", "/changes", {"changes": changes[:2]}, 409)
    assert [fault["pointer"] for fault in problem["errors"]] == ["#/changes/1/add/sink/path"]


def test_a_sink_of_a_paused_or_absent_query(service: Service) -> None:
    problem_of(service, "PATCH", "/queries/nobody", {"sink": FILES}, 404)
    service.made("POST", "/queries/q:pause")
    found = service.made("PATCH", "/queries/q", {"sink": FILES})
    assert (found["desired"], found["sink"]) == ("paused", FILES)
    assert service.made("POST", "/queries/q:resume")["sink"] == FILES


def test_a_change_of_a_sink_is_answered_once_under_its_key(service: Service) -> None:
    first = service.send("PATCH", "/queries/q", {"sink": FILES}, key="k1")
    service.made("PATCH", "/queries/q", {"sink": HOOK})
    again = service.send("PATCH", "/queries/q", {"sink": FILES}, key="k1")
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert service.made("GET", "/queries/q")["sink"] == HOOK


def test_headers_are_answered_with_their_secrets_by_name(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_SECRET_HOOK", "Bearer 1f0c")
    headers = {"X-Team": "alerts", "Authorization": {"env": "SLUICE_SECRET_HOOK"}}
    taken = service.made("PATCH", "/queries/q", {"sink": HOOK | {"headers": headers}})
    assert taken["sink"] == taken["sink_observed"]["sink"] == HOOK | {"headers": headers}
    answer = service.send("GET", "/queries/q")
    assert answer.json()["sink"] == HOOK | {"headers": headers}
    assert "1f0c" not in answer.text
    assert service.made("PATCH", "/queries/q", {"sink": HOOK})["sink"] == HOOK
