"""Sorting of the conditions of a join of more than two streams: equal columns, bounds and other conditions.

WHERE a.k = b.k AND b.k = c.k AND c.ts <= a.ts + INTERVAL '1' MINUTE AND a.v > 1 AND a.w < c.w

equal columns   a.k = b.k, b.k = c.k       become keys of steps (``keys.step_keys``)
bounds          c.ts - a.ts <= 1 minute    narrow the windows (``keys.distances``)
conditions      a.v > 1, a.w < c.w         tested at the first step that has all of their columns
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from planner.bind.canonical import ALWAYS, canonical
from planner.bind.keys.distances import Distances
from planner.bind.keys.step_keys import Equals, JoinShape, StepKey, implied
from planner.bind.pieces import key_mismatch, pieces
from planner.bind.time_bounds import time_bounds
from planner.errors import AmbiguousColumn, KeyTypeMismatch, NoEquiKey, UnknownColumn, UnsupportedCql
from planner.expressions.expressions import bare, compile_condition
from planner.expressions.types.column_types import key_type
from planner.expressions.types.typed import ColumnSql, Typed
from planner.sql.scopes.scope import SideName
from planner.sql.scopes.step_scope import Origin, PairScope, StepScope
from planner.sql.statement import Statement

_EXAMPLE = (
    "FROM A [RANGE 5 MINUTES] a, B [RANGE 5 MINUTES] b, C [RANGE 5 MINUTES] c WHERE a.k = b.k AND b.k = c.k"
)

#: A conjunct that is tested on rows, and the columns that it reads.
Condition = tuple[exp.Expr, frozenset[Origin]]


@dataclass(slots=True)
class StepConditions:
    """Conjuncts of a query, sorted by how the query uses them.

    Attributes:
        equal: Pairs of equal columns of two streams, each with the syntax node of the condition.
        conditions: All other conditions on rows.
        linked: For each condition or bound on several streams, the positions of these streams.
        distances: Bounds on event times.
        bounds_at: Syntax node of the last bound, or None without bounds.
    """

    distances: Distances
    equal: list[tuple[Origin, Origin, exp.Expr]] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    linked: list[frozenset[int]] = field(default_factory=list)
    bounds_at: exp.Expr | None = None


def classified(statement: Statement, scope: StepScope) -> StepConditions:
    """Sort the conjuncts into equal columns, bounds and other conditions, and type-check them."""
    found = StepConditions(Distances(len(statement.sources)))
    for position, identifier in zip(statement.using_at, statement.using, strict=True):
        _add_using(scope, found, position, identifier)
    for conjunct in pieces([*statement.on, *statement.where], scope):
        value = compile_condition(conjunct, scope)
        read = frozenset(origin_of(scope, side, column) for side, column in value.columns)
        positions = sorted({position for position, _ in read})
        if len(positions) == 2:
            bounds = time_bounds(conjunct, PairScope(scope, *positions))
            if bounds is not None:
                first, second = positions
                found.distances.bound(first, second, bounds.high_us)
                found.distances.bound(second, first, None if bounds.low_us is None else -bounds.low_us)
                found.linked.append(frozenset(positions))
                found.bounds_at = conjunct
                continue
            if (pair := _equal_columns(conjunct, scope)) is not None:
                found.equal.append((*pair, conjunct))
                continue
        found.conditions.append((conjunct, read))
        if len(positions) > 1:
            found.linked.append(frozenset(positions))
    return found


def _equal_columns(node: exp.Expr, scope: StepScope) -> tuple[Origin, Origin] | None:
    """Return the two columns that a conjunct equates, or None if it is not an equality of two columns."""
    if not isinstance(node, exp.EQ):
        return None
    left, right = node.this.unnest(), node.expression.unnest()
    if not (isinstance(left, exp.Column) and isinstance(right, exp.Column)):
        return None
    return scope.origin(left), scope.origin(right)


def _add_using(scope: StepScope, found: StepConditions, position: int, identifier: exp.Identifier) -> None:
    """Add the equal columns of USING: one from the joined stream, one from an earlier stream."""
    here = scope.written[position]
    column = here.stream.column(identifier.name)
    before = [
        (p, c.name)
        for p in range(position)
        if (c := scope.written[p].stream.column(identifier.name)) is not None
    ]
    if column is None or not before:
        missing = [here] if column is None else scope.written[:position]
        raise UnknownColumn(
            f'column "{identifier.name}" does not exist in stream '
            + " or ".join(f'"{s.stream.name}"' for s in missing),
            hint="Write ON with the columns that are equal.",
            at=identifier,
        )
    same = {pair for left, right, _ in found.equal for pair in (left, right)}
    if len(before) > 1 and not same.issuperset(before):
        aliases = [f"{scope.written[p].alias}.{name}" for p, name in before]
        raise AmbiguousColumn(
            f'column "{identifier.name}" of USING is in several streams before it',
            hint=f"Write ON {aliases[0]} = {here.alias}.{column.name}.",
            at=identifier,
        )
    found.equal.append((before[0], (position, column.name), identifier))


def join_shape(
    scope: StepScope, found: StepConditions, equal: tuple[Equals, ...], *, ordered: bool
) -> JoinShape:
    """Return the parts of a query from which the join order is chosen.

    Args:
        scope: Names of the query.
        found: Conditions of the query.
        equal: Sets of equal columns.
        ordered: Whether the streams are joined by their order, without windows.
    """
    filters: list[tuple[str, tuple[str, ...]] | None] = []
    everyone = range(len(scope.written))
    for position in everyone:
        # In the first step, the columns of both streams keep their own names.
        first = scope.in_order((position, *(p for p in everyone if p != position))).at(1)
        own = [compiled(n, read, first, bare) for n, read in found.conditions if _only(read) == position]
        passing = canonical(own)
        columns = tuple(sorted(column for _, column in passing.columns))
        filters.append(None if passing.sql == ALWAYS else (passing.sql, columns))
    streams, aliases = zip(*((this.stream, this.alias) for this in scope.written), strict=True)
    return JoinShape(streams, aliases, tuple(filters), equal, found.distances, ordered)


def _only(read: frozenset[Origin]) -> int | None:
    """Return the position of the only stream that a condition reads, or None if it reads none or several."""
    positions = {position for position, _ in read}
    return positions.pop() if len(positions) == 1 else None


def conditions_of(scope: StepScope, found: StepConditions, keys: Sequence[StepKey]) -> list[Condition]:
    """Type-check and return all conditions on rows, including equal columns that are in no key."""
    held = implied(keys)
    conditions = list(found.conditions)
    for left, right, node in found.equal:
        _check_types(scope, left, right, node)
        if not any({left, right} <= columns for columns in held):
            conditions.append((node, frozenset((left, right))))
    _check_one_type(scope, keys)
    return conditions


def common_key(scope: StepScope, equal: Sequence[Equals]) -> list[tuple[str, ...]]:
    """Return the parts of a key that all streams share; each part is one column per stream, as in FROM."""
    everyone = range(len(scope.written))
    return [
        tuple(min(name for p, name in columns if p == position) for position in everyone)
        for columns in equal
        if {position for position, _ in columns} == set(everyone)
    ]


def refuse_key(scope: StepScope, found: StepConditions, equal: Sequence[Equals]) -> NoReturn:
    """Raise the error for a query with a stream that conditions do not connect to the other streams."""
    compared = [frozenset(p for p, _ in columns) for columns in equal] + found.linked
    for position, this in enumerate(scope.written):
        if not any(position in positions and len(positions) > 1 for positions in compared):
            other = scope.written[0 if position else 1]
            raise NoEquiKey(
                f'no condition joins stream "{this.stream.name}" to the other streams',
                detail="Every row of its window would be combined with every combination of rows of the "
                "other streams.",
                hint=f"Add {other.alias}.key = {this.alias}.key to WHERE.",
                at=this.source.at,
            )
    joined = {0}
    while more := {p for positions in compared if positions & joined for p in positions} - joined:
        joined |= more
    first = scope.written[0]
    this = next((s for p, s in enumerate(scope.written) if p not in joined), scope.written[-1])
    raise UnsupportedCql(
        f'no condition joins stream "{this.stream.name}" to stream "{first.stream.name}"',
        detail="In a join of more than two streams, equal columns or other conditions must connect every "
        "stream to every other stream, directly or through other streams.",
        hint=f"Add {first.alias}.key = {this.alias}.key, or register joins of two streams. An example: "
        f"{_EXAMPLE}.",
        at=this.source.at,
    )


def _check_types(scope: StepScope, left: Origin, right: Origin, node: exp.Expr) -> None:
    """Refuse equal columns whose types cannot be joined."""
    types = scope.type_of(left), scope.type_of(right)
    if key_type(*types) is None:
        first, second = (f"{scope.written[p].alias}.{name}" for p, name in (left, right))
        raise key_mismatch((first, second), types, node)


def _check_one_type(scope: StepScope, keys: Sequence[StepKey]) -> None:
    """Refuse a key of several steps if its column types could send equal values to different buckets."""
    numbers = dict.fromkeys(key.run for key in keys)
    runs = [[key for key in keys if key.run == number] for number in numbers]
    for run in runs if len(keys) > 1 else ():
        for parts in zip(*(key.parts for key in run), strict=True):
            columns = sorted({origin for part in parts for origin in part})
            types = [scope.type_of(origin) for origin in columns]
            integers = len(run[0].parts) == 1 and set(types) <= {"int", "bigint"}
            if len(run) > 1 and len(set(types)) > 1 and not integers:
                names = [
                    f"{scope.written[position].alias}.{name} ({t})"
                    for (position, name), t in zip(columns, types, strict=True)
                ]
                raise KeyTypeMismatch(
                    f"the key columns {', '.join(names)} have different types",
                    detail="In a join of more than two streams, equal key columns must have the same type. "
                    "In a key of one column, int and bigint count as the same type.",
                    hint="Declare the columns with one type when the streams are registered.",
                    at=scope.written[0].source.at,
                )


def origin_of(scope: StepScope, side: SideName, column: str) -> Origin:
    """Return the stream column whose values a column of a side contains."""
    for position in sorted(scope.known):
        for each in scope.written[position].stream.columns:
            if scope.named((position, each.name)) == (side, column):
                return position, each.name
    raise LookupError(f"column {column} of side {side} belongs to no stream")


def compiled(node: exp.Expr, columns: frozenset[Origin], scope: StepScope, column_sql: ColumnSql) -> Typed:
    """Compile a conjunct; an identifier of USING is compiled as the equality of its two columns."""
    if isinstance(node, exp.Identifier):
        left, right = (
            exp.column(exp.to_identifier(name), exp.to_identifier(scope.written[position].alias))
            for position, name in sorted(columns)
        )
        node = exp.EQ(this=left, expression=right)
    return compile_condition(node, scope, column_sql)
