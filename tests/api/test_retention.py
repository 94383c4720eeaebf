"""Results that are not kept any more, over raw HTTP: refused to whoever was behind them, told to others."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from api.results.endpoints import events_of, open_stream
from catalog.store.results import retention
from catalog.store.results.retention import KEPT_BATCHES
from catalog.store.store import Store
from service.commit.upkeep.retention import ResultRetention
from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document
from tests.catalog.examples import plan
from tests.epochs import begin_epoch
from tests.service.pairs import Batches
from tests.service.results.test_results import pair
from tests.waiting import until

SECOND_US = 1_000_000


@dataclass
class Old:
    """A service without its engine, and what an engine and the retention would do."""

    service: Service
    batches: Batches
    retention: ResultRetention

    def send(self, method: str, path: str) -> httpx.Response:
        """Send one request."""
        return self.service.send(method, path)

    def commit(self, count: int) -> None:
        """Commit batches with two results each."""
        for _ in range(count):
            n = self.batches.next
            self.batches.commit([pair(1, n, 2 * n, 0, n), pair(1, n, 2 * n + 1, 0, -n)])


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Old]:
    """A service whose query has two results in each of ten batches; those of the first seven were dropped."""
    monkeypatch.setattr(retention, "KEPT_BATCHES", 3)
    service = Service(tmp_path / "data")
    for name in ("A", "B"):
        service.made("POST", "/streams", stream_document(name))
    query = service.made("POST", "/queries", {"name": "q", "cql": CQL})
    store, directory = service.store, service.workspace.data_dir
    begin_epoch(store)
    batches = Batches(store, directory.results, {1: (query["id"],)}, spacing_us=SECOND_US)
    lock = str(directory.engine_lock)
    made = Old(
        service, batches, ResultRetention(store, directory.results, directory.late, 1, lock, interval_s=0)
    )
    made.commit(10)
    made.retention.run_once(10**12)
    yield made
    service.close()


def test_a_cursor_behind_what_is_kept_is_gone(old: Old) -> None:
    answer = old.send("GET", "/queries/q/results?after=6.1")
    assert answer.status_code == 410
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:sluice:problem:results-expired",
        "code": "results-expired",
        "title": "Results after the cursor have expired",
        "status": 410,
        "detail": 'results after cursor "6.1" are not kept any more',
        "explanation": "14 results of this query were dropped; results of batches since "
        "1970-01-01 00:00:07 UTC are kept.",
        "hint": "Read without a cursor to start at the first result that is kept. The setting "
        "SLUICE_RESULT_RETENTION says how long results are kept.",
        "instance": "/api/v1/queries/q/results",
        "errors": [],
    }
    assert old.send("GET", "/queries/q/results/stream?after=0.1").json()["code"] == "results-expired"


def test_a_cursor_at_the_end_of_what_was_dropped_is_good(old: Old) -> None:
    answer = old.send("GET", "/queries/q/results?after=6.2&limit=3")
    assert answer.status_code == 200
    assert [row["k"] for row in answer.json()["rows"]] == [7, -7, 8]
    assert (answer.json()["dropped"], answer.json()["kept_since"]) == (0, None)
    assert "sluice-dropped" not in answer.headers


def test_reading_from_the_beginning_says_how_much_is_not_kept(old: Old) -> None:
    answer = old.send("GET", "/queries/q/results")
    body = answer.json()
    assert [row["k"] for row in body["rows"]] == [7, -7, 8, -8, 9, -9]
    assert (body["dropped"], body["kept_since"]) == (14, "1970-01-01T00:00:07.000000Z")
    assert answer.headers["sluice-dropped"] == "14"
    assert answer.headers["sluice-kept-since"] == "1970-01-01T00:00:07.000000Z"
    assert old.service.made("GET", "/queries/q")["results"] == 20


def follow(old: Old, meanwhile: Callable[[], object], cursor: str | None = None) -> list[tuple[str, Any]]:
    """Follow the results, let something happen once all that are there have come, and return the events."""
    workspace = old.service.workspace

    async def followed() -> list[tuple[str, Any]]:
        events: list[tuple[str, Any]] = []
        series, page = await open_stream("q", workspace, cursor)
        there = page.table.num_rows + (page.kept_since_us is not None)
        with old.service.app.state.readers.reading(workspace, series, None) as reader:
            async for text in events_of(workspace, "/api/v1/queries/q/results/stream", reader, page):
                for each in text.decode().split("\n\n")[:-1]:
                    fields = dict(line.split(": ", 1) for line in each.splitlines())
                    events.append((fields["event"], json.loads(fields["data"])))
                if len(events) == there:
                    meanwhile()
        return events

    return anyio.run(followed)


def test_a_follower_without_a_cursor_is_told_first_what_is_not_kept(old: Old) -> None:
    events = follow(old, lambda: old.service.store.queries.remove("q", 1))
    assert events[0] == ("dropped", {"dropped": 14, "kept_since": "1970-01-01T00:00:07.000000Z"})
    assert [name for name, _ in events[1:]] == ["result"] * 6 + ["end"]


def test_a_follower_that_is_too_slow_is_told_so_and_cut(old: Old) -> None:
    def miss() -> None:
        old.commit(10)
        old.retention.run_once(10**12)

    events = follow(old, miss, "7.2")
    assert [name for name, _ in events] == ["result"] * 4 + ["gone"]
    assert events[-1][1]["code"] == "results-expired"
    assert events[-1][1]["detail"] == 'results after cursor "9.2" are not kept any more'


def test_a_follower_of_a_query_that_has_gone_is_told_so(old: Old) -> None:
    def go() -> None:
        store = old.service.store
        store.control_log.append(plan=plan(2))
        store.queries.remove("q", 2)
        old.batches.version = 2
        for _ in range(20):
            old.batches.commit()
        old.retention.needed_from = lambda: 15  # what may replay is kept
        old.retention.run_once(10**12)
        assert store.pruning.prune().queries == 1

    events = follow(old, go, "9.1")
    assert [name for name, _ in events] == ["result", "gone"]
    assert events[-1][1]["code"] == "query-not-found"
    assert old.send("GET", "/queries/q/results").status_code == 404


def start(data_dir: Path, number: int) -> RunningService:
    return RunningService(data_dir, data_dir.parent / f"service{number}.log", free_port())


def wait_for_batch(service: RunningService, batch: int) -> None:
    until(
        lambda: (service.ok("GET", "/engine", 200)["batch"] or 0) >= batch,
        lambda: service.log.read_text()[-4000:],
        limit_s=300,
    )


def named_files(data_dir: Path) -> tuple[int, set[str]]:
    """Where results begin, and the files that manifests name."""
    with Store.open(f"sqlite:///{data_dir / 'catalog.db'}", migrate=False) as store:
        names = {file.path for m in store.batches.manifests(0, 10**9) for file in m.files}
        return store.retention.kept_from()[0], names


def first_events(service: RunningService, cursor: str | None, count: int) -> list[tuple[str, Any]]:
    headers = {} if cursor is None else {"Last-Event-ID": cursor}
    with service.events("/queries/q/results/stream", headers) as events:
        return [(event.event, event.data) for event, _ in zip(events, range(count), strict=False)]


@pytest.mark.slow
@pytest.mark.spark
def test_a_service_that_keeps_a_second_of_results_is_killed_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the last batches all the same. What it dropped is gone, with its files, after a crash, too."""
    monkeypatch.setenv("SLUICE_RESULT_RETENTION", "1s")
    data_dir = tmp_path / "data"
    with start(data_dir, 1) as service:
        for seed, name in enumerate(("A", "B")):
            columns = {"k": {"distribution": "uniform", "low": 0, "high": 20}}
            source = {"type": "generator", "rate_per_s": 200, "seed": seed, "columns": columns}
            stream = stream_document(name) | {"source": source, "lateness": "1s"}
            service.ok("POST", "/streams", 201, json=stream)
        service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "q", "cql": CQL})
        first = service.ok("GET", "/queries/q/results?limit=1", 200)
        while not first["rows"]:
            time.sleep(0.2)
            first = service.ok("GET", "/queries/q/results?limit=1", 200)
        assert (first["dropped"], first["kept_since"]) == (0, None)
        batch = int(first["next_cursor"].partition(".")[0])
        wait_for_batch(service, batch + KEPT_BATCHES + 8)

        def read_on() -> httpx.Response:
            return service.http.get("/queries/q/results", params={"after": first["next_cursor"]})

        until(lambda: read_on().status_code == 410, lambda: read_on().text)
        refused = read_on()
        assert refused.json()["code"] == "results-expired"
        path, headers = "/queries/q/results/stream", {"Last-Event-ID": first["next_cursor"]}
        assert service.http.get(path, headers=headers).status_code == 410
        (event, facts), (following, _) = first_events(service, None, 2)
        assert (event, following) == ("dropped", "result")
        assert facts["dropped"] > 0
        os.killpg(service.process.pid, signal.SIGKILL)
        service.process.wait()
    kept_from, named = named_files(data_dir)
    assert kept_from > batch
    assert all(int(name[1:10]) >= kept_from for name in named)
    with start(data_dir, 2) as service:
        results = int(service.ok("GET", "/queries/q", 200)["results"])
        wait_for_batch(service, kept_from + KEPT_BATCHES + 8)
        page = service.ok("GET", "/queries/q/results?limit=10000", 200)
        assert page["rows"]
        assert page["dropped"] > facts["dropped"]
        assert int(service.ok("GET", "/queries/q", 200)["results"]) > results
        assert service.stop() == 0
    # What was dropped since the second start waits for the third; nothing that is named is missing.
    on_disk = {path.name for path in (data_dir / "results").iterdir()}
    later, named = named_files(data_dir)
    assert named <= on_disk
    assert all(int(name[1:10]) >= kept_from for name in on_disk), "the second start swept"
    assert later > kept_from
    assert json.loads((data_dir / "engine.lock").read_text() or "{}") == {}
