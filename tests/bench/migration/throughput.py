"""Throughput while plans change 200 times a minute, against the same load at rest: ABBA in one service.

(warm-up) | at rest | changes | changes | at rest        one after the other, without a pause
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any

import pandas as pd

from tests.bench.migration.load import Load
from tests.bench.migration.service_under_load import LoadedService, wait_for_batch

CHANGES_PER_MIN = 200
#: Throughput under changes is to stay within so much of that at rest.
TARGET = 0.10
#: Queries that come and go: so many are there at any time, also at rest, so that the load is the same.
STANDING = 20
ORDER = ("rest", "changes", "changes", "rest")
#: Part of a stretch before the first one: the JVM compiles for a minute or so, and gets faster by a tenth.
WARM_UP = 0.3


#: A stretch of time: ``kind``; seconds from its first commit to its last; rows and batches after the
#: first; changes made and plan versions in force; median time between commits and of a request (0 at
#: rest); how far the changes fell behind their schedule; private memory of the service and of the job's
#: Python processes.
Stretch = dict[str, Any]


def standing_queries(load: Load) -> dict[str, str]:
    """Return the queries that are there when the first change comes, CQL by name."""
    return {_name(n): load.coming_and_going(n) for n in range(STANDING)}


def alternate(loaded: LoadedService, load: Load, stretch_s: float) -> list[Stretch]:
    """Measure four stretches; every change of the middle two is a request of its own."""
    there = deque(range(STANDING))
    _stretch(loaded, load, "rest", WARM_UP * stretch_s, there)
    return [_stretch(loaded, load, kind, stretch_s, there) for kind in ORDER]


def loss(stretches: Sequence[Stretch]) -> float:
    """Return the part of the throughput at rest that changes cost."""
    sums = pd.DataFrame(stretches).groupby("kind")[["rows", "seconds"]].sum()
    rates = sums["rows"] / sums["seconds"]
    return float(1.0 - rates["changes"] / rates["rest"])


def _stretch(loaded: LoadedService, load: Load, kind: str, seconds: float, there: deque[int]) -> Stretch:
    first = loaded.last_batch + 1
    wait_for_batch(loaded, first)  # the batch before began in the former stretch
    began_s, requests_s = time.monotonic(), []
    number, late_s = 0, 0.0
    while (now_s := time.monotonic()) - began_s < seconds:
        due_s = began_s + number * 60.0 / CHANGES_PER_MIN
        if kind == "rest" or due_s > now_s:
            time.sleep(min(0.25 if kind == "rest" else due_s - now_s, seconds))
            continue
        late_s = now_s - due_s
        _change(loaded, load, number, there)
        requests_s.append(time.monotonic() - now_s)
        number += 1
    manifests = loaded.store.batches.manifests(first, loaded.last_batch)
    ends = [m.committed_at_us / 1e6 for m in manifests]
    service_bytes, workers_bytes = loaded.private_bytes()
    return {
        "kind": kind,
        "seconds": ends[-1] - ends[0],
        "rows": sum(s.rows for m in manifests[1:] for s in m.streams),
        "batches": len(manifests) - 1,
        "changes": number,
        "versions": len({m.plan_version for m in manifests}),
        "median_batch_s": median(end - start for start, end in itertools.pairwise(ends)),
        "median_request_s": median(requests_s or [0.0]),
        "late_s": late_s,
        "service_bytes": service_bytes,
        "workers_bytes": workers_bytes,
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
