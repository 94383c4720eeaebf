"""Visitors: every few seconds a query comes, changes or goes."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.bench.peers.feeding import Worker
from tests.bench.soak.queries import SoakQuery, changed, visitor

#: Visitors at a time.
_LEAST, _MOST = 3, 8


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a query's life in which its text was the same.

    Attributes:
        query: The text.
        backfill: Whether earlier rows took part.
        from_version: Plan version that it came with.
        to_version: Plan version without it; None: it stayed.
    """

    query: SoakQuery
    backfill: str
    from_version: int
    to_version: int | None = None


class Visitors(Worker):
    """Makes queries come, change and go until it is stopped; those that are there then stay.

    Args:
        root: Address of the API.
        every_s: Between two changes.
        seed: Of all choices.

    Attributes:
        phases: Phases of every visitor so far, by its name.
        present: Names of the visitors that have not gone.
    """

    def __init__(self, root: str, every_s: float, seed: int) -> None:
        super().__init__()
        self.phases: dict[str, list[Phase]] = {}
        self.present: list[str] = []
        self._root, self._every_s = root, every_s
        self._rng = np.random.default_rng(seed)
        self._lock = threading.Lock()

    def snapshot(self) -> tuple[list[str], list[str]]:
        """Return the names of visitors that are here, and of those that have gone."""
        with self._lock:
            return list(self.present), [name for name in self.phases if name not in self.present]

    def save(self, path: Path) -> None:
        """Write the phases as JSON."""
        with self._lock:
            document = {name: [asdict(phase) for phase in phases] for name, phases in self.phases.items()}
        path.write_text(json.dumps(document), encoding="utf-8")

    def _work(self) -> None:
        with httpx.Client(base_url=self._root, timeout=120.0) as http:
            while not self._stopped.wait(self._every_s):
                some, drawn = len(self.present), self._rng.random()
                if some < _LEAST or (some < _MOST and drawn < 0.4):
                    self._come(http)
                elif some >= _MOST or drawn < 0.7:
                    self._go(http)
                else:
                    self._change(http)

    def _come(self, http: httpx.Client) -> None:
        name = f"visitor{len(self.phases) + 1}"
        query, backfill = visitor(self._rng)
        body = {"name": name, "cql": query.cql(), "backfill": backfill}
        version = _version(http.post("/queries", json=body))
        with self._lock:
            self.phases[name] = [Phase(query, backfill, version)]
            self.present.append(name)

    def _change(self, http: httpx.Client) -> None:
        name = self.present[int(self._rng.integers(len(self.present)))]
        query = changed(self.phases[name][-1].query, self._rng)
        version = _version(http.patch(f"/queries/{name}", json={"cql": query.cql()}))
        with self._lock:
            self._end(name, version)
            self.phases[name].append(Phase(query, "state", version))

    def _go(self, http: httpx.Client) -> None:
        name = self.present[int(self._rng.integers(len(self.present)))]
        version = _version(http.delete(f"/queries/{name}"))
        with self._lock:
            self._end(name, version)
            self.present.remove(name)

    def _end(self, name: str, version: int) -> None:
        last = self.phases[name][-1]
        self.phases[name][-1] = Phase(last.query, last.backfill, last.from_version, version)


def read_visits(path: Path) -> dict[str, list[Phase]]:
    """Return the phases that were saved."""
    document: dict[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: [Phase(**phase | {"query": SoakQuery(**phase["query"])}) for phase in phases]
        for name, phases in document.items()
    }


def _version(answer: httpx.Response) -> int:
    answer.raise_for_status()
    version: int = answer.json()["plan_version"]
    return version
