"""Queries that change in a running service, over HTTP: updates, pauses, lists of changes, many clients."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.running_service import START_TIMEOUT_S, WAIT_S, RunningService, at, free_port, post
from tests.sluice_run import Command

pytestmark = pytest.mark.spark

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}
CLIENTS = 50


def cql(a: str, b: str, window_s: int = 10, where: str = "") -> str:
    return (
        f"SELECT a.k, a.v, b.v AS w FROM {a} [RANGE {window_s} SECONDS] a, {b} [RANGE {window_s} SECONDS] b "
        f"WHERE a.k = b.k{where}"
    )


def results(service: RunningService, query: str, count: int) -> list[Any]:
    """Wait for a query's first results."""
    with service.events(f"/queries/{query}/results/stream") as events:
        return [event.data for event in islice(events, count)]


def test_a_query_is_updated_paused_resumed_and_removed_under_one_name(service: RunningService) -> None:
    service.register(COLUMNS, "up_a", "up_b", lateness="60s")
    added = service.ok(
        "POST",
        f"/queries?wait={WAIT_S}",
        201,
        json={"name": "up_q", "cql": cql("up_a", "up_b")},
        headers={"X-Actor": "ann"},
    )
    post(service, "up_a", (10, 1, 0.1), (10, 1, 0.9))
    post(service, "up_b", (12, 1, 5.0))
    assert [row["v"] for row in results(service, "up_q", 2)] == [0.1, 0.9]

    # A window and a filter by parts; a held row joins a new one under the new text.
    patch = {"window": "20s", "filter": {"a": "v < 0.5"}}
    updated = service.ok("PATCH", f"/queries/up_q?wait={WAIT_S}", 200, json=patch)
    assert (updated["series"], updated["revisions"]) == (added["id"], [added["id"], updated["id"]])
    assert (updated["a"]["window"], updated["a"]["filter"], updated["b"]["filter"]) == (
        "20s",
        '"v" < 0.5',
        None,
    )
    assert (updated["observed"], updated["results"], updated["missing_columns"]) == ("running", 2, [])
    post(service, "up_b", (28, 1, 6.0))
    got = results(service, "up_q", 3)
    assert got[2] == {"k": 1, "v": 0.1, "w": 6.0, "_event_time": at(28)}

    # Said again, it is as it was.
    again = service.http.patch("/queries/up_q", json=patch)
    assert (again.status_code, again.json()["id"]) == (200, updated["id"])

    paused = service.ok("POST", f"/queries/up_q:pause?wait={WAIT_S}", 200)
    assert (paused["desired"], paused["observed"]) == ("paused", "paused")
    assert service.ok("POST", "/queries/up_q:pause", 200)["plan_version"] == paused["plan_version"]
    assert "up_q" in {item["name"] for item in service.ok("GET", "/queries?limit=1000", 200)["items"]}
    service.ok("POST", "/queries", 409, json={"name": "up_q", "cql": cql("up_a", "up_b")})
    service.ok("DELETE", "/streams/up_a", 409)
    post(service, "up_b", (29, 1, 7.0))
    resumed = service.ok("POST", f"/queries/up_q:resume?wait={WAIT_S}", 200)
    assert (resumed["desired"], resumed["observed"]) == ("running", "running")

    # Other columns: the name's results go on, a page ends where they change.
    service.ok("PATCH", f"/queries/up_q?wait={WAIT_S}", 200, json={"select": "b.v AS only"})
    post(service, "up_a", (30, 1, 0.2))
    post(service, "up_b", (31, 1, 8.0))
    rows: list[Any] = []
    pages: list[list[str]] = []
    after: dict[str, str] = {}
    deadline = time.monotonic() + WAIT_S
    while {"only": 8.0, "_event_time": at(31)} not in rows:
        assert time.monotonic() < deadline
        page = service.ok("GET", "/queries/up_q/results", 200, params=after)
        if page["rows"]:
            pages.append([column["name"] for column in page["columns"]])
            rows += page["rows"]
            after = {"after": page["next_cursor"]}
    assert pages[0] == ["k", "v", "w", "_event_time"]
    assert pages[-1] == ["only", "_event_time"]
    assert rows[:3] == got

    removed = service.ok("DELETE", f"/queries/up_q?wait={WAIT_S}", 200)
    assert (removed["desired"], removed["observed"]) == ("removed", "removed")
    with service.events("/queries/up_q/results/stream") as events:
        assert [event.event for event in events] == ["result"] * len(rows) + ["end"]
    service.ok("PATCH", "/queries/up_q", 404, json={"window": "1s"})


