"""Visitors: every few seconds a query comes, changes or goes."""

from __future__ import annotations

from dataclasses import replace

import httpx
import numpy as np

from tests.bench.feeding import SELECTED, Worker
from tests.bench.loaded import LoadedService
from tests.bench.soak.queries import Phase, changed, visitor

#: Visitors at a time.
_LEAST, _MOST = 3, 8


class Visitors(Worker):
    """Makes queries come, change and go until it is stopped; those that are there then stay.

    Args:
        loaded: The service.
        every_s: Between two changes.
        seed: Of all choices.

    Attributes:
        phases: Phases of every visitor so far, by its name.
    """

    def __init__(self, loaded: LoadedService, every_s: float, seed: int) -> None:
        super().__init__(loaded.root)
        self.phases: dict[str, tuple[Phase, ...]] = {}
        self._loaded, self._every_s = loaded, every_s
        self._rng = np.random.default_rng(seed)

    @property
    def present(self) -> list[str]:
        """Names of the visitors that have not gone."""
        return [name for name, phases in self.phases.copy().items() if phases[-1].to_version is None]

    def _work(self, http: httpx.Client) -> None:
        while not self._stopped.wait(self._every_s):
            some, drawn = len(self.present), self._rng.random()
            if some < _LEAST or (some < _MOST and drawn < 0.4):
                self._come()
            elif some >= _MOST or drawn < 0.7:
                self._go()
            else:
                self._change()

    def _come(self) -> None:
        name = f"visitor{len(self.phases) + 1}"
        query, backfill = visitor(name, self._rng)
        version = self._loaded.add(name, query.cql(SELECTED), backfill)
        self.phases[name] = (Phase(query, backfill, version),)

    def _change(self) -> None:
        name = str(self._rng.choice(self.present))
        query = changed(self.phases[name][-1].query, self._rng)
        version = self._loaded.change(name, query.cql(SELECTED))
        self.phases[name] = (*self._ended(name, version), Phase(query, "state", version))

    def _go(self) -> None:
        name = str(self._rng.choice(self.present))
        self.phases[name] = self._ended(name, self._loaded.remove(name))

    def _ended(self, name: str, version: int) -> tuple[Phase, ...]:
        *before, last = self.phases[name]
        return (*before, replace(last, to_version=version))
