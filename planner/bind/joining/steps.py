"""Binding of a join of more than two streams: steps, each the join of two sides.

    SELECT ... FROM A, B, C WHERE A.k = B.k AND B.k = C.k AND A.v > 1 AND A.w = C.w

    step 1   A join B on k, A filtered by v > 1       its pairs go to step 2
    step 2   (A, B) join C on k, residual A.w = C.w   its pairs are results

A combination of rows is a result if every two of its rows are within the windows of their streams. A pair
that a step passes to the next step has the newest event time of its rows, and the narrowest window of its
streams, so no combination is lost. The pair also carries the oldest event time of its rows if their windows
are equally long, otherwise the event time of each row (``Side.expires``). These times limit how much later a
row of the next step may be. How much earlier that row may be is tested as a residual if the window alone
would allow too much (``Distances.unsaid``). With only one event time per pair, results would depend on the
order of the steps (Kostowski, Claypool).

Steps with the same key find their rows in the same bucket and in the same batch. If the key of a step differs
from the key of the previous step, the pairs are exchanged between buckets (``planner.bind.keys.step_keys``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from catalog.values.query import UNBOUNDED_US, Clock, Query
from catalog.values.stream import Stream
from planner.bind.announcing import refuse_announcement
from planner.bind.canonical import ALWAYS, NEVER, canonical
from planner.bind.clocks.horizons import refuse_horizon
from planner.bind.clocks.orders import joins_orders
from planner.bind.clocks.rows import step_row_windows
from planner.bind.joining.bound_steps import BoundStep, BoundSteps, time_of
from planner.bind.joining.named_tree import NamedTree
from planner.bind.joining.step_conditions import (
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
from planner.bind.keys.distances import Distances
from planner.bind.keys.step_keys import (
    ChooseOrder,
    Joining,
    equal_columns,
    joining_order,
    step_keys,
)
from planner.bind.outputs import bind_outputs
from planner.bind.size import check_size
from planner.errors import (
    InvalidWindow,
    NoWindow,
)
from planner.expressions.expressions import bare, qualified
from planner.expressions.types.typed import Typed
from planner.predicates.conditions import Operand, compared
from planner.predicates.constants import Constant
from planner.sql.dialect.cql import Window
from planner.sql.scopes.scope import SideName
from planner.sql.scopes.step_scope import Origin, StepScope
from planner.sql.statement import Statement


def bind_steps(
    cql: str,
    statement: Statement,
    streams: Mapping[str, Stream],
    name: str,
    query_id: int,
    choose: ChooseOrder | None = None,
) -> Query:
    """Bind ``statement``, parsed from ``cql``, over more than two streams; for other arguments see ``bind``.

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
    windows = [statement.window, *(source.window for source in statement.sources)]
    windowed = found.bounds_at is not None or any(window is not None for window in windows)
    ordered = not windowed and joins_orders([this.stream for this in scope.written], common_key(scope, equal))
    if ordered:
        found.distances.all_equal()
    else:
        _close(scope, statement, found)
    tree = None if statement.tree is None else NamedTree(statement.tree, scope)
    counts_rows = _counts_rows(statement)
    joining = Joining(order)
    if tree is not None:
        timed = not ordered and not counts_rows
        joining = tree.joining(equal, found.linked, found.distances, timed=timed)
    elif choose is not None and by_keys and not counts_rows:
        # Costs are known only where each step has a key and no window counts rows.
        joining = choose(join_shape(scope, found, equal, ordered=ordered))
    scope = scope.in_order(joining.positions)
    keys = step_keys(joining.positions, [this.stream.id for this in scope.written], equal)
    counted = step_row_windows(scope, keys, equal)
    conditions = conditions_of(scope, found, keys)
    refuse_announcement(statement, scope.written, "a join of more than two streams")
    outputs, read = bind_outputs(statement, scope)
    clock: Clock = "order" if ordered else "time"
    # Without windows, equal keys are the only bound on distances.
    bounds = None if ordered else found.distances
    bound = {here.known: _step(here, conditions, bounds, counted) for here in _every_step(scope)}
    texts = [text.sql for step in bound.values() for text in (*step.filters.values(), step.residual)]
    check_size([*(t for t in texts if t != ALWAYS), *(o.sql for o in outputs if "WHEN" in o.sql)])
    whole = scope.known
    selected = {origin_of(scope, side, column) for side, column in read}
    bound[whole] = replace(bound[whole], read=bound[whole].read | selected)
    steps = BoundSteps(
        bound,
        {key.joined: key for key in keys},
        found.distances,
        counted,
        clock,
        NEVER in texts,
        joining.again,
    )
    query = steps.query(scope, outputs)
    if tree is not None:
        tree.check(query)
    refuse_horizon(query, scope.written)
    return replace(query, id=query_id, name=name, cql=cql)


