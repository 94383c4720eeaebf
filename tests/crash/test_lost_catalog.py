"""PostgreSQL goes away under a service or a run and comes back: nothing is lost, nothing is there twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from catalog.errors import CatalogDown
from catalog.store.store import Store
from tests.api.running_service import RunningService, default_settings, free_port
from tests.crash.killing import SIZE
from tests.crash.posting import (
    STOPPED_S,
    Client,
    add_streams_and_query,
    expected,
    results,
    wait_for_rows,
)
from tests.oracle import Oracle
from tests.postgres import PostgresServer, server
from tests.sluice_run import assert_equals_oracle, finish, run, start
from tests.waiting import until
from tests.workloads import make_workload

#: Longer than an engine goes on without its lease (5 s), which then ends its JVM; and a minute.
AWAY_S, LONG_AWAY_S = 12.0, 60.0
#: An answer while the catalog is away: it does not wait for the catalog, but the machine may be busy.
ANSWER_S = 15.0
ROWS, MORE = 2_000, 100


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A server of the test's own, which it may stop."""
    yield from server()


def command_lines(service: RunningService) -> Iterator[str]:
    """Yield what ``ps`` shows of a service's processes."""
    this = psutil.Process(service.process.pid)
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            yield from process.cmdline()


def stop_for_a_while(postgres: PostgresServer, service: RunningService, away_s: float) -> None:
    """Stop the server as ``pg_ctl stop -m immediate`` does; look at the answers meanwhile."""
    postgres.stop()
    until_s = time.monotonic() + away_s
    codes = set()
    while time.monotonic() < until_s:
        assert service.ok("GET", "/health/live", 200, timeout=ANSWER_S) == {"status": "ok"}
        ready = service.ok("GET", "/health/ready", 503, timeout=ANSWER_S)
        assert "Connection refused" in ready["explanation"]
        codes.add(ready["code"])
        change = {"name": "other", "cql": "SELECT A.id FROM A [RANGE 1 SECOND], B [RANGE 1 SECOND]"}
        for method, path, body in (
            ("POST", "/queries", change),
            ("DELETE", "/queries/q", None),
            ("GET", "/queries", None),
            ("GET", "/queries/q/results", None),
            ("GET", "/statistics", None),
            ("GET", "/engine", None),
        ):
            answer = service.http.request(method, path, json=body, timeout=ANSWER_S)
            assert (answer.status_code, answer.json()["code"]) == (503, CatalogDown.code), answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            assert postgres.password not in answer.text
        time.sleep(0.2)
    assert codes == {CatalogDown.code}
    postgres.start()


def restart(postgres: PostgresServer, _service: RunningService) -> None:
    """As ``pg_ctl restart`` does: each connection is ended, and a moment later there are new ones."""
    for _ in range(3):
        postgres.stop()
        postgres.start()
        time.sleep(3)


def end_connections(postgres: PostgresServer, _service: RunningService) -> None:
    """End the connections alone, again and again, also in the middle of commits."""
    until_s = time.monotonic() + AWAY_S
    while time.monotonic() < until_s:
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%'")
        time.sleep(0.3)


def goes_on(
    directory: Path, postgres: PostgresServer, fault: Callable[[PostgresServer, RunningService], None]
) -> None:
    """Post under load, let a fault happen, and compare all results with what was acknowledged."""
    log = directory / "service.log"
    settings = default_settings(log) | {"SLUICE_CATALOG_URL": postgres.url(postgres.create())}
    with RunningService(directory / "data", log, free_port(), settings=settings) as service:
        add_streams_and_query(service)
        client = Client(service.root)
        client.start()
        wait_for_rows(service, ROWS)
        assert postgres.password not in " ".join(command_lines(service))
        fault(postgres, service)
        ready = service.http.get
        until(lambda: ready("/health/ready").is_success, lambda: log.read_text()[-4000:], STOPPED_S)
        client.finish(MORE)
        wait_for_rows(service, sum(map(len, client.sent.values())))
        found = results(service)
    assert sorted(found) == expected(client.sent)
    for file in (log, *(directory / "data").glob("*.log")):
        assert postgres.password not in file.read_text(errors="replace"), file
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("away_s", [AWAY_S, LONG_AWAY_S])
def test_a_service_whose_postgres_is_away_says_so_and_goes_on(
    tmp_path: Path, postgres: PostgresServer, away_s: float
) -> None:
    goes_on(tmp_path, postgres, partial(stop_for_a_while, away_s=away_s))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("fault", [restart, end_connections])
def test_a_service_whose_connections_end_goes_on(
    tmp_path: Path, postgres: PostgresServer, fault: Callable[[PostgresServer, RunningService], None]
) -> None:
    goes_on(tmp_path, postgres, fault)


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_whose_postgres_stops_ends_and_is_gone_on_with(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, files = make_workload(6, tmp_path, SIZE)
    workload, out = tmp_path / "WORKLOAD.yaml", tmp_path / "out"
    url = postgres.url(postgres.create())
    monkeypatch.setenv("SLUICE_CATALOG_URL", url)
    Store.open(url).close()
    first = start(workload, out)
    with Store.open(url, migrate=False) as store:
        deadline = time.monotonic() + STOPPED_S
        while (last := store.batches.last()) is None or last < 2:
            assert time.monotonic() < deadline
            assert first.poll() is None, finish(first).stderr
            time.sleep(0.02)
    postgres.stop()
    ended = finish(first)
    assert ended.returncode == 1
    assert "catalog cannot be used" in ended.stderr
    assert postgres.password not in ended.stdout + ended.stderr
    postgres.start()
    assert_equals_oracle(run(workload, out), out, Oracle(spec, files), "per-query")
