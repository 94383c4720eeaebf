"""The service with live streams: how late results are.

    100 queries | 10,000 events a second       windows fill, then latency
                | an event every 25 ms         the floor of a micro-batch
                | ... both twice again, once windows are full

Latency is from an event being written (just before its request) to the result being read over HTTP, by
requests that wait for it, of the later of a result's two events. The floor is measured in between, with the
same queries and what is left of the state: batches follow each other with one event or two in each. Both are
measured in turn, since the speed of a shared machine changes by a fifth within a minute. The counts of all
queries are compared with DuckDB's over what was posted.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from catalog.store.store import Store
from tests.api.running_service import RunningService, free_port
from tests.bench.peers.batch_join import count_results
from tests.bench.peers.expected import differences
from tests.bench.peers.feeding import Feeder, Reader, write_files
from tests.bench.peers.measure import Setting
from tests.bench.peers.workloads import STREAMS, WORKLOADS
from tests.bench.reports import machine
from tests.waiting import until

RATE_PER_S = 10_000
_KEYS = 250_000
_QUERIES = WORKLOADS["selective"].queries
#: The one whose results are read: a large window, and a filter that passes 20%.
_READ = max(_QUERIES, key=lambda q: (q.a_below or q.b_below or 0.0, q.window_us))
#: Between two requests while events come at their full rate, and while the floor is measured.
_EVERY_S, _TRICKLE_EVERY_S = 0.05, 0.025
_WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Stretches:
    """How long everything is done, seconds: whole or quick."""

    fill: float
    load: float
    trickle: float
    rounds: int


_WHOLE = Stretches(fill=35.0, load=15.0, trickle=6.0, rounds=3)
_QUICK = Stretches(fill=8.0, load=5.0, trickle=4.0, rounds=1)


@dataclass(frozen=True, slots=True)
class Live:
    """One run of the service.

    Attributes:
        bench: When the bench began, UTC.
        run: Number of the run, from 1.
        quick: Whether everything was short, with windows not yet full.
        machine: What it ran on.
        error: Why there is no result, or the wrong one.
        latency_p50_s: Median latency.
        latency_p99_s: 99th percentile.
        read: Results that latencies were taken of.
        results: Results of all queries.
        rows_per_s: Events per second, both streams.
        batch_s: Median batch while they came.
        floor_s: Median batch with an event or two.
    """

    bench: str
    run: int
    quick: bool
    machine: str = ""
    error: str = ""
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    read: int = 0
    results: int = 0
    rows_per_s: float | None = None
    batch_s: float | None = None
    floor_s: float | None = None

    @property
    def p50_floors(self) -> float | None:
        """Median latency in floors of a micro-batch."""
        return self.latency_p50_s / self.floor_s if self.latency_p50_s and self.floor_s else None

    @property
    def p99_floors(self) -> float | None:
        """99th percentile of latency in floors of a micro-batch."""
        return self.latency_p99_s / self.floor_s if self.latency_p99_s and self.floor_s else None


def observe(setting: Setting, run: int) -> Live:
    """Run the service once; what goes wrong is part of the answer."""
    begun = Live(setting.bench, run, setting.quick, machine())
    with tempfile.TemporaryDirectory(dir=setting.root, ignore_cleanup_errors=True) as scratch:
        try:
            return _observe(begun, Path(scratch).resolve(), _QUICK if setting.quick else _WHOLE)
        except (httpx.HTTPError, TimeoutError, AssertionError) as problem:
            return replace(begun, error=f"{type(problem).__name__}: {problem}"[:600])


def _observe(begun: Live, scratch: Path, stretches: Stretches) -> Live:
    service = RunningService(scratch / "data", scratch / "log.txt", free_port())
    service.http.timeout = httpx.Timeout(2 * _WAIT_S)
    with service, Store.open(f"sqlite:///{service.data_dir / 'catalog.db'}", migrate=False) as store:
        service.register({"ts": "timestamp", "k": "bigint", "v": "double"}, *STREAMS, lateness="0s")
        changes = [{"add": {"name": q.name, "cql": q.cql()}} for q in _QUERIES]
        service.ok("POST", f"/changes?wait={_WAIT_S:.0f}", 200, json={"changes": changes})
        feeders: list[Feeder] = []
        rounds: list[_Round] = []
        for number in range(stretches.rounds):
            read = rounds[-1].loaded.read_to if rounds else None
            seed = begun.run * stretches.rounds + number
            loaded = _under_load(service, stretches, feeders, seed, read)
            rounds.append(_Round(loaded, _floor(service, stretches, feeders)))
        return _checked(_measured(begun, rounds, store), service, scratch / "posted", feeders)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A stretch of events at their full rate: when it was, what was sent and read, and how late that was."""

    from_s: float
    to_s: float
    sent: int
    latencies_s: np.ndarray
    read_to: str | None


