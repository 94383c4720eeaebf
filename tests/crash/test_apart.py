"""Two API processes and two engines: the engine at work dies, or hangs and wakes again, under load."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.api.running_service import RunningService
from tests.crash.apart import TAKEOVER_S, Apart, processes, ready, send
from tests.crash.posting import Client, add_streams_and_query, expected, results, wait_for_rows

ROWS, MORE = 1_000, 60
#: Results that are read from one replica before the other one goes on.
READ = 200


def kill(apart: Apart) -> None:
    """Kill the engine's process; its JVM and workers end by themselves, or by the next engine."""
    send([psutil.Process(apart.engines[0].process.pid)], signal.SIGKILL)


def kill_all(apart: Apart) -> None:
    """Kill the engine with its JVM and workers, as a machine that goes does."""
    send(processes(apart.engines[0]), signal.SIGKILL)


def hang(apart: Apart) -> None:
    """Stop all processes of the engine, as a machine does that is suspended."""
    send(processes(apart.engines[0]), signal.SIGSTOP)


def goes_on(
    directory: Path, url: str | None, fault: Callable[[Apart], None], *, apart_engines: bool = False
) -> None:
    """Post under load, let the engine at work go, and compare all results with DuckDB's."""
    with Apart(directory, url, apart_engines=apart_engines) as apart:
        one, other = apart.apis
        add_streams_and_query(one)
        client = Client(other.root)
        client.start()
        wait_for_rows(one, ROWS)
        before = one.ok("GET", "/engine", 200)
        victims = processes(apart.engines[0])
        began_s = time.monotonic()
        fault(apart)
        apart.wait_until("ok", apart.engines[1])
        took_s = time.monotonic() - began_s
        print(f"{fault.__name__}: the stand-by was at work after {took_s:.1f} s")
        send(victims, signal.SIGCONT)  # it wakes again, if it still can
        while other.ok("GET", "/engine", 200)["batch"] <= before["batch"]:
            assert time.monotonic() - began_s < 120, apart.told()
        print(f"its first batch was committed after {time.monotonic() - began_s:.1f} s")
        if apart_engines and fault is hang:
            former = apart.engines[0]
            assert former.process.wait(120) == 1, "a supervisor starts it again"
            assert "error: another engine has taken over\n" in former.log.read_text()
        client.finish(MORE)
        wait_for_rows(other, sum(map(len, client.sent.values())))
        wanted = expected(client.sent)
        assert sorted(results(one)) == sorted(results(other)) == wanted, apart.told()
        after = one.ok("GET", "/engine", 200)
        assert (after["state"], after["run_id"] != before["run_id"]) == ("running", True)
        assert took_s < TAKEOVER_S


@pytest.mark.slow
@pytest.mark.spark
def test_an_engine_that_is_killed_is_replaced(tmp_path: Path) -> None:
    goes_on(tmp_path, None, kill)


@pytest.mark.slow
@pytest.mark.spark
def test_an_engine_that_hangs_is_replaced(tmp_path: Path, postgres_url: str) -> None:
    goes_on(tmp_path, postgres_url, hang)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("fault", [kill_all, hang])
def test_an_engine_that_nobody_else_sees_is_replaced_and_writes_nothing_when_it_wakes(
    tmp_path: Path, postgres_url: str, fault: Callable[[Apart], None]
) -> None:
    goes_on(tmp_path, postgres_url, fault, apart_engines=True)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("fault", [kill_all, hang])
def test_an_engine_is_replaced_with_the_catalog_in_a_file(
    tmp_path: Path, fault: Callable[[Apart], None]
) -> None:
    goes_on(tmp_path, None, fault)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("fault", [kill, kill_all])
def test_an_engine_is_replaced_with_the_catalog_on_a_server(
    tmp_path: Path, postgres_url: str, fault: Callable[[Apart], None]
) -> None:
    goes_on(tmp_path, postgres_url, fault)


def cursors(service: RunningService, count: int, after: str | None) -> list[tuple[str, str]]:
    """Return id and row of the next results of a stream of events."""
    headers = {} if after is None else {"Last-Event-ID": after}
    with service.events("/queries/q/results/stream", headers) as events:
        return [(event.id, json.dumps(event.data)) for event, _ in zip(events, range(count), strict=False)]


@pytest.mark.slow
@pytest.mark.spark
def test_replicas_serve_one_service(tmp_path: Path) -> None:
    """Events, changes, pages, streams of results and control of the engine, each at either replica."""
    with Apart(tmp_path) as apart:
        one, other = apart.apis
        add_streams_and_query(one)
        client = Client(other.root)
        client.start()
        first = cursors(one, READ, None)
        second = cursors(other, READ, first[-1][0])
        page = other.ok("GET", f"/queries/q/results?limit={2 * READ}", 200)["rows"]
        assert [row for _, row in first + second] == [json.dumps(row) for row in page]
        assert other.ok("POST", "/engine:pause", 202)["state"] == "paused"
        assert one.ok("GET", "/engine", 200)["state"] == "paused"
        assert ready(apart.engines[0]) == "ok"
        assert one.ok("POST", "/engine:resume", 202)["state"] in ("starting", "running")
        client.finish(MORE)
        wait_for_rows(one, sum(map(len, client.sent.values())))
        assert sorted(results(one)) == sorted(results(other)) == expected(client.sent)
