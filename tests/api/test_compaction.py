"""A service whose old result files are merged while it runs, over raw HTTP."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from catalog.store.store import Store
from service.commit.upkeep.compaction import BATCHES_AT_A_TIME
from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.api.without_engine import CQL
from tests.builders import stream_document
from tests.service.compacting import named


def start(data_dir: Path, number: int) -> RunningService:
    return RunningService(data_dir, data_dir.parent / f"service{number}.log", free_port())


def rows_up_to(service: RunningService, last: str) -> list[dict[str, Any]]:
    """All rows up to a cursor, and more of its page if there are."""
    rows: list[dict[str, Any]] = []
    after = ""
    end = tuple(map(int, last.split(".")))
    while True:
        page = service.ok("GET", f"/queries/q/results?limit=1000{after}", 200)
        rows += page["rows"]
        after = f"&after={page['next_cursor']}"
        if tuple(map(int, page["next_cursor"].split("."))) >= end:
            return rows


def merged_until(data_dir: Path) -> int:
    with Store.open(f"sqlite:///{data_dir / 'catalog.db'}", migrate=False) as store:
        return store.result_files.merged_until()


@pytest.mark.slow
@pytest.mark.spark
def test_results_are_the_same_before_and_after_a_merge_and_a_kill(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with start(data_dir, 1) as service:
        for seed, name in enumerate(("A", "B")):
            columns = {"k": {"distribution": "uniform", "low": 0, "high": 20}}
            source = {"type": "generator", "rate_per_s": 100, "seed": seed, "columns": columns}
            document = stream_document(name) | {"source": source, "lateness": "1s"}
            service.ok("POST", "/streams", 201, json=document)
        service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "q", "cql": CQL})
        deadline = time.monotonic() + 600
        while (service.ok("GET", "/engine", 200)["batch"] or 0) < BATCHES_AT_A_TIME:
            assert time.monotonic() < deadline, service.log.read_text()[-4000:]
            time.sleep(0.2)
        last = service.ok("GET", "/queries/q/results?limit=1000", 200)["next_cursor"]
        before = rows_up_to(service, last)
        while not merged_until(data_dir):
            assert time.monotonic() < deadline, service.log.read_text()[-4000:]
            time.sleep(0.2)
        assert rows_up_to(service, last)[: len(before)] == before
        os.killpg(service.process.pid, signal.SIGKILL)
        service.process.wait()
    with start(data_dir, 2) as service:
        assert rows_up_to(service, last)[: len(before)] == before
    with Store.open(f"sqlite:///{data_dir / 'catalog.db'}", migrate=False) as store:
        files = named(store)
        assert store.result_files.merged()
    # The sweep of the second start has removed what the first one had merged.
    found = {path.name for path in (data_dir / "results").iterdir()}
    young = {name for name in found - files if name.startswith("b")}
    assert all(int(name[1:10]) >= BATCHES_AT_A_TIME for name in young)
