"""What is wanted of Sluice's speed: each target, and what was found of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from tests.bench.peers.live import Live
from tests.bench.peers.peers import PEERS
from tests.bench.peers.results import best, frame, good, median, sections, times, times_of

#: Whole job and steady state; None where something is not measured.
Pair = tuple[float | None, float | None]
_NOTHING: Pair = (None, None)
_NONE = frame(())

#: Peers with a join of their own for each query.
_UNSHARED = tuple(p.name for p in PEERS.values() if p.kind == "peer" and p.sharing == "each")
_ONE = ("spark-one", "spark-one-x5", "spark-one-rocksdb")
_HAND = ("spark-hand", "spark-hand-x5", "spark-hand-rocksdb")
_PEERS = (*_HAND, *_UNSHARED)
_OWN = "many-keys, own batches"


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """All that was measured: runs by workload, and runs of the service."""

    sections: Mapping[str, pd.DataFrame]
    live: Sequence[Live] = ()

    def good(self, workload: str, peer: str, share: float | None = None) -> pd.DataFrame:
        """Return the good runs of a peer in a workload; none where it was not measured."""
        return good(self.sections.get(workload, _NONE), peer, share)


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a ratio.

    Attributes:
        number: Of the target that it belongs to.
        where: What it is measured in.
        says: What is bounded.
        bound: The bound.
        at_least: Whether more is better.
        found: Takes whole-job and steady-state values from what was measured.
    """

    number: int
    where: str
    says: str
    bound: float
    at_least: bool
    found: Callable[[Found], Pair]

    def met(self, value: float) -> bool:
        """Whether a value keeps the bound."""
        return value >= self.bound if self.at_least else value <= self.bound


def _ratio(fast: pd.DataFrame, slow: pd.DataFrame, own: str = "steady") -> Pair:
    """Return how many times faster one form is than another, both taken in the same runs."""
    return (times_of(fast, slow, "job"), times_of(fast, slow, "steady", own))


def _share(runs: pd.DataFrame) -> float | None:
    return None if runs.empty else float(runs["share"].iloc[0])


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _over(workload: str, says: str, number: int, bound: float, *peers: str) -> Target:
    """How many times faster Sluice is than the best of some peers."""

    def found(measured: Found) -> Pair:
        row = best(measured.sections.get(workload, _NONE), peers)
        return _NOTHING if row is None else (times(row, "job"), times(row, "steady"))

    return Target(number, workload, f"times faster than {says}", bound, True, found)


def _auto(says: str, bound: float, *peers: str) -> Target:
    """How many times faster Sluice is than the best of some peers where it chooses its batches, too."""

    def found(measured: Found) -> Pair:
        mine = measured.good("many-keys", "sluice-auto")
        pairs = [_ratio(mine, measured.good("many-keys", name, _share(mine))) for name in peers]
        job, steady = zip(*pairs, strict=True)
        return (_least(job), _least(steady))

    return Target(1, _OWN, f"times faster than {says}", bound, True, found)


def _other_rows(says: str, bound: float, *peers: str) -> Target:
    """How many times the rate of the best of some peers, over what it can be given, Sluice's is over all."""

    def found(measured: Found) -> Pair:
        mine = measured.good("many-keys", "sluice-auto")
        return (_least(_ratio(mine, measured.good("many-keys", name))[0] for name in peers), None)

    return Target(1, _OWN, f"rows/s of all rows, times {says} of its part (other rows)", bound, True, found)


def _longer(workload: str, says: str, number: int, bound: float, longer: str, other: str) -> Target:
    """How many times longer one form of Sluice takes than another."""

    def found(measured: Found) -> Pair:
        return _ratio(measured.good(workload, other), measured.good(workload, longer))

    return Target(number, workload, says, bound, False, found)


def _rate(where: str, bound: float, form: str) -> Target:
    def found(measured: Found) -> Pair:
        row = measured.good("many-keys", form)
        return (median(row["rates.job"]), median(row["rates.steady"]))

    return Target(1, where, "rows/s (beyond the others)", bound, True, found)


