"""Bounds on the distance of two event times, found in predicates (Flink's and Spark's window joins).

With d = T_b - T_a in µs, a conjunct such as ``b.ts <= a.ts + INTERVAL '5' MINUTE`` means d <= 300000000.
If both sides of a comparison are linear in T_a and T_b, and T_a and T_b have coefficients 1 and -1 in the
difference of the two sides, the comparison bounds d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sqlglot import exp

from catalog.times.durations import Duration
from planner.sql.scopes.scope import Scope, SideName

_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Closed interval [low_us, high_us] of distances d = T_b - T_a.

    Attributes:
        low_us: Least distance in µs, or None if there is no lower bound.
        high_us: Greatest distance in µs, or None if there is no upper bound.
    """

    low_us: int | None = None
    high_us: int | None = None

    def intersected(self, other: Bounds) -> Bounds:
        """Return the distances that are in both intervals.

        >>> Bounds(None, 5).intersected(Bounds(-3, 9))
        Bounds(low_us=-3, high_us=5)
        """
        lows = [bound for bound in (self.low_us, other.low_us) if bound is not None]
        highs = [bound for bound in (self.high_us, other.high_us) if bound is not None]
        return Bounds(max(lows, default=None), min(highs, default=None))

    @property
    def empty(self) -> bool:
        """Return whether no distance satisfies the bounds."""
        return self.low_us is not None and self.high_us is not None and self.low_us > self.high_us


@dataclass(frozen=True, slots=True)
class _Linear:
    """The linear form a * T_a + b * T_b + us, in µs."""

    a: int = 0
    b: int = 0
    us: int = 0

    def plus(self, other: _Linear, sign: int) -> _Linear:
        return _Linear(self.a + sign * other.a, self.b + sign * other.b, self.us + sign * other.us)


def time_bounds(node: exp.Expr, scope: Scope) -> Bounds | None:
    """Return the bounds that a conjunct sets on d, or None if it sets no bounds."""
    if not isinstance(node, _COMPARISONS):
        return None
    left, right = _linear(node.this, scope), _linear(node.expression, scope)
    if left is None or right is None:
        return None
    zero = left.plus(right, -1)
    if (zero.a, zero.b) not in ((-1, 1), (1, -1)):
        return None
    # The conjunct is d + us OP 0, or -d + us OP 0. The second form means d - us OP 0 with OP mirrored.
    at = -zero.us * zero.b
    if isinstance(node, exp.EQ):
        return Bounds(at, at)
    below = isinstance(node, exp.LT | exp.LTE) == (zero.b == 1)
    strict = isinstance(node, exp.LT | exp.GT)
    return Bounds(None, at - strict) if below else Bounds(at + strict, None)


def compares_times(node: exp.Expr, scope: Scope) -> bool:
    """Return whether a conjunct compares the event times of both streams, in any form."""
    if not isinstance(node, _COMPARISONS):
        return False
    columns = (column for column in node.find_all(exp.Column) if not isinstance(column.this, exp.Star))
    found = [scope.column(column) for column in columns]
    times = {this.side for this in found if _is_event_time(this.side, this.column.name, scope)}
    return len(times) == 2


def months_in(node: exp.Expr) -> exp.Interval | None:
    """Return the first interval of months or years, which have no fixed length, or None without one."""
    return next((found for found in node.find_all(exp.Interval) if found.meta["duration"].months), None)


def _linear(node: exp.Expr, scope: Scope) -> _Linear | None:
    """Return an expression over event times and intervals as a linear form, or None if it is not linear."""
    if isinstance(node, exp.Paren):
        return _linear(node.this, scope)
    if isinstance(node, exp.Interval):
        length = cast(Duration, node.meta["duration"])
        return _Linear(us=length.us) if not length.months else None
    if isinstance(node, exp.Neg):
        inner = _linear(node.this, scope)
        return None if inner is None else _Linear().plus(inner, -1)
    if isinstance(node, exp.Add | exp.Sub):
        left, right = _linear(node.this, scope), _linear(node.expression, scope)
        if left is None or right is None:
            return None
        return left.plus(right, 1 if isinstance(node, exp.Add) else -1)
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        found = scope.column(node)
        if _is_event_time(found.side, found.column.name, scope):
            return _Linear(a=1) if found.side == "a" else _Linear(b=1)
    return None


def _is_event_time(side: SideName, column: str, scope: Scope) -> bool:
    return column.lower() == scope.side(side).stream.event_time.lower()
