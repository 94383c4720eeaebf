"""A running service whose streams always have more rows than it can take, with its queries in place."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from catalog.store.store import Store
from planner.build.build_plan import build_plan
from service.config.data_dir import open_data_dir
from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.bench.migration.load import Load
from tests.bench.processes import of_each

#: How often the catalog is looked at while waiting for a batch, which takes half a second and more.
STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class LoadedService:
    """A service under load.

    Attributes:
        service: Talks HTTP to it.
        store: Its catalog, read beside it.
    """

    service: RunningService
    store: Store

    @property
    def last_batch(self) -> int:
        """The newest committed batch, -1 before the first."""
        last = self.store.batches.last_manifest()
        return -1 if last is None else last.batch

    def private_bytes(self) -> tuple[int, int]:
        """Return the memory that is nobody else's: of the service, of the job's other Python processes."""
        pid = self.service.process.pid
        found = dict(of_each(pid, lambda process: int(process.memory_full_info().uss)))
        own = sum(used for (of, _), used in found.items() if of == pid)
        return own, sum(used for (_, kind), used in found.items() if kind != "JVM") - own

    def add(self, name: str, cql: str, backfill: str = "none") -> int:
        """Add a query without waiting; return the plan version in which it is active."""
        body = {"name": name, "cql": cql, "backfill": backfill}
        answer = self.service.http.post("/queries", json=body)
        assert answer.status_code in (201, 202), answer.text
        return int(answer.json()["plan_version"])

    def remove(self, name: str) -> int:
        """Remove a query without waiting; return the plan version in which it has gone."""
        answer = self.service.http.delete(f"/queries/{name}")
        assert answer.status_code in (200, 202), answer.text
        return int(answer.json()["plan_version"])


@contextmanager
def loaded_service(directory: Path, load: Load, extra: Mapping[str, str]) -> Iterator[LoadedService]:
    """Start a service with the load's queries, and wait until its windows are full.

    Args:
        directory: Where everything goes.
        load: Streams and queries.
        extra: Further queries in place from the start, CQL by name.
    """
    data = directory / "data"
    _set_up(data, load, extra)
    batches = {"SLUICE_MAX_ROWS_PER_BATCH": str(load.max_rows_per_batch), "SLUICE_TARGET_BATCH_S": "0"}
    os.environ.update(batches)
    try:
        with RunningService(data, directory / "log.txt", free_port()) as service:
            store = Store.open(f"sqlite:///{data / 'catalog.db'}", migrate=False)
            try:
                loaded = LoadedService(service, store)
                wait_for_batch(loaded, load.batches_to_fill)
                yield loaded
            finally:
                store.close()
    finally:
        for name in batches:
            del os.environ[name]


def wait_for_batch(loaded: LoadedService, batch: int) -> None:
    """Wait until a batch is committed, as long as batches come at all.

    Raises:
        RuntimeError: None came for a minute.
    """
    seen, seen_s = loaded.last_batch, time.monotonic()
    while seen < batch:
        last = loaded.last_batch
        if last > seen:
            seen, seen_s = last, time.monotonic()
        elif time.monotonic() - seen_s > WAIT_S:
            log = loaded.service.log.read_text()
            raise RuntimeError(f"no batch after {seen} within {WAIT_S} s:\n{log[-4000:]}")
        time.sleep(STEP_S)


def _set_up(data: Path, load: Load, extra: Mapping[str, str]) -> None:
    """Put streams and queries into the catalog, as one plan version."""
    store = Store.open(open_data_dir(data).catalog_url)
    try:
        with store.transaction():
            streams = {s.id: store.streams.add(s) for s in load.streams(None).values()}
            queries = [*load.bound_queries]
            for number, (name, cql) in enumerate(extra.items(), len(queries) + 1):
                queries.append(load.bound(cql, number, name=name))
            for query in queries:
                reserved = store.queries.reserve_ids(1)[0]
                assert reserved == query.id, "a fresh catalog gives ids from 1"
                store.queries.add(query, 1)
            plan = build_plan(queries, streams)
            record = store.control_log.append(plan=plan)
            store.plan_history.add(1, record.seq, "script", "load")
    finally:
        store.close()
