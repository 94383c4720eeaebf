"""A real service under churn: the catalog is pruned while the job runs, and what is left is enough to go on.

After the changes everything is killed at once, and the service started again on the pruned catalog: the batch
in hand replays, results grow and queries come as before.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from catalog.store.database import tables
from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.store import Store
from service.commit.upkeep.pruning import GRACE_S
from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.waiting import until

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}
JOIN = "FROM A [RANGE {window}] a, B [RANGE {window}] b WHERE a.k = b.k"
STAYING = {"keeps_all": "2 SECONDS", "keeps_some": "4 SECONDS"}


def start(data_dir: Path, number: int) -> RunningService:
    return RunningService(data_dir, data_dir.parent / f"service{number}.log", free_port())


def add_streams(service: RunningService) -> None:
    for seed, name in enumerate(("A", "B")):
        columns = {"k": {"distribution": "uniform", "low": 0, "high": 20}}
        source = {"type": "generator", "rate_per_s": 100, "seed": seed, "columns": columns}
        stream = {"name": name, "columns": COLUMNS, "event_time": "ts", "lateness": "1s", "source": source}
        service.ok("POST", "/streams", 201, json=stream)


def churn(service: RunningService, changes: int) -> None:
    """Let queries without results come and go, one change at a time."""
    live: list[str] = []
    for number in range(changes):
        if len(live) < 10 and number < changes - 10:
            window = f"{1000 + number} MILLISECONDS"
            cql = f"SELECT a.k {JOIN.format(window=window)} AND a.v < {-1 - number}"
            backfill = "state" if number % 2 else "none"
            body = {"name": f"t{number}", "cql": cql, "backfill": backfill}
            service.ok("POST", "/queries", 202, json=body)
            live.append(body["name"])
        elif live:
            service.http.delete(f"/queries/{live.pop(0)}").raise_for_status()
    for name in live:
        service.http.delete(f"/queries/{name}").raise_for_status()


def wait_for(what: str, service: RunningService, holds: Any, timeout_s: float = 180) -> None:
    """Wait until something holds; the service says more if it does not."""
    until(
        lambda: service.process.poll() is not None or holds(),
        lambda: f"{what}: {service.ok('GET', '/engine', 200)}",
        timeout_s,
    )
    assert service.process.poll() is None, service.log.read_text()[-4000:]


def batch_of(service: RunningService) -> int:
    batch = service.ok("GET", "/engine", 200)["batch"]
    return -1 if batch is None else int(batch)


def rows_of(store: Store) -> dict[str, int]:
    with store._database.read() as connection:
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in tables.metadata.sorted_tables
        }


def results_of(service: RunningService, name: str) -> int:
    return int(service.ok("GET", f"/queries/{name}", 200)["results"])


def churned_and_killed(directory: Path, changes: int) -> dict[str, int]:
    data_dir = directory / "data"
    with start(data_dir, 1) as service:
        add_streams(service)
        for name, window in STAYING.items():
            cql = f"SELECT a.k, b.ts AS seen {JOIN.format(window=window)}"
            service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": name, "cql": cql})
        churn(service, changes)
        newest = service.ok("GET", "/plan", 200)["version"]
        wait_for(
            "the last version", service, lambda: service.ok("GET", "/engine", 200)["plan_version"] == newest
        )
        reached = batch_of(service)
        wait_for("batches", service, lambda: batch_of(service) > reached + REPLAYED_BATCHES)
        with Store.open(f"sqlite:///{data_dir / 'catalog.db'}", migrate=False) as store:
            wait_for("pruned plans", service, lambda: rows_of(store)["plans"] == 1)
            assert rows_of(store)["control_log"] == 1
            wait_for(
                "pruned queries",
                service,
                lambda: rows_of(store)["queries"] == len(STAYING),
                timeout_s=GRACE_S + 60,
            )
            left = rows_of(store)
            head = store.control_log.head()
        before = {name: results_of(service, name) for name in STAYING}
        # The service, its JVM and their workers: a session of their own.
        os.killpg(service.process.pid, signal.SIGKILL)
        service.process.wait()
    with start(data_dir, 2) as service:
        for name, count in before.items():
            wait_for(f"results of {name}", service, lambda n=name, c=count: results_of(service, n) > c)
        body = {"name": "after", "cql": f"SELECT a.k {JOIN.format(window='1 SECOND')}", "backfill": "state"}
        added = service.ok("POST", f"/queries?wait={WAIT_S}", 201, json=body)
        assert (added["observed"], added["plan_version"]) == ("running", newest + 1)
        wait_for("results of a new query", service, lambda: results_of(service, "after") > 0)
        # Every page reads what the manifests say, or fails.
        for name in STAYING:
            page = service.ok("GET", f"/queries/{name}/results?limit=10000", 200)
            assert page["rows"]
        assert service.stop() == 0
    with Store.open(f"sqlite:///{data_dir / 'catalog.db'}", migrate=False) as store:
        assert store.control_log.head() == head + 1
    return left


@pytest.mark.slow
@pytest.mark.spark
def test_a_pruned_service_is_killed_and_goes_on(tmp_path: Path) -> None:
    left = churned_and_killed(tmp_path, 40)
    assert left["queries"] == left["query_totals"] == len(STAYING)


@pytest.mark.slow
@pytest.mark.spark
def test_hundreds_of_changes_leave_nothing_in_the_catalog(tmp_path: Path) -> None:
    left = churned_and_killed(tmp_path, 600)
    assert left["queries"] == left["query_totals"] == len(STAYING)
    assert left["batch_routes"] <= 3