def test_a_list_of_changes_is_one_plan_version_or_nothing(service: RunningService) -> None:
    service.register(COLUMNS, "ls_a", "ls_b", lateness="60s")
    text = cql("ls_a", "ls_b")
    add = [{"add": {"name": f"ls_q{n}", "cql": text}} for n in range(1, 5)]
    first = service.ok("POST", f"/changes?wait={WAIT_S}", 200, json={"changes": add})
    assert [query["name"] for query in first["queries"]] == ["ls_q1", "ls_q2", "ls_q3", "ls_q4"]
    assert {query["plan_version"] for query in first["queries"]} == {first["plan_version"]}
    changes = [
        {"update": {"name": "ls_q1", "window": {"a": "1 MINUTE"}}},
        {"remove": "ls_q2"},
        {"pause": "ls_q3"},
        {"add": {"name": "ls_q5", "cql": text}},
    ]
    response = service.http.post(
        "/changes", json={"changes": changes}, headers={"If-Match": f'"{first["plan_version"]}"'}
    )
    assert response.status_code == 202
    second = response.json()
    assert second["plan_version"] == first["plan_version"] + 1
    assert response.headers["etag"] == f'"{second["plan_version"]}"'
    assert [query["desired"] for query in second["queries"]] == ["running", "removed", "paused", "running"]

    bad = [{"remove": "ls_q1"}, {"pause": "ls_q9"}, {"add": {"name": "ls_q5", "cql": text}}]
    problem = service.ok("POST", "/changes", 422, json={"changes": bad})
    assert problem["code"] == "invalid-changes"
    assert [error["pointer"] for error in problem["errors"]] == ["#/changes/1/pause", "#/changes/2/add/name"]
    assert service.ok("GET", "/plan", 200)["version"] == second["plan_version"]
    assert service.ok("GET", "/queries/ls_q1", 200)["desired"] == "running"

    repeated = service.ok(
        "POST", "/changes", 200, json={"changes": [{"pause": "ls_q3"}, {"resume": "ls_q4"}]}
    )
    assert repeated["plan_version"] == second["plan_version"]


def test_the_current_version_stands_in_the_problem(service: RunningService) -> None:
    service.register(COLUMNS, "cv_s", lateness="60s")
    service.ok("POST", "/queries", 202, json={"name": "cv_q", "cql": cql("cv_s", "cv_s")})
    version = service.ok("GET", "/plan", 200)["version"]
    stale = {"If-Match": f'"{version - 1}"'}
    for method, path, body in (
        ("PATCH", "/queries/cv_q", {"window": "5s"}),
        ("POST", "/queries/cv_q:pause", None),
        ("POST", "/queries/cv_q:resume", None),
        ("POST", "/changes", {"changes": [{"remove": "cv_q"}]}),
    ):
        problem = service.ok(method, path, 412, json=body, headers=stale)
        assert (problem["code"], problem["plan_version"]) == ("stale-plan-version", version)


def test_fifty_clients_at_once_give_a_linear_history(service: RunningService) -> None:
    service.register(COLUMNS, "cc_s", lateness="60s")
    before = service.ok("GET", "/plan", 200)["version"]
    barrier = threading.Barrier(CLIENTS)

    def client(number: int) -> list[int]:
        """Add a query, change it, and remove every other one; return the versions that were given."""
        name, versions = f"cc_q{number}", []
        with httpx.Client(base_url=f"{service.root}/api/v1", timeout=WAIT_S) as http:
            barrier.wait(WAIT_S)
            body = {"name": name, "cql": cql("cc_s", "cc_s", 1 + number)}
            versions.append(http.post("/queries", json=body, headers={"X-Actor": name}))
            versions.append(http.patch(f"/queries/{name}", json={"window": f"{number + 100}s"}))
            if number % 2:
                versions.append(http.delete(f"/queries/{name}"))
        assert [response.status_code for response in versions] == [202] * len(versions), versions[-1].text
        return [int(response.headers["etag"].strip('"')) for response in versions]

    with ThreadPoolExecutor(CLIENTS) as pool:
        given = list(pool.map(client, range(CLIENTS)))
    count = 2 * CLIENTS + CLIENTS // 2
    assert sorted(version for versions in given for version in versions) == list(
        range(before + 1, before + count + 1)
    )
    assert all(versions == sorted(versions) for versions in given)
    plan = service.ok("GET", "/plan", 200)
    assert plan["version"] == before + count
    planned = {query["name"] for family in plan["families"] for query in family["queries"]}
    assert {name for name in planned if name.startswith("cc_")} == {f"cc_q{n}" for n in range(0, CLIENTS, 2)}
    removal = [{"remove": f"cc_q{n}"} for n in range(0, CLIENTS, 2)]
    service.ok("POST", "/changes", 202, json={"changes": removal})


