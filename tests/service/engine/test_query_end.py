"""Every way in which a streaming query can end, and which of them are silent deaths."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from api.serve import serving
from service.config.settings import load_settings
from service.engine.query_end import QueryDied, SparkQuery, wait_for_end
from service.engine.retry import RESTART_DELAY_S
from tests.api.running_service import START_TIMEOUT_S, free_port


@dataclass
class Scripted:
    """A query that lives for some looks and then ends as the case says."""

    looks: int = 2
    ends: bool = True
    error: Exception | None = None
    lives: bool = True
    says: str = "Waiting for data to arrive"
    asked: list[str] = field(default_factory=list)

    def wait(self, seconds: int) -> bool:
        assert seconds > 0
        self.asked.append("wait")
        if self.asked.count("wait") <= self.looks:
            return False
        if self.error is not None:
            raise self.error
        return self.ends

    def thread_lives(self) -> bool:
        self.asked.append("thread")
        return self.asked.count("wait") < self.looks or self.lives

    def last_words(self) -> str:
        return self.says


def never() -> bool:
    return False


def test_a_query_that_we_stopped_has_ended_well() -> None:
    query = Scripted(looks=3)
    wait_for_end(query, bounded=False, stopping=lambda: True)
    assert query.asked == ["wait", "thread"] * 3 + ["wait"]


def test_a_bounded_query_that_ran_to_its_end_has_ended_well() -> None:
    wait_for_end(Scripted(says="Stopped"), bounded=True, stopping=never)


def test_the_cause_that_spark_gives_is_passed_on() -> None:
    failed = StreamingQueryException("a batch failed")
    with pytest.raises(StreamingQueryException) as raised:
        wait_for_end(Scripted(error=failed), bounded=False, stopping=never)
    assert raised.value is failed


def test_a_query_that_ended_without_a_cause_has_died() -> None:
    with pytest.raises(
        QueryDied, match=r'the engine did not stop it; Spark said last "Waiting for data to arrive"'
    ):
        wait_for_end(Scripted(), bounded=False, stopping=never)


def test_a_query_that_nobody_of_us_stopped_has_died() -> None:
    with pytest.raises(QueryDied, match="the engine did not stop it"):
        wait_for_end(Scripted(says="Stopped"), bounded=False, stopping=never)


def test_a_bounded_query_that_ended_within_a_batch_has_died() -> None:
    with pytest.raises(QueryDied, match=r'Spark said last "Processing new data"'):
        wait_for_end(Scripted(says="Processing new data"), bounded=True, stopping=never)


@pytest.mark.parametrize("bounded", [False, True])
def test_a_query_that_counts_as_active_without_its_thread_has_died(bounded: bool) -> None:
    query = Scripted(looks=2, ends=False, lives=False, says="Stopped")
    with pytest.raises(QueryDied, match="its thread is dead, although it counts as active"):
        wait_for_end(query, bounded=bounded, stopping=never)


def test_a_thread_that_ends_between_two_questions_is_no_death() -> None:
    query = Scripted(looks=1, lives=False, says="Stopped")
    wait_for_end(query, bounded=True, stopping=never)
    assert query.asked == ["wait", "thread", "wait"]


def awaited(what: str, found: Callable[[], Any]) -> Any:
    """Return what is found as soon as it is."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (value := found()) is None:
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return value


def _stopped(query: StreamingQuery) -> None:
    with suppress(Py4JError, OSError):
        query.stop()


@pytest.mark.slow
@pytest.mark.spark
def test_an_engine_whose_query_ends_unasked_says_so_and_starts_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert RESTART_DELAY_S > 0.5, "a failure can be seen before the next start"
    settings = load_settings(data_dir=tmp_path / "data", port=free_port(), cores=1, buckets=1)
    with (
        # An engine in this process sets variables, and Spark adds to the path.
        patch.dict(os.environ),
        patch.object(sys, "path", [*sys.path]),
        caplog.at_level(logging.ERROR, "service.engine.engine"),
        serving(settings),
        httpx.Client(base_url=f"http://127.0.0.1:{settings.server.port}/api/v1") as http,
    ):

        def engine_in(state: str) -> Callable[[], dict[str, Any] | None]:
            def found() -> dict[str, Any] | None:
                answer: dict[str, Any] = http.get("/engine").json()
                return answer if answer["state"] == state else None

            return found

        first = awaited("running", engine_in("running"))
        session = SparkSession._instantiatedSession
        assert session is not None
        (query,) = session.streams.active
        assert SparkQuery(query).thread_lives()

        # Behind the engine's back, which may end the JVM before that has answered.
        stopping = threading.Thread(target=_stopped, args=(query,))
        stopping.start()

        failed = awaited("failed", engine_in("failed"))
        stopping.join()
        ready = http.get("/health/ready")
        died = "the streaming query has died: it ended, although the engine did not stop it"
        assert died in failed["error"]
        assert (ready.status_code, ready.json()["code"]) == (503, "engine-not-ready")
        assert "the streaming query has died" in ready.json()["explanation"]
        (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
        assert record.name == "service.engine.engine"
        assert "the streaming query has died" in record.getMessage()

        again = awaited("running again", engine_in("running"))
        assert again["run_id"] != first["run_id"]
        assert again["error"] is None
        assert http.get("/health/ready").status_code == 200