def _every_step(scope: StepScope) -> Iterator[StepScope]:
    """Yield the scope of each step; the steps inside a group come before the step that joins the group."""
    for step in range(1, len(scope.order)):
        here = scope.at(step)
        if here.group is not None:
            yield from _every_step(here.group)
        yield here


def _counts_rows(statement: Statement) -> bool:
    """Return whether any stream has a window of rows."""
    return any(s.window is not None and s.window.clock != "time" for s in statement.sources)


def _step(
    scope: StepScope,
    conditions: Sequence[Condition],
    distances: Distances | None,
    counted: Mapping[int, Window],
) -> BoundStep:
    """Compile the conditions whose columns are all known at this step, but not at an earlier one.

    Args:
        scope: Names at the step.
        conditions: All conditions of the query on its rows.
        distances: Bounds on event times, or None in a join without windows.
        counted: Windows of rows, by the position of their stream in FROM.
    """
    filters: dict[SideName, list[Typed]] = {"a": [], "b": []}
    residuals: list[Typed] = []
    read: set[Origin] = set()
    for node, columns in conditions:
        positions = {position for position, _ in columns}
        # A condition on one side alone was already tested in the step that joined the streams of this side.
        if not positions <= scope.known or any(positions <= {*joined} for joined in _joined_before(scope)):
            continue
        if len(positions) == 1:
            (position,) = positions
            filters[scope.written[position].side].append(compiled(node, columns, scope, bare))
        else:
            residuals.append(compiled(node, columns, scope, qualified))
            read |= columns
    unsaid = [] if distances is None else distances.unsaid(scope.left, scope.right, counted)
    for bound in unsaid:
        earlier, later = (time_of(scope, p) for p in (bound.earlier, bound.later))
        residuals.append(_no_later(scope, earlier, later, bound.most_us))
        read |= {earlier, later}
    found = {side: canonical(parts) for side, parts in filters.items()}
    return BoundStep(found, canonical(residuals), frozenset(read))


def _joined_before(scope: StepScope) -> list[tuple[int, ...]]:
    """Return the sides of a step that are pairs of earlier steps, each as the positions of its streams."""
    return [side for side in (scope.left, scope.right) if len(side) > 1]


def _no_later(scope: StepScope, earlier: Origin, later: Origin, us: int) -> Typed:
    """Return the condition that event time ``later`` is at most ``us`` µs after event time ``earlier``."""
    columns = frozenset(scope.named(origin) for origin in (earlier, later))
    before, after = (qualified(*scope.named(origin)) for origin in (earlier, later))
    text = f"TRY(epoch_us({after}) - epoch_us({before}))"
    limit = Operand(str(us), constant=Constant.decimal(str(us)))
    predicate = compared(Operand(text, columns), "<=", limit)
    return Typed(f"{text} <= {us}", "boolean", columns, form="comparison", predicate=predicate)


# Windows


def _close(scope: StepScope, statement: Statement, found: StepConditions) -> None:
    """Add the windows to the bounds on event times, then add all implied bounds.

    Raises:
        NoWindow: The event times of two streams have no bound on their distance.
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
            detail="Without a window, rows would have to be kept forever.",
            hint=f"Write {this.stream.name} [RANGE 5 MINUTES], or WINDOW 5 MINUTES at the end.",
            at=this.source.at,
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
            at=found.bounds_at,
        )
