"""Binding: from a CQL text and the registered streams to a ``Query``.

Every conjunct of ON and WHERE becomes one of four things (d = T_b - T_a):

    a.k = b.k                                  key of the family
    b.ts <= a.ts + INTERVAL '5' MINUTE         bound on d, so part of the windows
    a.v < 0.2                                  filter of one side
    a.v < b.v                                  residual, tested on joined pairs

A query without windows is an ordered join (``bind.clocks.orders``) if each stream is ordered by a column and
the conditions bound the distance between the two columns.

A query without a key is a theta join: every pair of rows inside the windows is a candidate.

In an outer or anti join, a condition in ON on the preserved side alone is also a residual: a row that fails
the condition has no partner, but the row itself is not dropped. ``bind.unmatched.absence`` decides which kind
of join the query is.

Filters and residual are brought into canonical form (``bind.canonical``): conditions that are always true are
dropped. A query whose conditions exclude all pairs is legal: both of its filters are FALSE, so that no row is
kept for it. If rows without a partner are results, only the filter of the other side is FALSE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from catalog.values.query import UNBOUNDED_US, Backfill, Clock, Query, Side
from catalog.values.stream import Stream
from catalog.wording.wording import nearest_or_known
from planner.bind.announcing import refuse_announcement, with_announcement
from planner.bind.canonical import ALWAYS, NEVER, canonical
from planner.bind.clocks.horizons import refuse_horizon
from planner.bind.clocks.orders import order_hint, ordered_windows
from planner.bind.clocks.rows import row_clocks
from planner.bind.grouping import bind_grouping
from planner.bind.joining.steps import bind_steps
from planner.bind.keys.step_keys import ChooseOrder
from planner.bind.outputs import bind_outputs
from planner.bind.pieces import key_columns, key_mismatch
from planner.bind.size import check_size
from planner.bind.time_bounds import Bounds, compares_times, months_in, time_bounds
from planner.bind.unmatched.absence import JoinMeaning, join_meaning
from planner.errors import (
    CqlSyntaxError,
    InvalidWindow,
    NoEquiKey,
    NoWindow,
    UnknownColumn,
    UnsupportedCql,
)
from planner.expressions.expressions import bare, compile_condition, qualified
from planner.expressions.types.column_types import key_type
from planner.expressions.types.typed import Typed, columns_of
from planner.predicates.conditions import Operand, compared
from planner.predicates.constants import Constant
from planner.sql.dialect.locate import located
from planner.sql.scopes.scope import Scope, SideName
from planner.sql.statement import Statement, parse

_EXAMPLE_BOUNDS = "b.ts BETWEEN a.ts - INTERVAL '5' MINUTE AND a.ts + INTERVAL '1' MINUTE"

#: Part of a join key: the column of side a, the equal column of side b, and their common type.
_KeyPair = tuple[str, str, str]


@dataclass(slots=True)
class _Conditions:
    """The conjuncts of a query, sorted by how the query uses them."""

    keys: dict[tuple[str, str], _KeyPair] = field(default_factory=dict)
    equal_times: list[tuple[tuple[str, str], exp.Expr]] = field(default_factory=list)
    bounds: Bounds = field(default_factory=Bounds)
    bounds_at: exp.Expr | None = None
    filters: dict[SideName, list[Typed]] = field(default_factory=lambda: {"a": [], "b": []})
    residuals: list[Typed] = field(default_factory=list)
    #: Filters and residuals that compare the event times of both streams but set no bound on their distance.
    no_bounds: list[exp.Expr] = field(default_factory=list)


@located
def bind(
    cql: str,
    streams: Mapping[str, Stream],
    *,
    name: str = "",
    query_id: int = 0,
    backfill: Backfill = "none",
    choose: ChooseOrder | None = None,
) -> Query:
    """Return the query that a CQL text expresses over the registered streams.

    Args:
        cql: The CQL text.
        streams: Registered streams by name.
        name: Name of the query.
        query_id: Id of the query.
        backfill: ``state`` if the query also joins stored rows from before its activation, else ``none``.
        choose: Chooses the order in which more than two streams are joined. If it is None, streams
            are joined in the order of FROM, but streams that continue the current key come first.

    Raises:
        InvalidInput: The text is not a query over these streams; subclasses are in ``planner.errors``.
    """
    try:
        statement = parse(cql)
        if len(statement.sources) > 2:
            return replace(bind_steps(cql, statement, streams, name, query_id, choose), backfill=backfill)
        scope = Scope(statement, streams)
        return _bind(cql, statement, scope, name, query_id, backfill)
    except RecursionError as error:
        hint = "Write a shorter expression."
        raise CqlSyntaxError("an expression is nested too deeply", hint=hint) from error


def refuse_backfill(query: Query, backfill: Backfill) -> None:
    """Refuse ``backfill: state`` for a query that cannot use rows from before its activation.

    Raises:
        UnsupportedCql: ``backfill`` is ``state``, and the query joins more than two streams or has a window
            of rows.
    """
    if backfill == "none":
        return
    if query.left is not None:
        raise UnsupportedCql(
            "backfill: state is not supported yet for a join of more than two streams",
            detail="Combinations of rows from before the activation of the query are not stored.",
            hint="Write backfill: none: the query then gets all combinations of rows that arrive later.",
            path=("backfill",),
        )
    if query.counts_rows:
        raise UnsupportedCql(
            "backfill: state is not supported for a query with a ROWS window",
            hint='Send "backfill": "none": the query then begins with new rows.',
            path=("backfill",),
        )


def _bind(
    cql: str, statement: Statement, scope: Scope, name: str, query_id: int, backfill: Backfill
) -> Query:
    meaning = join_meaning(statement, scope)
    conditions = _classified(statement, scope, meaning)
    keys = _keys(scope, statement, conditions)
    steps = None
    if meaning.kind == "inner" and not _bounds_time(statement, conditions):
        steps = ordered_windows(scope, keys, conditions.residuals)
    windows, distance = _windows(statement, scope, conditions, meaning) if steps is None else (steps, [])
    residuals = [*conditions.residuals, *distance]
    if not keys:
        _check_joined(scope, statement, conditions)
    clocks: dict[SideName, Clock] = {"a": "order", "b": "order"}
    if steps is None:
        clocks = row_clocks(
            scope, meaning.kind, [(a, b) for a, b, _ in keys], bounded=conditions.bounds_at is not None
        )
    if statement.group:
        refuse_announcement(statement, scope.written, "groups")
    grouped = bind_grouping(statement, scope, [(a, b) for a, b, _ in keys], clocks)
    if grouped is None:
        grouping = None
        outputs, output_columns = bind_outputs(statement, scope, meaning.null_side)
        pairs = [(a, b) for a, b, _ in keys]
        outputs = with_announcement(outputs, statement, scope, pairs, meaning.kind, clocks)
        output_columns = output_columns.union(*(output.columns or () for output in outputs))
    else:
        grouping, outputs = grouped
        output_columns = frozenset(grouping.columns)
    filters = {side: canonical(parts) for side, parts in conditions.filters.items()}
    residual = canonical(residuals)
    conditions_of_rows = [text.sql for text in (*filters.values(), residual) if text.sql != ALWAYS]
    of_results = [output.sql for output in outputs if "WHEN" in output.sql]
    if grouping is not None:
        of_results += [each.argument for each in grouping.aggregates if "WHEN" in each.argument]
        of_results += [grouping.having] if grouping.having else []
    check_size([*conditions_of_rows, *of_results])
    if NEVER in (residual.sql, *(filter_.sql for filter_ in filters.values())):
        filters, residual = _never(meaning, filters)
    read = output_columns | columns_of([*filters.values(), residual])
    if steps is not None:
        read |= {(this.side, this.stream.event_time) for this in scope.written}
    query = Query(
        id=query_id,
        name=name,
        cql=cql,
        a=_side(scope, "a", windows, clocks, filters["a"], read),
        b=_side(scope, "b", windows, clocks, filters["b"], read),
        key=tuple((a, b) for a, b, _ in keys),
        key_types=tuple(type_ for _, _, type_ in keys),
        residual=residual.sql if residual.sql != ALWAYS else None,
        outputs=outputs,
        backfill=backfill,
        kind=meaning.kind,
        preserved=meaning.preserved,
        grouping=grouping,
    )
    refuse_backfill(query, backfill)
    refuse_horizon(query, scope.written)
    return query


def _never(meaning: JoinMeaning, filters: Mapping[SideName, Typed]) -> tuple[dict[SideName, Typed], Typed]:
    """Return filters and residual of a query that makes no pairs; only rows that are results pass them."""
    never = Typed(NEVER, "boolean")
    if not meaning.keeps_absent:
        return dict.fromkeys(filters, never), canonical([])
    if len(meaning.preserved) == 2:
        return dict(filters), never
    return {side: kept if side in meaning.preserved else never for side, kept in filters.items()}, canonical(
        []
    )


def _side(
    scope: Scope,
    side: SideName,
    windows: Mapping[SideName, int],
    clocks: Mapping[SideName, Clock],
    filter_: Typed,
    read: frozenset[tuple[SideName, str]],
) -> Side:
    """Make one side of the query."""
    this = scope.side(side)
    return Side(
        stream_id=this.stream.id,
        stream=this.stream.name,
        alias=this.alias,
        window_us=windows[side],
        filter=filter_.sql if filter_.sql != ALWAYS else None,
        filter_columns=tuple(sorted(column for _, column in filter_.columns)),
        columns=tuple(sorted(column for owner, column in read if owner == side)),
        clock=clocks[side],
    )


# Conditions


def _classified(statement: Statement, scope: Scope, meaning: JoinMeaning) -> _Conditions:
    """Type-check the conjuncts and sort them into keys, bounds, filters and residuals."""
    found = _Conditions()
    for identifier in statement.using:
        _add_using(scope, found, identifier)
    # A row that fails a condition in ON has no partner. It must not be dropped before it is known to be
    # unmatched.
    kept = meaning.preserved if meaning.keeps_absent else ()
    for conjunct in meaning.on:
        _classify(conjunct, scope, found, kept)
    for conjunct in meaning.where:
        (side,) = meaning.preserved
        found.filters[side].append(compile_condition(conjunct, scope, bare))
    return found


def _classify(conjunct: exp.Expr, scope: Scope, found: _Conditions, kept: Sequence[SideName]) -> None:
    """Add a conjunct to ``found`` as key, bound, filter or residual; sides in ``kept`` get no filter."""
    pair = key_columns(conjunct, scope)
    bounds = time_bounds(conjunct, scope)
    if pair is not None and bounds is not None:
        found.equal_times.append((pair, conjunct))
    elif pair is not None:
        _add_key(scope, found, pair, conjunct)
        return
    value = compile_condition(conjunct, scope)
    if bounds is not None:
        found.bounds = found.bounds.intersected(bounds)
        found.bounds_at = conjunct
        if found.bounds.empty:
            raise InvalidWindow(
                "no pair of rows is in the window",
                detail="The conditions on the event times exclude each other.",
                hint=f"Write {_EXAMPLE_BOUNDS}.",
                at=found.bounds_at,
            )
        return
    if compares_times(conjunct, scope):
        found.no_bounds.append(conjunct)
    if len(value.sides) == 1 and value.sides.isdisjoint(kept):
        (side,) = value.sides
        found.filters[side].append(compile_condition(conjunct, scope, bare))
    else:
        found.residuals.append(value)


def _add_key(scope: Scope, found: _Conditions, pair: tuple[str, str], node: exp.Expr) -> None:
    """Add two equal columns to the key; raises KeyTypeMismatch if their types cannot be joined."""
    a, b = scope.a.stream.column(pair[0]), scope.b.stream.column(pair[1])
    if a is None or b is None:
        raise LookupError(f"key columns {pair} were resolved before")
    common = key_type(a.type, b.type)
    if common is None:
        names = f"{scope.a.alias}.{a.name}", f"{scope.b.alias}.{b.name}"
        raise key_mismatch(names, (a.type, b.type), node)
    found.keys[pair] = (a.name, b.name, common)


def _add_using(scope: Scope, found: _Conditions, identifier: exp.Identifier) -> None:
    """Add the columns that a name in USING makes equal to the key."""
    names = []
    for side in (scope.a, scope.b):
        column = side.stream.column(identifier.name)
        if column is None:
            raise UnknownColumn(
                f'column "{identifier.name}" does not exist in stream "{side.stream.name}"',
                hint=nearest_or_known(identifier.name, [c.name for c in side.stream.columns], "column"),
                at=identifier,
            )
        names.append(column.name)
    _add_key(scope, found, (names[0], names[1]), identifier)


def _keys(scope: Scope, statement: Statement, found: _Conditions) -> list[_KeyPair]:
    """Return the column pairs of the key, sorted; equated event times belong to it only without others."""
    if not found.keys:
        for pair, node in found.equal_times:
            _add_key(scope, found, pair, node)
    return sorted(found.keys.values())


def _check_joined(scope: Scope, statement: Statement, found: _Conditions) -> None:
    """Refuse a query that would pair all rows of one stream with all rows of the other; CROSS JOIN may do so.

    Raises:
        NoEquiKey: No condition compares the streams.
    """
    if statement.form.cross or found.bounds_at is not None:
        return
    if any(len(residual.sides) == 2 for residual in found.residuals):
        return
    first, second = scope.written
    place = "WHERE" if statement.form.kind == "inner" else "ON"
    if statement.form.asked_by != "JOIN":
        place = "the WHERE of the subquery"
    shared = [c.name for c in first.stream.columns if _joins(c.name, c.type, second.stream)]
    shared = [name for name in shared if name.lower() != first.stream.event_time.lower()]
    column = shared[0] if shared else "key"
    every = f", or write {first.stream.name} CROSS JOIN {second.stream.name} for all pairs"
    raise NoEquiKey(
        f'no condition joins stream "{second.stream.name}" to stream "{first.stream.name}"',
        detail="Every row of one window would be paired with every row of the other.",
        hint=f"Add {first.alias}.{column} = {second.alias}.{column} to {place}"
        f"{every if statement.form.kind == 'inner' else ''}.",
        at=second.source.at,
    )


def _joins(name: str, type_: str, other: Stream) -> bool:
    """Return whether the other stream has a column of this name that could be the key."""
    column = other.column(name)
    return column is not None and key_type(type_, column.type) is not None


# Windows


def _bounds_time(statement: Statement, found: _Conditions) -> bool:
    """Return whether a query states a window or bounds the distance of event times."""
    written = [statement.window, statement.within, *(source.window for source in statement.sources)]
    return any(window is not None for window in written) or found.bounds_at is not None


def _windows(
    statement: Statement, scope: Scope, found: _Conditions, meaning: JoinMeaning
) -> tuple[dict[SideName, int], list[Typed]]:
    """Return the windows of both sides, and a residual if their distances d do not include zero.

    Window W_A alone admits 0 <= d < W_A, and W_B alone admits 0 <= -d < W_B. Together they admit the
    distances from 1 - W_B to W_A - 1. Predicates narrow that interval.
    """
    given = _given_windows(statement, scope)
    written = Bounds(
        None if given["b"] is None else 1 - given["b"],
        None if given["a"] is None else given["a"] - 1,
    )
    allowed = written.intersected(found.bounds)
    unbounded = [side for side, bound in (("a", allowed.high_us), ("b", allowed.low_us)) if bound is None]
    if unbounded:
        _refuse_no_bound(found.no_bounds)
        missing = [this for this in scope.written if this.side in unbounded]
        could_be_ordered = meaning.kind == "inner" and len(missing) == 2
        by_order = order_hint(scope, found.keys.values()) if could_be_ordered else ""
        names = " and ".join(f'"{this.stream.name}"' for this in missing)
        raise NoWindow(
            f"stream {names} has no window" if len(missing) == 1 else f"streams {names} have no window",
            detail="Without a window, rows would have to be kept forever."
            if meaning.kind == "inner" or missing[0].side not in meaning.preserved
            else "Without a window, a row could still find a partner at any later time.",
            hint=f"Write {missing[0].stream.name} [RANGE 5 MINUTES], or bound the event times from both "
            f"sides: {_EXAMPLE_BOUNDS}.{by_order}",
            at=missing[0].source.at,
        )
    allowed = allowed.intersected(_retained(scope))
    low, high = allowed.low_us or 0, allowed.high_us or 0
    if allowed.empty:
        raise InvalidWindow(
            "no pair of rows is in the window",
            detail="The conditions on the event times exclude every pair that the windows in FROM and the "
            "retain of the streams allow.",
            hint="Widen the windows in FROM, or leave them out.",
            at=found.bounds_at,
        )
    windows: dict[SideName, int] = {"a": max(high, 0) + 1, "b": max(-low, 0) + 1}
    return {side: min(length, UNBOUNDED_US) for side, length in windows.items()}, _distance(scope, low, high)


def _retained(scope: Scope) -> Bounds:
    """Return the bounds on d that result from the ``retain`` of both streams."""
    most = {
        this.side: this.stream.retain_us
        for this in scope.written
        if this.source.window is None or this.source.window.clock == "time"
    }
    a, b = most.get("a"), most.get("b")
    return Bounds(None if b is None else 1 - b, None if a is None else a - 1)


def _refuse_no_bound(compared: Sequence[exp.Expr]) -> None:
    """Refuse a comparison of event times that was probably meant as a window.

    Raises:
        InvalidWindow: The query has such a comparison, and no windows in FROM. With windows, the comparison
            would be an ordinary condition.
    """
    for node in compared:
        months = months_in(node)
        if months is not None:
            raise InvalidWindow(
                "months and years have no fixed length",
                hint=f"Write the bound in days: INTERVAL '{_days(months)}' DAY; or give the streams windows "
                "in FROM.",
                at=months,
            )
        raise InvalidWindow(
            "the condition on the event times is not a window",
            detail="A window compares the event time of one stream with the event time of the other, plus or "
            "minus intervals of fixed length.",
            hint=f"Write {_EXAMPLE_BOUNDS}, or give the streams windows in FROM.",
            at=node,
        )


def _days(months: exp.Interval) -> int:
    """Return the approximate number of days in an interval of months."""
    return abs(int(months.meta["duration"].months)) * 365 // 12


def _given_windows(statement: Statement, scope: Scope) -> dict[SideName, int | None]:
    """Return the window W written for each side in FROM, in WITHIN or at the end; None if it has none."""
    given: dict[SideName, int | None] = {}
    for position, this in enumerate(scope.written):
        window = this.source.window or statement.window
        if statement.within is not None:
            window = statement.within[position]
        given[this.side] = window.length_us if window is not None else None
    return given


def _distance(scope: Scope, low: int, high: int) -> list[Typed]:
    """Return a residual on the distance d if the interval from ``low`` to ``high`` does not contain zero."""
    a, b = scope.a.stream.event_time, scope.b.stream.event_time
    text = f"TRY(epoch_us({qualified('b', b)}) - epoch_us({qualified('a', a)}))"
    columns: frozenset[tuple[SideName, str]] = frozenset({("a", a), ("b", b)})
    if low <= 0 <= high:
        return []
    operator, bound = (">=", low) if low > 0 else ("<=", high)
    limit = Operand(str(bound), constant=Constant.decimal(str(bound)))
    predicate = compared(Operand(text, columns), operator, limit)
    return [Typed(f"{text} {operator} {bound}", "boolean", columns, form="comparison", predicate=predicate)]
