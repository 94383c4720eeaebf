"""Ordered joins: queries without windows over streams whose rows arrive in the order of the joined columns.

    a.epoch = b.epoch                  window [NOW] on both sides
    abs(a.epoch - b.epoch) <= 5        windows of 6 steps
    b.epoch BETWEEN a.epoch AND a.epoch + 5

How long a row must wait for its partner is unknown, but no more partners can arrive once the order of the
other stream has passed the row (WO-Join, Wu, Tan and Zhou, §2). So the ordering columns are the clock of a
family of ordered joins: its windows bound the distance between values of the two columns. Only integers have
distances here; values of other types are compared for equality only. A window may be wider than its
condition, because the condition is also tested on each pair.
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

#: Part of a join key: the column of side a, the equal column of side b, and their common type.
_KeyPair = tuple[str, str, str]


def ordered_windows(
    scope: Scope, keys: Collection[_KeyPair], residuals: Sequence[Typed]
) -> dict[SideName, int] | None:
    """Return the windows of an ordered join in steps of the ordering columns, or None for any other query.

    Args:
        scope: Names of the query.
        keys: Join key of the query.
        residuals: Conditions of the query on the rows of both sides.
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
    """Return whether the key equates the ordering columns of all streams and their orders are comparable.

    Args:
        streams: The streams.
        key: Parts of the key; each part has one column of every stream, in the order of ``streams``.
    """
    ordering = [_column(stream) for stream in streams]
    first = ordering[0]
    return (
        first is not None
        and all(_one_clock(streams[0], stream) for stream in streams[1:])
        and tuple(column.name for column in ordering if column is not None) in set(key)
    )


def order_hint(scope: Scope, keys: Collection[_KeyPair]) -> str:
    """Return a hint on how to join the streams by their order without windows, or "" if that is impossible.

    Args:
        scope: Names of the query.
        keys: Join key of the query.
    """
    ordering = _ordering(scope)
    if ordering is not None:
        a, b = (f"{side.alias}.{c.name}" for side, c in zip((scope.a, scope.b), ordering, strict=True))
        near = f", or abs({a} - {b}) <= 5" if is_integer(ordering[0].type) else ""
        return f" To join without windows, write {a} = {b}{near}."
    if not keys or all(side.stream.order is not None for side in scope.written):
        return ""
    one, other, _ = next(iter(keys))
    return (
        " To join without windows, declare the key as the order of both streams "
        f"({scope.a.stream.name}: {one}, {scope.b.stream.name}: {other})."
    )


def _window(distance: float) -> int:
    """Return the window that reaches ``distance`` steps; unbounded from 2**53, where floats are inexact."""
    if distance >= 2**53:
        return UNBOUNDED_US
    return max(math.floor(distance), 0) + 1


def _ordering(scope: Scope) -> tuple[Column, Column] | None:
    """Return the ordering columns of both streams, or None if one clock cannot measure both orders."""
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
