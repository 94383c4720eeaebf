"""A service under more load than it can take, while its queries change.

Activation: how many batches, and how much time, until a query that was added or removed is active or has
gone. Throughput: while plans change 200 times a minute, against the same load at rest, ABBA in one service.

(warm-up) | at rest | changes | changes | at rest        one after the other, without a pause
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.loaded import LoadedService, loaded_service
from tests.bench.migration.load import Load
from tests.bench.processes import of_each

CHANGES_PER_MIN = 200
#: Queries that come and go: so many are there at any time, also at rest, so that the load is the same.
STANDING = 20
ORDER = ("rest", "changes", "changes", "rest")
#: Part of a stretch before the first one: the JVM compiles for a minute or so, and gets faster by a tenth.
WARM_UP = 0.3


@contextmanager
def changing_service(directory: Path, load: Load) -> Iterator[LoadedService]:
    """Start a service with the load's queries and those that come and go, and wait until windows are full."""
    rows = str(load.max_rows_per_batch)
    with loaded_service(directory, SLUICE_MAX_ROWS_PER_BATCH=rows, SLUICE_TARGET_BATCH_S="0") as loaded:
        for document in load.documents():
            loaded.service.ok("POST", "/streams", 201, json=document)
        queries = {f"q{number}": text for number, text in enumerate(load.texts, 1)}
        loaded.add_all(queries | {_name(n): load.coming_and_going(n) for n in range(STANDING)})
        loaded.wait_for_batch(loaded.last_batch + load.batches_to_fill)
        yield loaded


def activations(loaded: LoadedService, load: Load, changes: int) -> list[dict[str, Any]]:
    """Add and remove queries one after another, each once the one before is active.

    Of each change: its ``kind``; ``batches`` from the last one committed when the answer came to the one that
    carries the change (1 is the next one, which may have been running already); ``request_s`` from request to
    answer; ``active_s`` from answer to the commit of that batch.
    """
    measured = []
    for number in range(changes):
        name, cql = f"timed{number // 2}", load.coming_and_going(number // 2)
        began_s = time.time()
        if number % 2:
            kind, version = "remove", loaded.remove(name)
        else:
            backfill = "state" if number % 4 else "none"
            kind = "add" if backfill == "none" else "add, backfill state"
            version = loaded.add(name, cql, backfill)
        answered_s, last = time.time(), loaded.last_batch
        batch, committed_us = loaded.wait_for_version(version)
        active_s = max(committed_us / 1e6 - answered_s, 0.0)
        took = {"batches": batch - last, "request_s": answered_s - began_s, "active_s": active_s}
        measured.append({"kind": kind, **took})
    return measured


def alternate(loaded: LoadedService, load: Load, stretch_s: float) -> list[dict[str, Any]]:
    """Measure four stretches; every change of the middle two is a request of its own."""
    there = deque(range(STANDING))
    _stretch(loaded, load, "rest", WARM_UP * stretch_s, there)
    return [_stretch(loaded, load, kind, stretch_s, there) for kind in ORDER]


def _stretch(
    loaded: LoadedService, load: Load, kind: str, seconds: float, there: deque[int]
) -> dict[str, Any]:
    first = loaded.last_batch + 1
    loaded.wait_for_batch(first)  # the batch before began in the former stretch
    began_s, requests_s = time.monotonic(), [0.0]
    while (now_s := time.monotonic()) - began_s < seconds:
        number = len(requests_s) - 1
        due_s = began_s + number * 60.0 / CHANGES_PER_MIN
        if kind == "changes" and due_s <= now_s:
            _change(loaded, load, number, there)
            requests_s.append(time.monotonic() - now_s)
        else:
            time.sleep(0.02)
    manifests = loaded.store.batches.manifests(first, loaded.last_batch)
    ends_s = np.array([m.committed_at_us / 1e6 for m in manifests])
    pid = loaded.service.process.pid
    memory = dict(of_each(pid, lambda process: int(process.memory_full_info().uss)))
    own = sum(used for (of, _), used in memory.items() if of == pid)
    return {
        "kind": kind,
        "seconds": float(ends_s[-1] - ends_s[0]),
        "rows": sum(s.rows for m in manifests[1:] for s in m.streams),
        "batches": len(manifests) - 1,
        "changes": len(requests_s) - 1,
        "versions": len({m.plan_version for m in manifests}),
        "median_batch_s": float(np.median(np.diff(ends_s))),
        "median_request_s": float(np.median(requests_s[1:] or requests_s)),
        # Memory that is nobody else's: of the service, and of the job's other Python processes.
        "service_bytes": own,
        "workers_bytes": sum(used for (_, kind), used in memory.items() if kind != "JVM") - own,
    }


def _change(loaded: LoadedService, load: Load, number: int, there: deque[int]) -> None:
    """Let the oldest query that comes and goes leave, or the next one come."""
    if number % 2 == 0:
        loaded.remove(_name(there.popleft()))
        return
    coming = (there[-1] if there else 0) + 1
    loaded.add(_name(coming), load.coming_and_going(coming), "state" if number % 4 == 3 else "none")
    there.append(coming)


def _name(number: int) -> str:
    return f"going{number}"
