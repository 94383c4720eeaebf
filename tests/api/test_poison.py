"""A batch that fails again and again in a running service: told, skipped by a decision, and gone on after."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.builders import stream_document

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

COLUMNS = {"ts": "timestamp", "k": "bigint"}
#: Three starts of Spark: they once took 300 s beside thirty other jobs on two cores.
THREE_STARTS_S = 600


def awaited(read: Callable[[], Any], done: Callable[[Any], bool], seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while not done(found := read()):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def test_a_poisoned_batch_is_skipped_and_other_queries_go_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RunningService(data, tmp_path / "log.txt", free_port()) as service:
        for name in "ABCD":
            body = stream_document(name, COLUMNS)
            service.ok("POST", "/streams", 201, json=body)
        for name, a, b in (("bad", "A", "B"), ("good", "C", "D")):
            cql = f"SELECT {a}.k FROM {a} [RANGE 1 MINUTE], {b} [RANGE 1 MINUTE] WHERE {a}.k = {b}.k"
            service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": name, "cql": cql})
        service.ok("POST", "/engine:pause", 202)
        for name in "ABCD":
            service.ok("POST", f"/streams/{name}/events", 202, json=[{"ts": 1_000_000, "k": 1}])
        with sqlite3.connect(data / "events.db") as events:  # a sector that cannot be read any more
            events.execute("UPDATE blobs SET data = x'00' WHERE stream_id = 1")
        service.ok("POST", "/engine:resume", 202)

        def engine() -> Any:
            return service.ok("GET", "/engine", 200)

        failed = awaited(engine, lambda found: found["failures"] >= 3, THREE_STARTS_S)
        assert (failed["state"], failed["next_try_at"]) == ("failed", None)
        assert service.http.get("/health/ready").status_code == 503
        skipped = service.ok("POST", "/engine:skip", 202, json={"stream": "A"}, headers={"X-Actor": "ops"})
        assert (skipped["batch"], skipped["actor"]) == (failed["batch"] + 1, "ops")

        def results(name: str) -> Any:
            return service.ok("GET", f"/queries/{name}/results", 200)["rows"]

        assert [row["k"] for row in awaited(lambda: results("good"), bool, THREE_STARTS_S)] == [1]
        told = json.loads(next((data / "dead_letters").glob("*-A.json")).read_text())
        assert (told["batch"], told["stream"], told["actor"]) == (skipped["batch"], "A", "ops")
        assert results("bad") == []
        service.ok("POST", "/streams/A/events", 202, json=[{"ts": 2_000_000, "k": 1}])
        assert [row["k"] for row in awaited(lambda: results("bad"), bool, WAIT_S)] == [1]
        assert service.stop() != -signal.SIGKILL, "it did not end by itself"


def test_a_query_that_takes_too_much_memory_is_paused_and_the_others_go_on(tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "rows"
    place.mkdir()
    columns = {**COLUMNS, "s": "string"}
    slow = "s"
    for letter in "abcdefghijklmnopqrst":
        slow = f"replace({slow}, '{letter}', '{letter.upper()}')"
    with RunningService(data, tmp_path / "log.txt", free_port()) as service:
        sources = {"A": {"type": "files", "path": str(place), "format": "parquet"}, "B": {"type": "http"}}
        for name, source in sources.items():
            body = {"name": name, "columns": columns, "event_time": "ts", "source": source}
            service.ok("POST", "/streams", 201, json=body)
        for name, more in (("slow", f" AND length({slow.replace('(s', '(A.s')}) > 5"), ("good", "")):
            cql = f"SELECT A.k FROM A [RANGE 1 MINUTE], B [RANGE 1 MINUTE] WHERE A.k = B.k{more}"
            service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": name, "cql": cql})
        # A megabyte of text in each row, kept once.
        texts = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), pa.array(["a" * 1_000_000]))
        moments = pa.array(range(1_000_000, 1_000_300), pa.timestamp("us"))
        rows = pa.table({"ts": moments, "k": pa.array(range(300)), "s": texts})
        pq.write_table(rows, place / "a.part")
        (place / "a.part").rename(place / "a.parquet")
        service.ok("POST", "/streams/B/events", 202, json=[{"ts": 1_000_000, "k": 7}])

        def query(name: str) -> Any:
            return service.ok("GET", f"/queries/{name}", 200)

        paused = awaited(lambda: query("slow"), lambda found: found["observed"] == "paused", THREE_STARTS_S)
        assert "takes too much memory" in paused["paused_because"]
        assert query("good")["observed"] == "running"
        found = awaited(lambda: service.ok("GET", "/queries/good/results", 200)["rows"], bool, WAIT_S)
        assert [row["k"] for row in found] == [7]
        assert service.http.get("/health/ready").is_success
