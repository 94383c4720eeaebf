"""Migrations of a running service under load: asked for, followed, refused; results do not notice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.api.without_engine import Service

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "bigint"}
#: Event time between two events of a stream, and how many of them a request posts.
STEP_MS, EVENTS = 200, 10
#: Milliseconds; the windows of the queries.
WINDOWS = {"q1": 2_000, "q2": 6_000, "q3": 12_000}
KEYS = 5
#: Seconds between two posts, so that what must be read in the end does not grow without need.
PAUSE_S = 0.2
#: Seconds that a test waits for a version: a dozen of them, on a machine that other tests keep busy.
PATIENCE_S = 240


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service of our own, since strategies are the whole service's."""
    directory = tmp_path_factory.mktemp("migrations")
    with RunningService(directory / "data", directory / "log.txt", free_port()) as service:
        set_up(service)
        yield service


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Application without an engine, for requests that only plan and answer."""
    with closing(Service(tmp_path_factory.mktemp("planned"))) as service:
        set_up(service)
        yield service


def set_up(service: RunningService | Service) -> None:
    for name in ("A", "B"):
        body = {
            "name": name,
            "columns": COLUMNS,
            "event_time": "ts",
            "lateness": "1s",
            "source": {"type": "http"},
        }
        service.ok("POST", "/streams", 201, json=body)
    for name, window_ms in WINDOWS.items():
        service.ok("POST", "/queries", 202, json={"name": name, "cql": cql(window_ms)})


def cql(window_ms: int) -> str:
    window = f"[RANGE {window_ms} MILLISECONDS]"
    return f"SELECT A.v AS a, B.v AS b FROM A {window}, B {window} WHERE A.k = B.k"


def moment(ms: int) -> str:
    return f"2026-01-01T00:{ms // 60_000:02}:{ms % 60_000 / 1000:06.3f}Z"


class Load:
    """Posts events to both streams until it is told to stop; event n is at n steps, with key n mod 5."""

    def __init__(self, service: RunningService) -> None:
        self.service = service
        self.sent = 0
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.error is None, self.error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                numbers = range(self.sent, self.sent + EVENTS)
                events = [{"ts": moment(n * STEP_MS), "k": n % KEYS, "v": n} for n in numbers]
                for stream in ("A", "B"):
                    self.service.ok("POST", f"/streams/{stream}/events", 202, json=events)
                self.sent += EVENTS
                self._stop.wait(PAUSE_S)
        except BaseException as error:
            self.error = error


def oracle(sent: int, window_ms: int) -> Counter[tuple[int, int]]:
    """Nested loops over everything that was posted."""
    return Counter(
        (a, b)
        for a in range(sent)
        for b in range(max(0, a - window_ms // STEP_MS), min(sent, a + window_ms // STEP_MS + 1))
        if a % KEYS == b % KEYS and abs(b - a) * STEP_MS < window_ms
    )


def results(service: RunningService, query: str, expected: int) -> Counter[tuple[int, int]]:
    """Read the results of a query page by page, once there are so many."""
    deadline = time.monotonic() + PATIENCE_S
    while service.ok("GET", f"/queries/{query}", 200)["results"] < expected and time.monotonic() < deadline:
        pass
    found: Counter[tuple[int, int]] = Counter()
    page: dict[str, Any] = {"has_more": True, "next_cursor": None}
    while page["has_more"]:
        after = {} if page["next_cursor"] is None else {"after": page["next_cursor"]}
        page = service.ok("GET", f"/queries/{query}/results", 200, params={"limit": 1000, **after})
        found.update((row["a"], row["b"]) for row in page["rows"])
    return found


def migrate(service: RunningService, **body: Any) -> dict[str, Any]:
    """Migrate and wait until the version is in force; batches come with the load."""
    wait = {"params": {"wait": PATIENCE_S}, "timeout": PATIENCE_S + 30}
    answer = service.ok("POST", "/migrations", 200, json=body, headers={"X-Actor": "test"}, **wait)
    assert isinstance(answer, dict)
    return answer


def windows(service: RunningService, side: str = "a") -> list[str]:
    (family,) = service.ok("GET", "/plan", 200)["families"]
    return [piece["window"] for piece in family["chains"][side]]


@pytest.mark.slow
@pytest.mark.spark
def test_chains_migrate_under_load_and_results_are_the_oracle_s(own: RunningService) -> None:
    # All queries are in force before the first event: none has to do without earlier rows.
    mem_opt = migrate(own, strategy="mem-opt")["plan_version"]
    with Load(own) as load:
        split = migrate(own, splits=[{"at": "4s"}], merges=[{"at": "2s", "side": "A"}])
        assert windows(own) == ["[0s, 4s)", "[4s, 6s)", "[6s, 12s)"]
        assert windows(own, "b") == ["[0s, 2s)", "[2s, 4s)", "[4s, 6s)", "[6s, 12s)"]
        migrate(own, family_strategies={"A.k = B.k": "pullup"})
        assert windows(own) == ["[0s, 12s)"]
        migrate(own, rollback_to=split["plan_version"])
        assert windows(own) == ["[0s, 4s)", "[4s, 6s)", "[6s, 12s)"]
        migrate(own, on_leave="manual")
        extra = {"name": "extra", "cql": cql(20_000)}
        own.ok("POST", "/queries", 202, json=extra)
        own.ok("DELETE", "/queries/extra", 202)
        assert windows(own)[-1] == "[12s, 20s)"
        migrate(own, cleanup=True)
        assert windows(own) == ["[0s, 2s)", "[2s, 6s)", "[6s, 12s)"]
        for strategy in ("unshared", "pushdown", "cpu-opt"):
            migrate(own, strategy=strategy)
        last = migrate(own, rollback_to=mem_opt)
    print(f"{load.sent} events a stream, last migration {last['id']}")
    for name, window_ms in WINDOWS.items():
        expected = oracle(load.sent, window_ms)
        assert results(own, name, sum(expected.values())) == expected

    followed = own.ok("GET", f"/migrations/{split['id']}", 200)
    assert (followed["status"], followed["actor"]) == ("active", "test")
    assert followed["took"]["batch"] >= 0
    assert followed["took"]["batch_seconds"] > 0
    assert {s["window"] for s in followed["took"]["slices_after"] if s["side"] == "a"} == {
        "[0s, 4s)",
        "[4s, 6s)",
        "[6s, 12s)",
    }
    page = own.ok("GET", "/migrations", 200, params={"limit": 2})
    assert [item["id"] for item in page["items"]] == [1, 2]
    rest = own.ok("GET", "/migrations", 200, params={"after": page["next_cursor"]})
    assert [item["id"] for item in rest["items"]][-1] == last["id"]
    assert {item["status"] for item in [*page["items"], *rest["items"]]} == {"active"}


def test_the_history_says_who_changed_what(planned: Service) -> None:
    answer = planned.ok(
        "POST", "/migrations", 202, json={"merges": [{"at": "2s"}]}, headers={"X-Actor": "night shift"}
    )
    version = answer["plan_version"]
    listed = planned.ok("GET", "/plan/versions", 200, params={"after": version - 1})["items"]
    assert [(i["version"], i["actor"], i["cause"]) for i in listed] == [
        (version, "night shift", "migrate: merge at 2s")
    ]
    assert [step["text"] for step in listed[0]["changes"]] == ["merge A at 2s", "merge B at 2s"]
    shown = planned.ok("GET", f"/plan/versions/{version}", 200)
    assert (shown["actor"], shown["dropped"]) == ("night shift", False)
    assert shown["changes"] == listed[0]["changes"]
    first = planned.ok("GET", "/plan/versions/1", 200)
    assert (first["actor"], first["cause"]) == ("anonymous", "add q1")
    assert [s["type"] for s in first["changes"]] == ["open-join", "extend", "extend", "set-routes"]
    planned.ok("POST", "/migrations", 202, json={"cleanup": True})


def test_a_dry_run_predicts_and_changes_nothing(planned: Service) -> None:
    version = planned.ok("GET", "/plan", 200)["version"]
    body = {"merges": [{"at": "2s"}], "dry_run": True}
    answer = planned.ok("POST", "/migrations", 200, json=body)
    assert (answer["dry_run"], answer["plan_version"], answer["previous_version"]) == (
        True,
        version + 1,
        version,
    )
    assert [step["text"] for step in answer["primitives"]] == ["merge A at 2s", "merge B at 2s"]
    before, after = answer["cost"]["before"], answer["cost"]["after"]
    assert set(before) >= {"memory_rows", "memory_bytes", "cpu_comparisons_per_s", "cpu_s_per_s", "families"}
    assert before["families"].keys() == after["families"].keys() == {"A.k = B.k"}
    assert before["cpu_s_per_s"] != after["cpu_s_per_s"]
    assert planned.ok("GET", "/plan", 200)["version"] == version


def test_a_migration_is_for_the_version_it_was_made_for(planned: Service) -> None:
    version = planned.ok("GET", "/plan", 200)["version"]
    stale = {"If-Match": f'"{version - 1}"'}
    problem = planned.ok("POST", "/migrations", 412, json={"cleanup": True}, headers=stale)
    assert problem["code"] == "stale-plan-version"
    fresh = planned.request(
        "POST", "/migrations", json={"cleanup": True}, headers={"If-Match": f'"{version}"'}
    )
    assert (fresh.status_code, fresh.headers["ETag"]) == (202, f'"{version + 1}"')
    assert fresh.headers["Location"] == f"/api/v1/migrations/{fresh.json()['id']}"
    key = {"Idempotency-Key": "cleanup-once"}
    first = planned.request("POST", "/migrations", json={"cleanup": True}, headers=key)
    again = planned.request("POST", "/migrations", json={"cleanup": True}, headers=key)
    assert again.json() == first.json()
    assert again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.slow
@pytest.mark.spark
def test_the_policy_is_shown_and_a_cleanup_comes_when_it_is_due(own: RunningService) -> None:
    own.ok("POST", "/migrations", 202, json={"on_leave": {"after": "1s"}})
    policy = own.ok("GET", "/migrations/policy", 200)
    assert (policy["on_leave"], policy["cleanup_due_at"]) == ({"after_s": 1.0}, None)
    own.ok("POST", "/queries", 202, json={"name": "long", "cql": cql(30_000)})
    left = own.ok("DELETE", "/queries/long", 202)["plan_version"]
    shown = own.ok("GET", f"/plan/versions/{left}", 200)
    assert shown["families"][0]["chains"]["a"][-1]["window"] == "[12s, 30s)"
    with until(own, left + 1) as version:
        assert version["cause"] == "cleanup"
        assert [s["text"] for s in version["changes"]] == [
            "truncate A from 30s to 12s",
            "truncate B from 30s to 12s",
        ]
    own.ok("POST", "/migrations", 202, json={"on_leave": "auto"})
    assert own.ok("GET", "/migrations/policy", 200)["on_leave"] == "auto"


@contextmanager
def until(service: RunningService, version: int) -> Iterator[dict[str, Any]]:
    """Wait for a version that the service makes by itself; `wait` holds the request until then."""
    found: list[dict[str, Any]] = []
    for _ in range(WAIT_S * 100):
        found = service.ok("GET", "/plan/versions", 200, params={"after": version - 1})["items"]
        if found:
            break
    assert found, "no version came"
    yield found[0]


@pytest.mark.slow
@pytest.mark.spark
def test_a_migration_survives_a_restart(own: RunningService, tmp_path: Path) -> None:
    """The last test of this file: it stops the service that the others share."""
    made = own.ok("POST", "/migrations", 202, json={"strategy": "pullup"})
    version = made["plan_version"]
    own.stop()
    with RunningService(own.data_dir, tmp_path / "log.txt", free_port()) as service:
        plan = service.ok("GET", "/plan", 200)
        assert (plan["version"], plan["strategy"]) == (version, "pullup")
        assert service.ok("GET", "/migrations/policy", 200)["strategy"] == "pullup"
        assert service.ok("GET", f"/migrations/{made['id']}", 200)["plan_version"] == version
