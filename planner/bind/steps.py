"""Binding of a join of more than two streams: a chain of steps, each the join of two sides.

    SELECT ... FROM A, B, C WHERE A.k = B.k AND B.k = C.k AND A.v > 1 AND A.w = C.w

    step 1   A join B on k, A filtered by v > 1       its pairs are handed on
    step 2   (A, B) join C on k, residual A.w = C.w   its pairs are results

A combination of rows is a result if every pair of rows in it is within the windows of both streams. An
intermediate has the newest event time of its rows, and the narrowest window of its streams, so no combination
is lost. Besides, it carries the oldest event time of its rows, if their windows are equally long, or else the
event time of each of them (``Side.expires``). These say how much later another row may be. How much earlier
it may be is a residual if a bound is narrower than the window (``Distances.unsaid``). If an intermediate kept
one time only, results would depend on the order of the steps (Kostowski, Claypool).

Steps with one key find their rows in the same bucket and batch. Where a step has another key than the step
before, the pairs between them are exchanged (``planner.bind.step_keys``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from catalog.steps import EXPIRES, TIME, exchanged_id, intermediate_id, intermediate_name
from catalog.values.query import OLDEST, RANK, UNBOUNDED_US, Clock, Output, Query, Side
from catalog.values.stream import Stream
from planner.bind.announcing import refuse_announcement
from planner.bind.canonical import ALWAYS, NEVER, canonical
from planner.bind.clocks.horizons import refuse_horizon
from planner.bind.clocks.orders import joins_orders
from planner.bind.clocks.rows import step_row_windows
from planner.bind.distances import Distances
from planner.bind.outputs import bind_outputs
from planner.bind.size import check_size
from planner.bind.step_conditions import (
    Condition,
    StepConditions,
    classified,
    common_key,
    compiled,
    conditions_of,
    join_shape,
    origin_of,
    refuse_key,
)
from planner.bind.step_keys import (
    ChooseOrder,
    StepKey,
    equal_columns,
    joining_order,
    step_keys,
)
from planner.errors import (
    InvalidWindow,
    NoWindow,
)
from planner.expressions.column_types import key_type
from planner.expressions.expressions import bare, qualified
from planner.expressions.typed import Typed
from planner.predicates.conditions import Operand, compared
from planner.predicates.constants import Constant
from planner.sql.cql import Window
from planner.sql.scope import SideName
from planner.sql.statement import Statement
from planner.sql.step_scope import Origin, StepScope


@dataclass(frozen=True, slots=True)
class _Step:
    """Conditions of a step.

    Attributes:
        filters: Filter of each side; the filter of an intermediate is added by ``catalog.steps.steps``.
        residual: Condition on both sides.
        read: Columns that its residual and results read.
    """

    filters: Mapping[SideName, Typed]
    residual: Typed
    read: frozenset[Origin]


def bind_steps(
    cql: str,
    statement: Statement,
    streams: Mapping[str, Stream],
    name: str,
    query_id: int,
    choose: ChooseOrder | None = None,
) -> Query:
    """Bind a statement over more than two streams; arguments as of ``bind``.

    Raises:
        InvalidInput: The text is not a query over these streams; subclasses are in ``planner.errors``.
    """
    scope = StepScope(statement, streams, len(statement.sources) - 1)
    found = classified(statement, scope)
    equal = equal_columns((left, right) for left, right, _ in found.equal)
    order = joining_order(len(scope.written), equal, found.linked)
    if order is None:
        refuse_key(scope, found, equal)
    by_keys = joining_order(len(scope.written), equal) is not None
    again: frozenset[int] = frozenset()
    windows = [statement.window, *(source.window for source in statement.sources)]
    windowed = found.bounds_at is not None or any(window is not None for window in windows)
    ordered = not windowed and joins_orders([this.stream for this in scope.written], common_key(scope, equal))
    if ordered:
        found.distances.all_equal()
    else:
        _close(scope, statement, found)
        # Costs are known of orders in which each step has a key and all windows are of time.
        if choose is not None and by_keys and not _counts_rows(statement):
            joining = choose(join_shape(scope, found, equal))
            order, again = joining.positions, joining.again
    scope = scope.in_order(order)
    keys = step_keys(order, next(p for p in order[:2] if scope.written[p].side == "a"), equal)
    counted = step_row_windows(scope, keys, equal)
    conditions = conditions_of(scope, found, keys)
    refuse_announcement(statement, scope.written, "a join of more than two streams")
    outputs, read = bind_outputs(statement, scope)
    last = scope.step
    clock: Clock = "order" if ordered else "time"
    # Without windows, equal keys are the only bound on distances.
    distances = None if ordered else found.distances
    bound = [_step(scope.at(step), conditions, distances, counted) for step in range(1, last + 1)]
    texts = [text.sql for step in bound for text in (*step.filters.values(), step.residual)]
    check_size([*(t for t in texts if t != ALWAYS), *(o.sql for o in outputs if "WHEN" in o.sql)])
    never = NEVER in texts
    reads = [step.read for step in bound]
    reads[-1] |= {origin_of(scope, side, column) for side, column in read}
    expiring = [_expiring(scope.at(step), distances, counted) for step in range(1, last + 1)]
    query: Query | None = None
    for step in range(1, last + 1):
        here = scope.at(step)
        later = frozenset().union(*reads[step:], *expiring[step:])
        known = (*here.left, here.right)
        owners = {owner for key in keys[step:] for owner, _ in key.parts}
        handed = {o for o in later | owners if o[0] in known}
        own = bound[step - 1]
        read_here = reads[step - 1]
        key = keys[step - 1]
        query = _query(
            here, own, key, read_here, handed, query, outputs, found.distances, never, clock, counted
        )
        query = replace(query, rests=step not in again)
    assert query is not None, "there are two steps at least"
    refuse_horizon(query, scope.written)
    return replace(query, id=query_id, name=name, cql=cql)


def _counts_rows(statement: Statement) -> bool:
    """Return whether some stream has a window of rows."""
    return any(s.window is not None and s.window.clock != "time" for s in statement.sources)


def _query(
    scope: StepScope,
    step: _Step,
    key: StepKey,
    read: frozenset[Origin],
    handed: set[Origin],
    left: Query | None,
    outputs: tuple[Output, ...],
    distances: Distances,
    never: bool,
    clock: Clock,
    counted: Mapping[int, Window],
) -> Query:
    """Return one step as a query of its two sides."""
    is_last = scope.step == len(scope.written) - 1
    carried = set(read) if is_last else read | handed
    positions: dict[SideName, tuple[int, ...]] = {"b": (scope.right,), "a": scope.left}
    if left is None:
        positions = {scope.written[p].side: (p,) for p in scope.order[:2]}
    right = positions["b"][0]
    window_a, window_b = distances.windows_us(positions["a"], right)
    pairs, types = [], []
    for owner, joined in key.parts:
        common = key_type(scope.type_of(owner), scope.type_of(joined))
        assert common is not None, "types were checked"
        pairs.append((scope.named(owner)[1], scope.named(joined)[1]))
        types.append(common)
    sides: dict[SideName, Side] = {}
    windows_us: dict[SideName, int] = {"a": window_a, "b": window_b}
    for side, window_us in windows_us.items():
        filter_ = Typed(NEVER, "boolean") if never else step.filters[side]
        handed_on = side == "a" and left is not None
        # The ranks of a stream's own rows are no column of it.
        needed = {
            scope.named(o)[1] for o in carried if o[0] in positions[side] and (handed_on or o[1] != RANK)
        }
        if clock == "order":
            needed.add(TIME if handed_on else scope.written[positions[side][0]].stream.event_time)
        rows = None if handed_on else counted.get(positions[side][0])
        length = window_us if rows is None else rows.length_us
        made = _side(scope, side, positions[side], length, filter_, needed, left, exchanged=key.exchanged)
        if clock == "time" and handed_on:
            made = _expires(scope, made, distances, counted)
        sides[side] = replace(made, clock=clock if rows is None else rows.clock)
    return Query(
        id=0,
        name="",
        cql="",
        a=sides["a"],
        b=sides["b"],
        key=tuple(pairs),
        key_types=tuple(types),
        residual=step.residual.sql if step.residual.sql not in (ALWAYS, NEVER) else None,
        outputs=outputs if is_last else _handed(scope, handed),
        left=left,
        hands_on=not is_last,
    )


def _side(
    scope: StepScope,
    side: SideName,
    positions: tuple[int, ...],
    window_us: int,
    filter_: Typed,
    columns: set[str],
    left: Query | None,
    *,
    exchanged: bool,
) -> Side:
    if side == "a" and left is not None:
        name = intermediate_name(left.a.stream, left.b.stream)
        made = intermediate_id(left.a.stream_id, left.b.stream_id, left.key, left.clocks)
        stream_id = exchanged_id(made) if exchanged else made
        alias = ", ".join(scope.written[position].alias for position in positions)
        return Side(stream_id, name, alias, window_us, None, (), tuple(sorted(columns)))
    this = scope.written[positions[0]]
    return Side(
        stream_id=this.stream.id,
        stream=this.stream.name,
        alias=this.alias,
        window_us=window_us,
        filter=filter_.sql if filter_.sql != ALWAYS else None,
        filter_columns=tuple(sorted(column for _, column in filter_.columns)),
        columns=tuple(sorted(columns | {column for _, column in filter_.columns})),
    )


def _expires(scope: StepScope, side: Side, distances: Distances, counted: Mapping[int, Window]) -> Side:
    """Return side a of a later step with what says when its rows expire."""
    ranks = {scope.named((i, RANK))[1]: counted[i].length_us - 1 for i in scope.left if i in counted}
    alike_us = distances.alike(scope.left, scope.right)
    later = (scope.at(step) for step in range(scope.step, len(scope.written)))
    columns = set(side.columns)
    if any(distances.alike(step.left, step.right) is not None for step in later):
        columns.add(OLDEST)
    if alike_us is not None:
        expires: tuple[tuple[str, int], ...] = ((OLDEST, alike_us),)
    else:
        ahead = distances.ahead(scope.left, scope.right)
        expires = tuple(sorted((scope.named(_time_of(scope, i))[1], us) for i, us in ahead.items()))
        columns |= {name for name, _ in expires}
        if not ranks and scope.right not in counted:
            columns.add(EXPIRES)
    columns |= ranks.keys()
    expires = tuple(sorted([*expires, *ranks.items()]))
    return replace(side, columns=tuple(sorted(columns)), expires=expires)


def _expiring(
    scope: StepScope, distances: Distances | None, counted: Mapping[int, Window]
) -> frozenset[Origin]:
    """Return the event times and ranks that say when the rows of side a of a step expire."""
    if distances is None or scope.step == 1:
        return frozenset()
    ranks = frozenset((i, RANK) for i in scope.left if i in counted)
    if distances.alike(scope.left, scope.right) is not None:
        return ranks
    return ranks | {_time_of(scope, i) for i in distances.ahead(scope.left, scope.right)}


def _time_of(scope: StepScope, position: int) -> Origin:
    return position, scope.written[position].stream.event_time


def _handed(scope: StepScope, handed: set[Origin]) -> tuple[Output, ...]:
    """Return the columns that a step hands on, by name."""
    outputs = []
    for origin in handed:
        side, name = scope.named(origin)
        columns = () if name == RANK else ((side, name),)
        outputs.append(Output(scope.handed_as(origin), qualified(side, name), scope.type_of(origin), columns))
    return tuple(sorted(outputs, key=lambda output: output.name))


def _step(
    scope: StepScope,
    conditions: Sequence[Condition],
    distances: Distances | None,
    counted: Mapping[int, Window],
) -> _Step:
    """Compile the conditions of a step: those whose columns are all known at this step, not before.

    Args:
        scope: Names at the step.
        conditions: Conditions on rows of the query.
        distances: Bounds on event times; None in a join without windows.
        counted: Windows of rows.
    """
    filters: dict[SideName, list[Typed]] = {"a": [], "b": []}
    residuals: list[Typed] = []
    read: set[Origin] = set()
    for node, columns in conditions:
        positions = {position for position, _ in columns}
        known = {*scope.left, scope.right}
        if not positions <= known or (scope.step > 1 and scope.right not in positions):
            continue
        if len(positions) == 1:
            (position,) = positions
            filters[scope.written[position].side].append(compiled(node, columns, scope, bare))
        else:
            residuals.append(compiled(node, columns, scope, qualified))
            read |= columns
    unsaid = [] if distances is None else distances.unsaid(scope.left, scope.right, counted)
    for bound in unsaid:
        earlier, later = (_time_of(scope, p) for p in (bound.earlier, bound.later))
        residuals.append(_no_later(scope, earlier, later, bound.most_us))
        read |= {earlier, later}
    found = {side: canonical(parts) for side, parts in filters.items()}
    return _Step(found, canonical(residuals), frozenset(read))


def _no_later(scope: StepScope, earlier: Origin, later: Origin, us: int) -> Typed:
    """Return the condition that one event time is at most ``us`` later than another one."""
    columns = frozenset(scope.named(origin) for origin in (earlier, later))
    before, after = (qualified(*scope.named(origin)) for origin in (earlier, later))
    text = f"TRY(epoch_us({after}) - epoch_us({before}))"
    limit = Operand(str(us), constant=Constant.decimal(str(us)))
    predicate = compared(Operand(text, columns), "<=", limit)
    return Typed(f"{text} <= {us}", "boolean", columns, form="comparison", predicate=predicate)


# Windows


def _close(scope: StepScope, statement: Statement, found: StepConditions) -> None:
    """Add the windows to the bounds, and all bounds that follow.

    Raises:
        NoWindow: Two streams have no bound.
        InvalidWindow: No combination of rows can be within all windows and bounds.
    """
    distances = found.distances
    for position, this in enumerate(scope.written):
        window = this.source.window or statement.window
        if window is not None:
            length_us = window.length_us if window.clock == "time" else UNBOUNDED_US
            for other in range(len(scope.written)):
                if other != position:
                    distances.bound(position, other, length_us - 1)
    distances.close()
    missing = distances.missing()
    if missing is not None:
        this = scope.written[missing[0]]
        raise NoWindow(
            f'stream "{this.stream.name}" has no window',
            detail="Without one, rows would have to be kept forever.",
            hint=f"Write {this.stream.name} [RANGE 5 MINUTES], or WINDOW 5 MINUTES at the end.",
            location=this.source.location,
        )
    for position, this in enumerate(scope.written):
        if this.source.window is not None and this.source.window.clock != "time":
            continue
        for other in range(len(scope.written)):
            if other != position and this.stream.retain_us is not None:
                distances.bound(position, other, this.stream.retain_us - 1)
    possible = distances.close()
    if not possible:
        raise InvalidWindow(
            "no combination of rows is in the window",
            detail="The conditions on the event times contradict each other or the windows in FROM.",
            hint="Widen the windows in FROM, or leave conditions out.",
            location=found.bounds_at,
        )