def test_of_many_changes_made_for_one_version_one_is_made(service: RunningService) -> None:
    service.register(COLUMNS, "om_s", lateness="60s")
    version = service.ok("GET", "/plan", 200)["version"]
    barrier = threading.Barrier(CLIENTS)

    def client(number: int) -> int:
        body = {"name": f"om_q{number}", "cql": cql("om_s", "om_s")}
        with httpx.Client(base_url=f"{service.root}/api/v1", timeout=WAIT_S) as http:
            barrier.wait(WAIT_S)
            response = http.post("/queries", json=body, headers={"If-Match": f'"{version}"'})
        if response.status_code == 412:
            assert response.json()["plan_version"] == version + 1
        return response.status_code

    with ThreadPoolExecutor(CLIENTS) as pool:
        assert Counter(pool.map(client, range(CLIENTS))) == {202: 1, 412: CLIENTS - 1}
    assert service.ok("GET", "/plan", 200)["version"] == version + 1


def test_a_post_sent_five_times_at_once_makes_one_query(service: RunningService) -> None:
    service.register(COLUMNS, "fv_s", lateness="60s")
    version = service.ok("GET", "/plan", 200)["version"]
    body = {"name": "fv_q", "cql": cql("fv_s", "fv_s")}
    barrier = threading.Barrier(5)

    def client(_: int) -> httpx.Response:
        with httpx.Client(base_url=f"{service.root}/api/v1", timeout=WAIT_S) as http:
            barrier.wait(WAIT_S)
            return http.post("/queries", json=body, headers={"Idempotency-Key": "fv-1"})

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(client, range(5)))
    first = [answer.json() for answer in answers if answer.status_code == 202]
    assert first, [answer.text for answer in answers]
    assert all(answer == first[0] for answer in first)
    # Those that came while it was being served are told to come again.
    assert {a.json()["code"] for a in answers if a.status_code != 202} <= {"request-under-way"}
    assert service.ok("GET", "/plan", 200)["version"] == version + 1
    again = service.http.post("/queries", json=body, headers={"Idempotency-Key": "fv-1"})
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")


def test_the_command_line_updates_pauses_and_resumes(
    service: RunningService, sluice: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_URL", service.root)
    service.register(COLUMNS, "cl_s", lateness="60s")
    service.ok(
        "POST", "/queries", 202, json={"name": "cl_q", "cql": cql("cl_s", "cl_s", where=" AND a.v < 1")}
    )

    def query_command(*arguments: str) -> Any:
        done = sluice("query", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    updated = query_command(
        "update", "cl_q", "--window", "a=1 MINUTE", "--filter", "a=", "--filter", "b=v > 2"
    )
    assert (updated["a"]["window"], updated["a"]["filter"], updated["b"]["filter"]) == (
        "1min",
        None,
        '"v" > 2',
    )
    assert query_command("pause", "cl_q", "--wait", str(WAIT_S))["observed"] == "paused"
    assert query_command("update", "cl_q", cql("cl_s", "cl_s", 7))["desired"] == "paused"
    assert query_command("resume", "cl_q", "--wait", str(WAIT_S))["a"]["window"] == "7s"
    assert query_command("remove", "cl_q")["desired"] == "removed"


@pytest.mark.slow
def test_a_crash_between_a_change_and_its_answer_loses_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"name": "cr_q", "cql": cql("cr_s", "cr_s")}
    key = {"Idempotency-Key": "cr-1"}
    with monkeypatch.context() as patched:
        patched.setenv("SLUICE_FAILPOINT", "after-change@1")
        with RunningService(tmp_path / "data", tmp_path / "first.txt", free_port()) as dying:
            dying.register(COLUMNS, "cr_s", lateness="60s")
            with pytest.raises(httpx.TransportError):
                dying.http.post(f"/queries?wait={WAIT_S}", json=body, headers=key)
            dying.process.wait(START_TIMEOUT_S)
            assert dying.process.returncode < 0
    with RunningService(tmp_path / "data", tmp_path / "second.txt", free_port()) as service:
        answer = service.http.post(f"/queries?wait={WAIT_S}", json=body, headers=key)
        assert (answer.status_code, answer.headers["idempotency-replayed"]) == (202, "true")
        assert answer.headers["location"] == "/api/v1/queries/cr_q"
        assert (answer.json()["name"], answer.json()["id"], answer.json()["plan_version"]) == ("cr_q", 1, 1)
        assert service.ok("GET", "/plan", 200)["version"] == 1
        assert [item["name"] for item in service.ok("GET", "/queries", 200)["items"]] == ["cr_q"]
        service.ok("POST", "/queries", 409, json=body, headers={"Idempotency-Key": "cr-2"})
