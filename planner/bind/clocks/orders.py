"""Ordered joins: queries without windows over streams whose rows arrive in the order of the joined columns.

    a.epoch = b.epoch                  window [NOW] on both sides
    abs(a.epoch - b.epoch) <= 5        windows of 6 steps
    b.epoch BETWEEN a.epoch AND a.epoch + 5

It is not known how long a row must wait for its partner, but the order of the streams tells when no more
partners can arrive (WO-Join, Wu, Tan and Zhou, §2). So the ordering columns are the clock of a family of
ordered joins. The windows of the family bound the distance between values of these columns. Only integers
have distances here; values of other types are compared for equality only. The conditions are evaluated as
well, so a window may be wider than its condition.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from catalog.values.query import UNBOUNDED_US
from catalog.values.stream import Column, Stream
from planner.bind.canonical import canonical
from planner.expressions.types.column_types import is_integer
from planner.expressions.types.typed import Typed
from planner.predicates.logic.limits import limits
from planner.sql.scopes.scope import Scope, SideName

#: A join key: columns as (of a, of b), and their common type.
_KeyPair = tuple[str, str, str]


def ordered_windows(
    scope: Scope, keys: Collection[_KeyPair], residuals: Sequence[Typed]
) -> dict[SideName, int] | None:
    """Return the windows of an ordered join, in steps of the ordering columns; None for other queries.

    Args:
        scope: Names of the query.
        keys: Its join key.
        residuals: Its conditions on both rows.
    """
    ordering = _ordering(scope)
    if ordering is None:
        return None
    a, b = ordering
    if (a.name, b.name) in {(one, other) for one, other, _ in keys}:
        return {"a": 1, "b": 1}
    if not residuals or not is_integer(a.type):
        return None
    types: dict[SideName, dict[str, str]] = {
        this.side: {column.name: column.type for column in this.stream.columns} for this in scope.written
    }
    found = limits(canonical(residuals).meaning, types)
    # The residuals limit the ordering column a.x to the range from b.y + low to b.y + high.
    low, high = (found.get(("a", a.name, end, b.name)) for end in ("low", "high"))
    if low is None or high is None:
        return None
    if scope.a.stream.order is not None and scope.a.stream.order.descending:
        low, high = -high, -low
    windows: dict[SideName, int] = {"a": _window(-low), "b": _window(high)}
    return windows if max(windows.values()) < UNBOUNDED_US else None


def joins_orders(streams: Sequence[Stream], key: Collection[tuple[str, ...]]) -> bool:
    """Return whether the key has the ordering columns of all streams and one clock can serve all streams.

    Args:
        streams: The streams.
        key: The column of every stream, for each part of the key.
    """
    ordering = [_column(stream) for stream in streams]
    first = ordering[0]
    return (
        first is not None
        and all(_one_clock(streams[0], stream) for stream in streams[1:])
        and tuple(column.name for column in ordering if column is not None) in set(key)
    )


def order_hint(scope: Scope, keys: Collection[_KeyPair]) -> str:
    """Return a hint on how a query without windows can use the order of its streams, or ''.

    Args:
        scope: Names of the query.
        keys: Its join key.
    """
    ordering = _ordering(scope)
    if ordering is not None:
        a, b = (f"{side.alias}.{c.name}" for side, c in zip((scope.a, scope.b), ordering, strict=True))
        near = f", or abs({a} - {b}) <= 5" if is_integer(ordering[0].type) else ""
        return f" Without windows, write {a} = {b}{near}."
    if not keys or all(side.stream.order is not None for side in scope.written):
        return ""
    one, other, _ = next(iter(keys))
    return (
        " Without windows, both streams must come in the order of the key: declare it as order "
        f"({scope.a.stream.name}: {one}, {scope.b.stream.name}: {other})."
    )


def _window(distance: float) -> int:
    """Return the window that reaches ``distance`` steps; unbounded from 2**53, where floats are not exact."""
    if distance >= 2**53:
        return UNBOUNDED_US
    return max(math.floor(distance), 0) + 1


def _ordering(scope: Scope) -> tuple[Column, Column] | None:
    """Return the ordering columns of both streams; None if they cannot serve as one clock."""
    first, second = _column(scope.a.stream), _column(scope.b.stream)
    if first is None or second is None or not _one_clock(scope.a.stream, scope.b.stream):
        return None
    return first, second


def _one_clock(one: Stream, other: Stream) -> bool:
    """Return whether the orders of two streams have one type and one direction."""
    first, second = _column(one), _column(other)
    if first is None or second is None or one.order is None or other.order is None:
        return False
    alike = first.type == second.type or (is_integer(first.type) and is_integer(second.type))
    return alike and one.order.descending == other.order.descending


def _column(stream: Stream) -> Column | None:
    return None if stream.order is None else stream.column(stream.order.column)
