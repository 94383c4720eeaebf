"""A running service with its catalog read beside it, for whoever puts load on it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from catalog.store.store import Store
from tests.api.running_service import WAIT_S, RunningService, default_settings, free_port
from tests.waiting import until

#: How often the catalog is looked at while waiting for a batch.
STEP_S = 0.02


@dataclass(frozen=True, slots=True)
class LoadedService:
    """A service under load.

    Attributes:
        service: Talks HTTP to it.
        store: Its catalog.
    """

    service: RunningService
    store: Store

    @property
    def root(self) -> str:
        """Address of the API."""
        return f"{self.service.root}/api/v1"

    @property
    def last_batch(self) -> int:
        """The newest committed batch, -1 before the first."""
        last = self.store.batches.last_manifest()
        return -1 if last is None else last.batch

    def add_all(self, queries: Mapping[str, str]) -> None:
        """Add queries in one change, CQL by name, and wait until they are active."""
        changes = [{"add": {"name": name, "cql": cql}} for name, cql in queries.items()]
        self.service.ok("POST", f"/changes?wait={WAIT_S}", 200, json={"changes": changes})

    def add(self, name: str, cql: str, backfill: str = "none") -> int:
        """Add a query without waiting; return the plan version in which it is active."""
        body = {"name": name, "cql": cql, "backfill": backfill}
        return self._version("POST", "/queries", body)

    def change(self, name: str, cql: str) -> int:
        """Give a query another text without waiting; return the plan version in which it has it."""
        return self._version("PATCH", f"/queries/{name}", {"cql": cql})

    def remove(self, name: str) -> int:
        """Remove a query without waiting; return the plan version in which it has gone."""
        return self._version("DELETE", f"/queries/{name}")

    def wait_for_batch(self, batch: int) -> None:
        """Wait until a batch is committed, as long as batches come at all.

        Raises:
            RuntimeError: None came for two minutes.
        """
        seen, seen_s = self.last_batch, time.monotonic()
        while seen < batch:
            if (last := self.last_batch) > seen:
                seen, seen_s = last, time.monotonic()
            elif time.monotonic() - seen_s > WAIT_S:
                raise RuntimeError(f"no batch after {seen} within {WAIT_S} s:\n{self._log()}")
            time.sleep(STEP_S)

    def wait_for_version(self, version: int) -> tuple[int, int]:
        """Wait until a plan version is in force; return its first batch and when that was committed, µs."""
        until(
            lambda: self.store.batches.first_of_version(version) is not None,
            lambda: f"plan version {version} is not in force\n{self._log()}",
        )
        found = self.store.batches.first_of_version(version)
        assert found is not None
        return found

    def wait_for_rows(self, rows: int, limit_s: float = WAIT_S) -> None:
        """Wait until so many rows of all streams were read."""
        until(
            lambda: self.service.ok("GET", "/statistics", 200)["input_rows"] >= rows,
            lambda: f"{rows:,} rows were not read\n{self._log()}",
            limit_s,
        )

    def _version(self, method: str, path: str, body: object = None) -> int:
        answer = self.service.http.request(method, path, json=body).raise_for_status()
        return int(answer.json()["plan_version"])

    def _log(self) -> str:
        return self.service.log.read_text()[-4000:]


@contextmanager
def loaded_service(directory: Path, **settings: str) -> Iterator[LoadedService]:
    """Start a service whose data and log are in a directory.

    Args:
        directory: The directory.
        settings: Settings by their variables.
    """
    log = directory / "serve.log"
    own = default_settings(log) | settings
    with (
        RunningService(directory / "data", log, free_port(), settings=own) as service,
        Store.open(f"sqlite:///{service.data_dir / 'catalog.db'}", migrate=False) as store,
    ):
        yield LoadedService(service, store)
