"""The service with live streams: how late results are.

    100 queries | 10,000 events a second       windows fill, then latency
                | an event every 25 ms         the floor of a micro-batch
                | ... both twice again, once windows are full

The floor is measured in between, with the same queries and what is left of the state: batches follow each
other with one event or two in each. Both are measured in turn, since the speed of a shared machine changes by
a fifth within a minute. The counts of all queries are compared with DuckDB's over what was posted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.bench.feeding import (
    COLUMNS,
    SELECTED,
    STREAMS,
    Feeder,
    Follower,
    LiveRows,
    latencies_s,
    now_us,
)
from tests.bench.loaded import LoadedService, loaded_service
from tests.bench.peers.batch_join import count_results, differences
from tests.bench.peers.measure import Setting
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.reports import hardware
from tests.bench.runs import write_part

_KEYS = 250_000
_QUERIES = WORKLOADS["selective"].queries
#: The one whose results are read: a large window, and a filter that passes 20%.
_READ = max(_QUERIES, key=lambda q: (q.a_below or q.b_below or 0.0, q.window_us))
#: Rows of each stream per second under load, and while the floor is measured.
_LOAD_PER_S, _SINGLE_PER_S = 5_000, 20
#: Between two requests of a stream.
_EVERY_S = 0.05
#: Seconds that windows fill, that latency and the floor are measured, of a whole run; and rounds.
_FILL_S, _LOAD_S, _FLOOR_S, _ROUNDS = 35.0, 15.0, 6.0, 3
#: Seconds after a change of the load that do not count.
_SETTLE_S = 2.0
#: Seconds that something is measured at the least, whatever the scale.
_LEAST_S = 5.0


def observe(setting: Setting, run: int) -> dict[str, Any]:
    """Run the service once, a part of the time at a smaller scale; what goes wrong is part of the answer."""
    facts: dict[str, Any] = {
        "run": run,
        "bench": setting.bench,
        "scale": setting.scale,
        "machine": hardware(),
    }
    with tempfile.TemporaryDirectory(dir=setting.root, ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch).resolve()
        try:
            with loaded_service(directory) as loaded:
                return facts | _observed(loaded, directory / "posted", setting.scale)
        except (httpx.HTTPError, AssertionError, RuntimeError) as problem:
            return facts | {"error": f"{type(problem).__name__}: {problem}"[:600]}


def _observed(loaded: LoadedService, directory: Path, scale: float) -> dict[str, Any]:
    loaded.service.register(COLUMNS, *STREAMS, lateness="0s")
    loaded.add_all({q.name: q.cql(SELECTED) for q in _QUERIES})
    fed: list[dict[str, Feeder]] = []
    stretches: dict[str, list[tuple[float, float]]] = {"load": [], "floor": []}
    pairs, after = [], None
    for _ in range(_ROUNDS):
        with _feeding(loaded, fed, _LOAD_PER_S):
            time.sleep(_FILL_S * scale)
            with Follower(loaded.root, _READ.name, after) as follower:
                stretches["load"].append(_stretch(max(_LOAD_S * scale, _LEAST_S)))
        pairs.append(follower.reading.pairs)
        after = follower.reading.after
        with _feeding(loaded, fed, _SINGLE_PER_S):
            stretches["floor"].append(_stretch(max(_FLOOR_S * scale, _LEAST_S)))
    posted = {name: np.concatenate([feeders[name].posted for feeders in fed]) for name in STREAMS}
    read, sent = np.concatenate(pairs), np.concatenate([*posted.values()])
    read = read[_within(read["read_us"] / 1e6, stretches["load"])]
    sent = sent[_within(sent["sent_us"] / 1e6, stretches["load"])]
    if not len(read):
        raise RuntimeError(f"no results of {_READ.name} were read")
    p50_s, p99_s = np.quantile(latencies_s(read, posted), (0.5, 0.99)).tolist()
    counted, wrong = _counts(loaded, fed, directory)
    return {
        "latency_p50_s": p50_s,
        "latency_p99_s": p99_s,
        "read": len(read),
        "results": sum(counted.values()),
        "rows_per_s": float((sent["end"] - sent["first"]).sum() / sum(b - a for a, b in stretches["load"])),
        "batch_s": _median_batch_s(loaded, stretches["load"]),
        "floor_s": _median_batch_s(loaded, stretches["floor"]),
        "error": f"results differ: {wrong}" if wrong else "",
    }


@contextmanager
def _feeding(loaded: LoadedService, fed: list[dict[str, Feeder]], rate_per_s: float) -> Iterator[None]:
    """Post rows of both streams at a rate, once those before are worked off."""
    ends = {name: fed[-1][name].end if fed else 0 for name in STREAMS}
    loaded.wait_for_rows(sum(ends.values()))
    start_us = now_us()
    fed.append(
        {
            name: Feeder(loaded.root, LiveRows(start_us, rate_per_s, _KEYS, first=first), name, _EVERY_S)
            for name, first in ends.items()
        }
    )
    a, b = fed[-1].values()
    with a, b:
        yield


def _stretch(seconds: float) -> tuple[float, float]:
    """Wait for a stretch of time that counts, and return when it began and ended."""
    time.sleep(_SETTLE_S)
    began_s = time.time()
    time.sleep(seconds)
    return began_s, time.time()


def _within(at_s: np.ndarray, stretches: Sequence[tuple[float, float]]) -> np.ndarray:
    return np.any([(began_s <= at_s) & (at_s < ended_s) for began_s, ended_s in stretches], axis=0)


def _median_batch_s(loaded: LoadedService, stretches: Sequence[tuple[float, float]]) -> float | None:
    """Return the median time from one commit to the next within stretches of time."""
    ends_s = np.array([m.committed_at_us / 1e6 for m in loaded.store.batches.manifests(0, 10**9)])
    gaps_s = np.diff(ends_s)[_within(ends_s[:-1], stretches) & _within(ends_s[1:], stretches)]
    return float(np.median(gaps_s)) if len(gaps_s) else None


def _counts(
    loaded: LoadedService, fed: Sequence[Mapping[str, Feeder]], directory: Path
) -> tuple[dict[str, int], str]:
    """Return the results of all queries, and where DuckDB counts others over what was posted."""
    loaded.wait_for_rows(sum(feeder.end for feeder in fed[-1].values()))
    for name in STREAMS:
        for number, feeders in enumerate(fed):
            feeder = feeders[name]
            columns = feeder.rows.of(name, feeder.rows.first, feeder.end)
            write_part(directory, name, number, columns.pop("ts"), **columns)
    streams = replace(WORKLOADS["selective"].streams, rows=fed[-1]["A"].end, keys=_KEYS)
    found = loaded.service.ok("GET", "/statistics", 200)["queries"]
    counted = {query["query"]: int(query["results"]) for query in found}
    return counted, differences(counted, count_results(directory, _QUERIES, streams))
