"""What the comparison is to show: each target, and what was found of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.peers.medians import Row, Section
from tests.bench.peers.peers import PEERS

Found = Mapping[str, Section]
#: Peers with a join of their own for each query.
_UNSHARED = tuple(p.name for p in PEERS.values() if p.sharing == "each")
_ONE = ("spark-one", "spark-one-x5", "spark-one-rocksdb")
_HAND = ("spark-hand", "spark-hand-x5", "spark-hand-rocksdb")
_PEERS = (*_HAND, *_UNSHARED)


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a ratio.

    Attributes:
        says: What is bounded.
        workload: Where it is measured.
        bound: The bound.
        at_least: Whether more is better.
        found: Takes whole-job and steady-state ratios from the section; None where they are not measured.
    """

    says: str
    workload: str
    bound: float
    at_least: bool
    found: Callable[[Section], tuple[float | None, float | None]]

    def met(self, value: float) -> bool:
        """Whether a ratio keeps the bound."""
        return value >= self.bound if self.at_least else value <= self.bound


def _times(row: Row | None) -> tuple[float | None, float | None]:
    return (None, None) if row is None else (row.times.job, row.times.steady)


def _over(*peers: str) -> Callable[[Section], tuple[float | None, float | None]]:
    """Return what takes how many times faster Sluice is than the best of some peers."""
    return lambda section: _times(section.best(peers))


def _limit(section: Section) -> tuple[float | None, float | None]:
    """Return how many times faster the batch join is; it has no batches, so its steady state is the job."""
    row = section.row("duckdb")
    if row is None or row.times.job is None or row.rates.job is None:
        return None, None
    mine = section.row("sluice", row.first.share)
    steady = mine.rates.steady if mine is not None else None
    return 1 / row.times.job, row.rates.job / steady if steady else None


def _sharing(section: Section) -> tuple[float | None, float | None]:
    """Return how many times longer all queries take than one."""
    whole, steady = _times(section.row("sluice-one"))
    return (1 / whole if whole else None, 1 / steady if steady else None)


TARGETS = (
    Target("Spark's read and shuffle", "many-keys", 1.0, True, _over("spark-shuffle", "spark-shuffle-batch")),
    Target("one native Spark join", "many-keys", 15.0, True, _over(*_ONE)),
    Target("the best sharing by hand", "many-keys", 20.0, True, _over(*_HAND)),
    Target("the best unshared peer", "many-keys", 60.0, True, _over(*_UNSHARED)),
    Target("DuckDB's batch join over Sluice", "many-keys", 8.0, False, _limit),
    Target("the best peer", "few-keys", 5.0, True, _over(*_PEERS)),
    Target("the best peer", "skew", 5.0, True, _over(*_PEERS)),
    Target("12 queries over one, time", "many-keys", 1.15, False, _sharing),
    Target("100 queries over one, time", "selective", 1.5, False, _sharing),
    Target("1,000 queries over one, time", "fan-out", 3.0, False, _sharing),
)


def target_rows(sections: Sequence[Section]) -> list[tuple[str, ...]]:
    """Return a line of the report for each target that was measured, in full size before smaller ones."""
    lines = []
    for target in TARGETS:
        section = next((s for s in sections if s.workload == target.workload and not s.quick), None)
        if section is None:
            continue
        values = target.found(section)
        if values[0] is None:
            continue
        bound = f"{'≥' if target.at_least else '≤'} {target.bound:g}"
        cells = ["–" if v is None else f"{v:.3g} {'✓' if target.met(v) else '✗'}" for v in values]
        lines.append((target.workload, target.says, bound, *cells))
    return lines