def _limit(where: str, bound: float, form: str) -> Target:
    """How many times faster the batch join is; it has no batches, so its steady state is the job."""

    def found(measured: Found) -> Pair:
        row = measured.good("many-keys", "duckdb")
        return _ratio(row, measured.good("many-keys", form, _share(row)), "job")

    return Target(1, where, "times slower than DuckDB's batch join", bound, False, found)


def _state(workload: str, says: str, bound: float, kind: str) -> Target:
    def found(measured: Found) -> Pair:
        return (median(measured.good(workload, "sluice")[kind]), None)

    return Target(5, workload, says, bound, False, found)


def _live(number: int, says: str, bound: float, value: Callable[[Live], float | None]) -> Target:
    def found(measured: Found) -> Pair:
        values = [value(run) for run in measured.live if not run.error]
        return (median(pd.Series(values, dtype=float).dropna()), None)

    return Target(number, "live", says, bound, False, found)


TARGETS = (
    _over("many-keys", "Spark's read and shuffle in the same batches", 1, 1.0, "spark-shuffle"),
    _over("many-keys", "one native Spark join", 1, 15.0, *_ONE),
    _over("many-keys", "the best sharing by hand", 1, 20.0, *_HAND),
    _over("many-keys", "the best unshared peer", 1, 60.0, *_UNSHARED),
    _limit("many-keys", 8.0, "sluice"),
    _rate("many-keys", 2_000_000, "sluice"),
    _other_rows("the best unshared peer's", 60.0, *_UNSHARED),
    _auto("one native Spark join", 15.0, *_ONE),
    _auto("the best sharing by hand", 20.0, *_HAND),
    _limit(_OWN, 8.0, "sluice-auto"),
    _rate(_OWN, 2_000_000, "sluice-auto"),
    _auto("Spark's read and shuffle in one batch (beyond)", 1.0, "spark-shuffle-batch"),
    _over("few-keys", "the best peer", 2, 5.0, *_PEERS),
    _over("skew", "the best peer", 2, 5.0, *_PEERS),
    _longer("many-keys", "12 queries, time over one", 3, 1.15, "sluice", "sluice-one"),
    _longer("sharing", "12 queries, time over one", 3, 1.15, "sluice-12", "sluice-one"),
    _longer("sharing", "100 queries, time over one", 3, 1.5, "sluice-100", "sluice-one"),
    _longer("sharing", "1,000 queries, time over one", 3, 3.0, "sluice", "sluice-one"),
    _longer("long-window-10", "windows 10 times as long, time over 1", 4, 1.3, "sluice", "sluice-short"),
    _longer("long-window-100", "windows 100 times as long, time over 1", 4, 1.69, "sluice", "sluice-short"),
    _longer("long-window-100", "8 MB of cache, time over 1 GB", 4, 3.0, "sluice-small-cache", "sluice"),
    _state("many-keys", "rows held over Theorem 4's", 1.05, "state_rows"),
    _state("many-keys", "bytes held over plain Arrow", 1.25, "state_bytes"),
    _state("selective", "rows held over Theorem 4's", 1.05, "state_rows"),
    _state("selective", "bytes held over plain Arrow", 1.25, "state_bytes"),
    _live(6, "latency p50 over the floor", 1.7, lambda run: run.p50_floors),
    _live(6, "latency p99 over the floor", 3.5, lambda run: run.p99_floors),
    _live(6, "floor of a micro-batch, s", 0.25, lambda run: run.floor_s),
)


def target_rows(runs: pd.DataFrame, live: Sequence[Live]) -> list[tuple[str, ...]]:
    """Return a line of the report for each target, from full sizes where there are such."""
    found: dict[str, pd.DataFrame] = {}
    for (workload, _, quick), own in sections(runs):
        if not quick:
            found.setdefault(workload, own)
    measured = Found(found, [run for run in live if not run.quick])
    lines: list[tuple[str, ...]] = []
    for target in TARGETS:
        job, steady = target.found(measured)
        bound = f"{'≥' if target.at_least else '≤'} {target.bound:,g}"
        cells = (_cell(target, job, "not measured"), _cell(target, steady, "–"))
        lines.append((f"{target.number}", target.where, target.says, bound, *cells))
    return lines


def _cell(target: Target, value: float | None, nothing: str) -> str:
    if value is None:
        return nothing
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{shown} {'✓' if target.met(value) else '✗'}"
