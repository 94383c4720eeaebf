"""Workloads for the fit: corner workloads, each dominated by one kind of work, and random workloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from catalog.values.plan import Strategy
from service.calibrate.workload import Selection, SyntheticWorkload, WindowQuery

#: Number of distinct keys, so large that hardly any two rows have the same key.
_NO_MATCHES = 10**12


@dataclass(frozen=True, slots=True)
class Design:
    """A workload, and the strategies under which it is run."""

    workload: SyntheticWorkload
    strategies: tuple[Strategy, ...]


def designs(count: int, *, seed: int) -> Iterator[Design]:
    """Yield the corner workloads and ``count`` random workloads."""
    yield from _corners()
    rng = np.random.default_rng(seed)
    turns: tuple[tuple[Strategy, ...], ...] = (
        ("mem-opt", "unshared"),
        ("pullup", "mem-opt"),
        ("pushdown", "mem-opt"),
        ("unshared", "pullup"),
    )
    for number in range(count):
        yield Design(_random(rng, f"random {number}", seed + number), turns[number % len(turns)])


def _corners() -> Iterator[Design]:
    one = (WindowQuery(8, 8),)
    filtered = (WindowQuery(8, 8, Selection("v", 0.5), Selection("u", 0.5)),)
    filters = tuple(WindowQuery(8, 8, Selection("v", 0.1 * n), Selection("u", 0.1 * n)) for n in range(1, 10))
    wide = (WindowQuery(8, 8, columns=12),)
    many = tuple(WindowQuery(float(w), float(w)) for w in range(2, 41, 2))
    long = (WindowQuery(60, 60),)
    odd = tuple(WindowQuery(1.37 * n, 1.37 * n) for n in range(1, 13))
    narrowing = tuple(
        WindowQuery(2.0 * n, 2.0 * n, Selection("v", round(0.8**n, 3)), Selection("v", round(0.8**n, 3)), 6)
        for n in range(1, 7)
    )
    rare = (WindowQuery(8, 8, Selection("v", 0.1), Selection("v", 0.1)),)
    alone: tuple[Strategy, ...] = ("mem-opt",)
    yield Design(SyntheticWorkload("idle", one, 20, 20, 1.0, 1000), alone)
    yield Design(SyntheticWorkload("rows", one, 20_000, 20_000, 1.0, _NO_MATCHES), alone)
    yield Design(SyntheticWorkload("wide rows", wide, 20_000, 20_000, 1.0, _NO_MATCHES, columns=12), alone)
    yield Design(SyntheticWorkload("results", one, 2_000, 2_000, 1.0, 300), alone)
    yield Design(SyntheticWorkload("wide results", wide, 2_000, 2_000, 1.0, 300, columns=12), alone)
    yield Design(SyntheticWorkload("a filter, few rows", filtered, 100, 100, 1.0, 10**4), alone)
    yield Design(SyntheticWorkload("a filter", filtered, 20_000, 20_000, 1.0, 10**7), ("mem-opt", "pullup"))
    yield Design(
        SyntheticWorkload("filters, few rows", filters, 100, 100, 1.0, 10**4), ("mem-opt", "unshared")
    )
    yield Design(SyntheticWorkload("filters", filters, 20_000, 20_000, 1.0, 10**7), ("mem-opt", "pullup"))
    yield Design(SyntheticWorkload("slices", many, 50, 50, 1.0, 10**6), ("mem-opt", "pullup", "unshared"))
    yield Design(SyntheticWorkload("segments", long, 50, 50, 1.0, 10**6), alone)
    yield Design(SyntheticWorkload("builds", long, 200, 200, 1.0, 200), alone)
    yield Design(
        SyntheticWorkload("wide builds", (WindowQuery(60, 60, columns=12),), 200, 200, 1.0, 200, 12), alone
    )
    yield Design(SyntheticWorkload("moves", many, 5_000, 5_000, 2.0, _NO_MATCHES), ("mem-opt", "pullup"))
    yield Design(SyntheticWorkload("cuts", odd, 8_000, 8_000, 2.0, _NO_MATCHES), ("mem-opt", "pullup"))
    yield Design(SyntheticWorkload("filtered slices", narrowing, 10_000, 10_000, 1.0, _NO_MATCHES, 6), alone)
    yield Design(SyntheticWorkload("matches", rare, 2_000, 2_000, 1.0, 300), ("pullup", "mem-opt"))
    yield Design(SyntheticWorkload("merges", long, 2_000, 2_000, 0.3, 10**6), alone)


def _random(rng: np.random.Generator, name: str, seed: int) -> SyntheticWorkload:
    """Draw a workload: its sizes on a logarithmic scale, its matches limited to what a batch can process."""
    batch_s = _log(rng, 0.2, 5.0)
    longest_s = batch_s * _log(rng, 4.0, 60.0)
    rate_a = _log(rng, 50.0, 8_000.0) / batch_s
    rate_b = rate_a * _log(rng, 0.4, 2.5)
    columns = int(rng.integers(0, 7))
    count = int(rng.integers(1, 11))
    windows = np.sort(longest_s * rng.uniform(0.03, 1.0, count) ** rng.choice([1.0, 2.0]))
    windows[-1] = longest_s
    unequal, filtered = rng.random() < 0.3, rng.uniform(0.0, 0.9)
    queries = tuple(
        WindowQuery(
            w,
            max(w * rng.uniform(0.1, 1.0), 0.001) if unequal else w,
            _selection(rng) if rng.random() < filtered else None,
            _selection(rng) if rng.random() < 0.5 * filtered else None,
            int(rng.integers(0, columns + 1)),
        )
        for w in np.maximum(windows, 0.001).tolist()
    )
    pairs = 2.0 * rate_a * rate_b * longest_s * batch_s
    keys = max(int(pairs / _log(rng, 30.0, 100_000.0)), 2)
    return SyntheticWorkload(name, queries, rate_a, rate_b, batch_s, keys, columns, seed=seed)


def _selection(rng: np.random.Generator) -> Selection:
    return Selection(str(rng.choice(["v", "u"])), round(float(rng.uniform(0.05, 0.95)), 2))


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw a number from [low, high), uniformly on a logarithmic scale."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
