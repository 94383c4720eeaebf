"""Sinks of queries in a running service, over HTTP: what they are given is what the results say."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from service.results.result_formats import rows_for_json
from tests.api.running_service import WAIT_S, RunningService, at, free_port, post
from tests.service.sinks.receiver import Receiver
from tests.sluice_run import sluice

pytestmark = pytest.mark.spark

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        yield started


def cql(a: str, b: str, select: str = "a.k, b.v") -> str:
    windows = f"{a} [RANGE 10 SECONDS] a, {b} [RANGE 10 SECONDS] b"
    return f"SELECT {select} FROM {windows} WHERE a.k = b.k AND a.v < 0.9"


def eventually(
    what: str, service: RunningService, holds: Callable[[], bool], timeout_s: float = WAIT_S
) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}\n{service.log.read_text()[-4000:]}"
        time.sleep(0.1)


def query(service: RunningService, name: str) -> dict[str, Any]:
    found: dict[str, Any] = service.ok("GET", f"/queries/{name}", 200)
    return found


def delivered(service: RunningService, name: str, results: int) -> None:
    """Wait until a query has so many results, and its sinks have all of theirs."""

    def holds() -> bool:
        found = query(service, name)
        waiting = [found["sink_observed"] or {"lag_batches": 0}, *found["former_sinks"]]
        return found["results"] == results and all(sink["lag_batches"] == 0 for sink in waiting)

    eventually(f"{results} results of {name}", service, holds)


def by_batch(service: RunningService, name: str) -> dict[int, list[Any]]:
    """All results so far, by batch, as the stream of events gives them."""
    found: dict[int, list[Any]] = {}
    count = query(service, name)["results"]
    if count:
        with service.events(f"/queries/{name}/results/stream") as events:
            for event in islice(events, count):
                found.setdefault(int(event.id.split(".")[0]), []).append(event.data)
    return found


def files(directory: Path) -> dict[int, list[Any]]:
    """What the files of a directory hold, by batch."""
    found: dict[int, list[Any]] = {}
    for path in sorted(directory.glob("batch-*")):
        batch = int(path.name.split("-")[1])
        assert batch not in found
        if path.suffix == ".parquet":
            found[batch] = rows_for_json(pq.read_table(path))
        else:
            found[batch] = [json.loads(line) for line in path.read_text().splitlines()]
    return found


def test_sinks_follow_each_other_while_a_query_changes(service: RunningService, receiver: Receiver) -> None:
    service.register(COLUMNS, "sk_a", "sk_b", lateness="60s")
    exports = service.data_dir / "exports"
    first = {"type": "files", "path": "sk/first", "format": "ndjson"}
    body = {"name": "sk_q", "cql": cql("sk_a", "sk_b"), "sink": first}
    added = service.ok("POST", "/queries", 202, json=body)
    assert (added["sink"], added["sink_observed"]["state"]) == (first, "pending")
    # The first batch of a service compiles what it runs.
    eventually("its version", service, lambda: query(service, "sk_q")["observed"] == "running", 3 * WAIT_S)
    assert query(service, "sk_q")["sink_observed"]["from_batch"] is not None
    post(service, "sk_a", (1, 1, 0.1), (1, 2, 0.1))
    post(service, "sk_b", (2, 1, 5.0), (3, 2, 6.0))
    delivered(service, "sk_q", 2)
    found = query(service, "sk_q")["sink_observed"]
    assert (found["state"], found["rows"], found["error"]) == ("current", 2, None)
    assert files(exports / "sk" / "first") == by_batch(service, "sk_q")

    # Another sink alone: no plan version, and the boundary is known at once.
    second = {"type": "webhook", "url": f"{receiver.url}/sk"}
    version = service.ok("GET", "/plan", 200)["version"]
    changed = service.ok("PATCH", "/queries/sk_q", 200, json={"sink": second})
    boundary = changed["sink_observed"]["from_batch"]
    assert service.ok("GET", "/plan", 200)["version"] == version
    assert boundary > found["last_batch"]
    receiver.refusing = 2
    post(service, "sk_b", (4, 1, 7.0))
    delivered(service, "sk_q", 3)
    post(service, "sk_b", (5, 1, 8.0))
    delivered(service, "sk_q", 4)
    rest = by_batch(service, "sk_q")
    assert files(exports / "sk" / "first") == {b: rows for b, rows in rest.items() if b < boundary}
    sent = receiver.taken("/sk")
    assert [row for r in sent for row in r.rows] == [
        row for b, rows in rest.items() if b >= boundary for row in rows
    ]
    assert query(service, "sk_q")["sink_observed"]["failures"] == 2
    # The cursor of a request is one of the results.
    page = service.ok("GET", "/queries/sk_q/results", 200, params={"after": sent[0].headers["sluice-cursor"]})
    assert page["rows"] == [row for r in sent[1:] for row in r.rows]

    # With a new text, in one change: the sink begins where the text does.
    third = {"type": "files", "path": "sk/third", "format": "parquet"}
    patch = {"select": "b.v AS only", "sink": third}
    updated = service.ok("PATCH", f"/queries/sk_q?wait={WAIT_S}", 200, json=patch)
    start = updated["sink_observed"]["from_batch"]
    post(service, "sk_b", (6, 2, 9.0))
    delivered(service, "sk_q", 5)
    rest = by_batch(service, "sk_q")
    assert files(exports / "sk" / "third") == {b: rows for b, rows in rest.items() if b >= start}
    assert files(exports / "sk" / "third") == {max(rest): [{"only": 9.0, "_event_time": at(6)}]}

    # A pause keeps it, a removal gives it all that is the query's.
    service.ok("POST", f"/queries/sk_q:pause?wait={WAIT_S}", 200)
    service.ok("POST", f"/queries/sk_q:resume?wait={WAIT_S}", 200)
    post(service, "sk_a", (7, 2, 0.1))  # nobody held the rows of before
    post(service, "sk_b", (7, 2, 10.0))
    delivered(service, "sk_q", 6)
    service.ok("DELETE", f"/queries/sk_q?wait={WAIT_S}", 200)
    eventually("the end", service, lambda: query(service, "sk_q")["sink_observed"]["state"] == "ended")
    rest = by_batch(service, "sk_q")
    assert files(exports / "sk" / "third") == {b: rows for b, rows in rest.items() if b >= start}
    text = service.http.get("/metrics").text
    assert 'sluice_sink_rows_total{query="sk_q",type="files"} 2.0' in text
    assert 'sluice_sink_lag_batches{query="sk_q",type="files"} 0.0' in text


@pytest.mark.slow
def test_sinks_in_lists_and_from_a_shell(service: RunningService, tmp_path: Path) -> None:
    service.register(COLUMNS, "sl_a", "sl_b", lateness="60s")
    text = cql("sl_a", "sl_b")
    csv_sink = {"type": "files", "path": "sl/q1", "format": "csv"}
    add = [{"add": {"name": "sl_q1", "cql": text, "sink": csv_sink}}, {"add": {"name": "sl_q2", "cql": text}}]
    service.ok("POST", f"/changes?wait={WAIT_S}", 200, json={"changes": add})
    bad = [{"update": {"name": "sl_q2", "window": "3s", "sink": csv_sink}}, {"pause": "sl_q1"}]
    problem = service.ok("POST", "/changes", 409, json={"changes": bad})
    assert problem["errors"][0]["pointer"] == "#/changes/0/update/sink/path"
    assert query(service, "sl_q1")["desired"] == "running"

    def query_command(*words: str) -> Any:
        ran = sluice("query", *words, "--json", "--url", service.root, timeout_s=WAIT_S)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    assert query_command("update", "sl_q2", "--sink", "parquet:sl/q2")["sink"]["path"] == "sl/q2"
    assert query_command("update", "sl_q2", "--sink", "none")["sink"] is None
    (tmp_path / "q3.cql").write_text(text)
    assert query_command("validate", "-f", str(tmp_path / "q3.cql"))["key"]
    hooked = query_command("add", "sl_q3", "-f", str(tmp_path / "q3.cql"), "--sink", "http://127.0.0.1:9/x")
    assert hooked["sink"] == {"type": "webhook", "url": "http://127.0.0.1:9/x"}
    post(service, "sl_a", (1, 1, 0.1))
    post(service, "sl_b", (2, 1, 5.0))
    delivered(service, "sl_q1", 1)
    (file,) = (service.data_dir / "exports" / "sl" / "q1").iterdir()
    assert file.read_text() == f'"k","v","_event_time"\n1,5,"{at(2)}"\n'
    # A receiver that is not there concerns its own query alone.
    eventually("an error", service, lambda: query(service, "sl_q3")["sink_observed"]["state"] == "failing")
    observed = query(service, "sl_q3")["sink_observed"]
    assert (observed["lag_batches"], observed["rows"]) == (1, 0)
    assert observed["error"].startswith("ConnectError")
    for name in ("sl_q1", "sl_q2", "sl_q3"):
        service.ok("DELETE", f"/queries/{name}", 202)


@pytest.mark.slow
def test_a_service_that_is_killed_again_and_again_gives_each_batch_once(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir, exports = tmp_path / "data", tmp_path / "elsewhere"
    monkeypatch.setenv("SLUICE_EXPORT_DIR", str(exports))
    rest: dict[int, list[Any]] = {}
    for number in range(4):
        with RunningService(data_dir, tmp_path / f"log{number}", free_port()) as service:
            if number == 0:
                for seed, name in enumerate(("A", "B")):
                    columns = {"k": {"distribution": "uniform", "low": 0, "high": 20}}
                    source = {"type": "generator", "rate_per_s": 20, "seed": seed, "columns": columns}
                    stream = {"name": name, "columns": COLUMNS, "event_time": "ts", "source": source}
                    service.ok("POST", "/streams", 201, json=stream)
                sinks = {
                    "in_files": {"type": "files", "path": "f", "format": "parquet"},
                    "posted": {"type": "webhook", "url": f"{receiver.url}/killed"},
                }
                for name, sink in sinks.items():
                    body = {"name": name, "cql": cql("A", "B"), "sink": sink}
                    service.ok("POST", "/queries", 202, json=body)
            before = query(service, "in_files")["sink_observed"]["batches"]
            eventually(
                "batches",
                service,
                lambda before=before: query(service, "in_files")["sink_observed"]["batches"] > before + 5,  # type: ignore[misc]
                3 * WAIT_S,
            )
            if number < 3:
                os.killpg(service.process.pid, signal.SIGKILL)
                service.process.wait()
                continue
            for name in ("in_files", "posted"):
                service.ok("DELETE", f"/queries/{name}?wait={WAIT_S}", 200)
            for name in ("in_files", "posted"):
                eventually(
                    "the end",
                    service,
                    lambda name=name: query(service, name)["sink_observed"]["state"] == "ended",  # type: ignore[misc]
                )
            rest = by_batch(service, "in_files")
            posted = [row for rows in by_batch(service, "posted").values() for row in rows]
    assert files(exports / "f") == rest
    assert len(rest) > 20
    assert [row for r in receiver.taken("/killed") for row in r.rows] == posted
