"""Strategies side by side: savings of one against another over settings, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.bench.paper.measure import Measurement

Value = Callable[[Measurement], float]


@dataclass(frozen=True, slots=True)
class Point:
    """One setting with what every strategy did in it.

    Attributes:
        by_strategy: Measurements by strategy.
    """

    by_strategy: dict[str, Measurement]

    @property
    def setting(self) -> Measurement:
        """A measurement that carries the setting's columns."""
        return next(iter(self.by_strategy.values()))

    def saving(self, value: Value, of: str, over: str) -> float:
        """Return by which fraction ``of`` needs less than ``over``."""
        return 1 - value(self.by_strategy[of]) / value(self.by_strategy[over])

    def gain(self, value: Value, of: str, over: str) -> float:
        """Return by which fraction ``of`` gives more than ``over``."""
        return value(self.by_strategy[of]) / value(self.by_strategy[over]) - 1

    def least(self, value: Value) -> str:
        """Return the strategy that needs least."""
        return min(self.by_strategy, key=lambda name: value(self.by_strategy[name]))


def points(rows: Iterable[Measurement]) -> list[Point]:
    """Group measurements by setting, in their order."""
    grouped: dict[tuple[object, ...], dict[str, Measurement]] = {}
    for m in rows:
        setting = (
            m.distribution,
            m.queries,
            m.filter_selectivity,
            m.join_selectivity,
            m.rate_per_s,
            m.factor,
        )
        grouped.setdefault(setting, {})[m.strategy] = m
    return [Point(group) for group in grouped.values()]


def percents(fractions: Sequence[float], *, signed: bool = False) -> str:
    """Return smallest to largest in percent: ``8 to 27%``."""
    low, high = (_whole(f) for f in (min(fractions), max(fractions)))
    sign = "+" if signed else ""
    return f"{low:{sign}d}%" if low == high else f"{low:{sign}d} to {high:{sign}d}%"


def percent(fraction: float, *, signed: bool = False) -> str:
    """Return a fraction in percent: ``12%``."""
    return f"{_whole(fraction):{'+' if signed else ''}d}%"


def _whole(fraction: float) -> int:
    return round(100 * fraction)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return sum(values) / len(values)