def _under_load(
    service: RunningService, stretches: Stretches, feeders: list[Feeder], seed: int, read: str | None
) -> _Loaded:
    """Let windows fill, then read results as they come, those after cursor ``read``."""
    root = f"{service.root}/api/v1"
    feeder = Feeder(root, round(RATE_PER_S * _EVERY_S), _EVERY_S, _KEYS, seed=seed)
    feeders.append(feeder)
    with feeder:
        time.sleep(stretches.fill)
        with Reader(root, _READ.name, read) as reader:
            # The first look finds what has piled up.
            time.sleep(2.0)
            from_s, sent = time.time(), feeder.sent
            time.sleep(stretches.load)
            to_s, sent = time.time(), feeder.sent - sent
    latencies_s = reader.between(from_s, to_s)
    if not len(latencies_s):
        raise TimeoutError(f"no results of {_READ.name} within {stretches.load:.0f} s")
    return _Loaded(from_s, to_s, sent, latencies_s, reader.after)


@dataclass(frozen=True, slots=True)
class _Round:
    """Events at their full rate, then single ones: when these were."""

    loaded: _Loaded
    single: tuple[float, float]


def _measured(found: Live, rounds: list[_Round], store: Store) -> Live:
    """Return the run with what all rounds together gave."""
    loaded = [r.loaded for r in rounds]
    latencies_s = np.concatenate([stretch.latencies_s for stretch in loaded])
    p50_s, p99_s = np.quantile(latencies_s, (0.5, 0.99))
    return replace(
        found,
        latency_p50_s=float(p50_s),
        latency_p99_s=float(p99_s),
        read=len(latencies_s),
        rows_per_s=sum(s.sent for s in loaded) / sum(s.to_s - s.from_s for s in loaded),
        batch_s=_median_batch_s(store, [(s.from_s, s.to_s) for s in loaded]),
        floor_s=_median_batch_s(store, [r.single for r in rounds]),
    )


def _floor(service: RunningService, stretches: Stretches, feeders: list[Feeder]) -> tuple[float, float]:
    """Let single events come, once what was there before is worked off; return from when to when."""
    _wait_for_all(service, feeders)
    feeder = Feeder(f"{service.root}/api/v1", 1, _TRICKLE_EVERY_S, _KEYS, seed=0)
    feeders.append(feeder)
    with feeder:
        time.sleep(2.0)
        from_s = time.time()
        time.sleep(stretches.trickle)
        to_s = time.time()
    return from_s, to_s


def _wait_for_all(service: RunningService, feeders: list[Feeder]) -> None:
    sent = sum(feeder.sent for feeder in feeders)
    until(
        lambda: service.ok("GET", "/statistics", 200)["input_rows"] >= sent,
        lambda: f"{sent:,} events were not read",
        _WAIT_S,
    )


def _median_batch_s(store: Store, stretches: list[tuple[float, float]]) -> float | None:
    """Return the median time from one commit to the next within stretches of time."""
    ends_s = [m.committed_at_us / 1e6 for m in store.batches.manifests(0, 10**9)]
    gaps = [
        b - a
        for a, b in itertools.pairwise(ends_s)
        if any(from_s <= a and b < to_s for from_s, to_s in stretches)
    ]
    return float(np.median(gaps)) if gaps else None


def _checked(found: Live, service: RunningService, directory: Path, feeders: list[Feeder]) -> Live:
    """Return the run with its results counted, and an error where DuckDB counts others."""
    _wait_for_all(service, feeders)
    written: dict[str, list[Any]] = {name: [r for f in feeders for r in f.written[name]] for name in STREAMS}
    write_files(directory, written)
    streams = replace(
        WORKLOADS["selective"].streams, rows=sum(len(k) for _, k, _ in written["A"]), keys=_KEYS
    )
    wanted = count_results(directory, _QUERIES, streams)
    counted = {q["query"]: q["results"] for q in service.ok("GET", "/statistics", 200)["queries"]}
    wrong = differences(counted, wanted)
    error = f"results differ: {wrong}" if wrong else ""
    return replace(found, error=error, results=sum(counted.get(q.name, 0) for q in _QUERIES))
