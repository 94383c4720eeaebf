"""Windows of rows: their clocks, and refusal of queries in which windows of rows are not supported.

A [ROWS 100]                      the last 100 rows of A
A [PARTITION BY k ROWS 1]         the last row of A for each k, where k is the join key
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.values.query import Clock, JoinKind
from catalog.wording.wording import listed, nearest_or_known
from planner.bind.keys.step_keys import Equals, StepKey
from planner.errors import InvalidWindow, UnknownColumn, UnsupportedCql
from planner.sql.dialect.cql import Window
from planner.sql.scopes.scope import Scope, SideName, SideScope
from planner.sql.scopes.step_scope import StepScope

_TIME_WINDOW = "Write a time window, such as [RANGE 5 MINUTES]."
_ALL_ROWS = "Write [ROWS 100], which counts all rows, or a time window: [RANGE 5 MINUTES]."


def row_clocks(
    scope: Scope, kind: JoinKind, keys: Sequence[tuple[str, str]], *, bounded: bool
) -> dict[SideName, Clock]:
    """Return the clock that measures the windows of each side.

    Args:
        scope: The streams of the query.
        kind: Kind of the query's join.
        keys: Join key: pairs of a column of side a and the equal column of side b.
        bounded: Whether a condition bounds the distance of the event times.

    Raises:
        UnsupportedCql: A window of rows is used with a construct that does not support such windows yet.
        UnknownColumn: PARTITION BY contains a name that is not a column of its stream.
        InvalidWindow: PARTITION BY leaves out a column of the join key.
    """
    clocks: dict[SideName, Clock] = {"a": "time", "b": "time"}
    for this in scope.written:
        window = this.source.window
        if window is None or window.clock == "time":
            continue
        for wrong, what in (
            (kind != "inner", f"a ROWS window in {'an' if kind in ('outer', 'anti') else 'a'} {kind} join"),
            (bounded, "a ROWS window together with conditions on the event times of both streams"),
        ):
            if wrong:
                raise UnsupportedCql(f"{what} is not supported", hint=_TIME_WINDOW, at=window.at)
        if window.clock == "key rows":
            if not keys:
                raise _no_key(window, "This join has no key.")
            _check_partition(this, window, {pair[0 if this.side == "a" else 1] for pair in keys})
        clocks[this.side] = window.clock
    return clocks


def step_row_windows(
    scope: StepScope, keys: Sequence[StepKey], equal: Sequence[Equals]
) -> Mapping[int, Window]:
    """Return the windows of rows in a join of more than two streams, by the position of the stream in FROM.

    Args:
        scope: The streams of the query.
        keys: Keys of the query's steps.
        equal: Sets of equal columns.

    Raises:
        UnsupportedCql: The query has PARTITION BY, and its steps do not all have the same key.
        UnknownColumn: PARTITION BY contains a name that is not a column of its stream.
        InvalidWindow: PARTITION BY leaves out a column of the join key.
    """
    found: dict[int, Window] = {}
    of_steps = [frozenset(next(c for c in equal if {*part} <= c) for part in key.parts) for key in keys]
    for position, this in enumerate(scope.written):
        window = this.source.window
        if window is None or window.clock == "time":
            continue
        if window.clock == "key rows":
            if not all(of_steps):
                raise _no_key(window, "One stream of this query is joined by a condition without a key.")
            if len(set(of_steps)) > 1 or any(key.exchanged for key in keys):
                raise UnsupportedCql(
                    "PARTITION BY in a join of more than two streams with several keys is not supported",
                    detail="PARTITION BY counts rows per key, so all streams must be joined on the same key.",
                    hint=_ALL_ROWS,
                    at=window.at,
                )
            key = {min(name for p, name in columns if p == position) for columns in of_steps[0]}
            _check_partition(this, window, key)
        found[position] = window
    return found


def _no_key(window: Window, why: str) -> UnsupportedCql:
    return UnsupportedCql(
        "PARTITION BY in a join without an equal key is not supported",
        detail=f"PARTITION BY counts rows per key of the whole join. {why}",
        hint=_ALL_ROWS,
        at=window.at,
    )


def _check_partition(this: SideScope, window: Window, key: set[str]) -> None:
    """Check that PARTITION BY names exactly the columns of the join key."""
    named = set()
    for identifier in window.partition:
        column = this.stream.column(identifier.name)
        if column is None:
            raise UnknownColumn(
                f'column "{identifier.name}" does not exist in stream "{this.stream.name}"',
                hint=nearest_or_known(identifier.name, [c.name for c in this.stream.columns], "column"),
                at=identifier,
            )
        named.add(column.name)
    hint = f"Write PARTITION BY {', '.join(sorted(key))}."
    if missing := sorted(key - named):
        raise InvalidWindow(
            f"PARTITION BY lacks {listed(missing)} of the join key",
            detail="PARTITION BY must name all columns of the join key.",
            hint=hint,
            at=window.at,
        )
    if more := sorted(named - key):
        raise UnsupportedCql(
            f"PARTITION BY {listed(more)} in addition to the join key is not supported",
            hint=hint,
            at=window.at,
        )
