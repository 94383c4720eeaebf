"""How many batches, and how much time, until a query that was added or removed is active, or has gone."""

from __future__ import annotations

import time
from typing import Any

from catalog.store.store import Store
from tests.api.running_service import WAIT_S
from tests.bench.migration.load import Load
from tests.bench.migration.service_under_load import STEP_S, LoadedService

#: An added or removed query is to be active within so many batches.
TARGET_BATCHES = 2


#: A change of one query: ``kind``, such as ``add, backfill state``; ``batches`` from the last one
#: committed when the answer came to the one that carries the change (1 is the next one, which may have
#: been running already); ``request_s`` from request to answer; ``active_s`` from answer to the commit of
#: that batch.
Activated = dict[str, Any]


def activations(loaded: LoadedService, load: Load, changes: int) -> list[Activated]:
    """Add and remove queries one after another, each once the one before is active.

    Args:
        loaded: A service under load.
        load: Its load.
        changes: How many changes.
    """
    measured = []
    for number in range(changes):
        name, cql = f"timed{number // 2}", load.coming_and_going(number // 2)
        began_s = time.monotonic()
        if number % 2:
            kind, version = "remove", loaded.remove(name)
        else:
            backfill = "state" if number % 4 else "none"
            kind = "add" if backfill == "none" else "add, backfill state"
            version = loaded.add(name, cql, backfill)
        answered_s, answered_us = time.monotonic(), time.time_ns() // 1000
        last = loaded.last_batch
        batch, committed_us = _wait(loaded.store, version)
        measured.append(
            {
                "kind": kind,
                "batches": batch - last,
                "request_s": answered_s - began_s,
                "active_s": max(committed_us - answered_us, 0) / 1e6,
            }
        )
    return measured


def _wait(store: Store, version: int) -> tuple[int, int]:
    """Return batch and commit (wall clock, µs) of the first batch under a plan version.

    Raises:
        RuntimeError: None came for a minute.
    """
    deadline_s = time.monotonic() + WAIT_S
    while (found := store.batches.first_of_version(version)) is None:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"plan version {version} was not in force within {WAIT_S} s")
        time.sleep(STEP_S)
    return found
