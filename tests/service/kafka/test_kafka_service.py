"""A running service between topics: it is killed, and each result comes once.

Brokers that go away are those of `test_topics` and `test_topic_batches`, without Spark.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.running_service import RunningService, free_port
from tests.service.kafka.brokers import Brokers
from tests.service.kafka.test_topic_sink import messages_in
from tests.service.kafka.test_topics import event
from tests.waiting import until

WAIT_S = 120
SECOND_US = 1_000_000


def wait_for(what: str, done: Callable[[], bool]) -> None:
    until(done, lambda: what)


def pairs_in(kafka: Brokers) -> list[tuple[int, int]]:
    found = [json.loads(m.value()) for m in messages_in(kafka, "pairs")]
    return sorted((row["k"], row["other"]) for row in found)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_results_come_once_through_a_crash(kafka: Brokers, tmp_path: Path) -> None:
    for name, partitions in (("left", 2), ("right", 1), ("pairs", 2)):
        kafka.tell("create", name, partitions)
    settings = {"SLUICE_SERVERS": kafka.bootstrap}
    columns = {"ts": "timestamp", "k": "bigint"}

    def serve() -> RunningService:
        return RunningService(tmp_path / "data", tmp_path / "log", free_port(), settings=settings)

    def produce(first: int, last: int) -> None:
        for n in range(first, last):
            kafka.produce("left", [event(n * SECOND_US, n, n % 2)])
            kafka.produce("right", [event(n * SECOND_US, n)])

    with serve() as service:
        for name in ("left", "right"):
            source = {"type": "kafka", "bootstrap": kafka.bootstrap, "topic": name}
            body = {"name": name, "columns": columns, "event_time": "ts", "lateness": "10s", "source": source}
            service.ok("POST", "/streams", 201, json=body)
        cql = (
            'SELECT a.k AS k, b.k AS other FROM "left" [RANGE 1 SECOND] AS a, "right" [RANGE 1 SECOND] AS b '
            "WHERE a.k = b.k"
        )
        sink = {"type": "kafka", "bootstrap": kafka.bootstrap, "topic": "pairs", "key": "k"}
        service.ok("POST", "/queries?wait=60", 201, json={"name": "q", "cql": cql, "sink": sink})
        produce(0, 20)
        wait_for("first results", lambda: len(pairs_in(kafka)) == 20)
        produce(20, 30)
        os.killpg(service.process.pid, signal.SIGKILL)
        service.process.wait()
    with serve():
        wait_for("results after the crash", lambda: len(pairs_in(kafka)) >= 30)
    assert pairs_in(kafka) == [(n, n) for n in range(30)]
