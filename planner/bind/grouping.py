"""GROUP BY and HAVING: the groups into which a query divides its pairs.

    SELECT k, TUMBLE(1 HOUR) AS hour, SUM(b.v) / 2 AS half ... GROUP BY k, TUMBLE(1 HOUR) HAVING COUNT(*) > 2
           |                          |
           g."key_0"   g."tumble"     g."sum_4f2c81d09a3b" / 2

The arguments of aggregates are expressions over one pair. The select list and HAVING are expressions over
the values of a group: its key, interval and aggregates (``values.groups.grouping``). The compiler treats
these values like columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, cast

from sqlglot import exp

from catalog.sql_text import quoted
from catalog.values.groups.grouping import (
    CLOSED_BY,
    COUNT_ALL,
    TUMBLE,
    Aggregate,
    AggregateFunction,
    Grouping,
    key_name,
)
from catalog.values.query import Clock, Output
from catalog.values.stream import Column
from planner.bind.outputs import OutputItem, outputs_of, typed_output
from planner.errors import InvalidOutput, UnsupportedCql
from planner.expressions.expressions import compile_condition, compile_expression
from planner.expressions.functions import AGGREGATES
from planner.expressions.types.column_types import decimal_parts, duckdb_type, is_numeric
from planner.sql.dialect import cql
from planner.sql.scopes.scope import ResolvedColumn, Scope, SideName
from planner.sql.statement import Statement

#: Result column with the event that closed the group: a watermark or a punctuation.
CLOSED_BY_COLUMN = "_closed_by"
#: Maximum number of digits of a decimal argument of SUM and AVG. The sum has 38 digits, so only a sum over
#: more than 10^10 pairs can overflow.
_MOST_SUMMED_DIGITS = 28

_VALUE = "value of a group"
_EXAMPLE = "GROUP BY {key}, TUMBLE(1 HOUR)"
_SUPPORTED = ("COUNT", "SUM", "AVG", "MIN", "MAX")


def bind_grouping(
    statement: Statement,
    scope: Scope,
    keys: Sequence[tuple[str, str]],
    clocks: Mapping[SideName, Clock],
) -> tuple[Grouping, tuple[Output, ...]] | None:
    """Return the grouping of a query and the result columns over its groups, or None without GROUP BY.

    Args:
        statement: The query.
        scope: Names that the query may use.
        keys: Join key: pairs of a column of side a and the equal column of side b.
        clocks: Clock that measures the windows of each side.

    Raises:
        UnsupportedCql: The query groups by something other than the key and TUMBLE, or has an aggregate that
            is not supported.
        InvalidOutput: Two result columns have the same name, or one has a reserved name or no type.
    """
    if not statement.group:
        _refuse_ungrouped(statement.select, statement.having, scope, keys)
        return None
    names = _Values(scope, keys)
    _check_form(statement, keys)
    if "order" in clocks.values():
        _refuse(
            "GROUP BY of a join without windows",
            "Write a time window after each stream, such as [RANGE 5 MINUTES].",
            statement.group[0],
        )
    names.tumble_us = _tumble(statement, scope, names, clocks)
    items = []
    for position, node in enumerate(statement.select, 1):
        plain = node.unalias()
        value = typed_output(compile_expression(names.over_values(plain), names, names.sql), plain)
        name = node.alias if isinstance(node, exp.Alias) else _name(plain, position)
        items.append(OutputItem(name, value, node, None))
    having = None
    if statement.having is not None:
        having = compile_condition(names.over_values(statement.having), names, names.sql).sql
    outputs = tuple(Output(o.name, o.sql, o.type, ()) for o in outputs_of(items))
    if any(o.name.lower() == CLOSED_BY_COLUMN for o in outputs):
        raise InvalidOutput(
            f'result column name "{CLOSED_BY_COLUMN}" is reserved', hint="Write another name after AS."
        )
    closed_by = Output(CLOSED_BY_COLUMN, f"g.{quoted(CLOSED_BY)}", "string", ())
    key: frozenset[tuple[SideName, str]] = frozenset(("a", a) for a, _ in keys)
    read = names.columns | key
    aggregates = tuple(names.aggregates[name] for name in sorted(names.aggregates))
    return Grouping(names.tumble_us, aggregates, having, tuple(sorted(read))), (*outputs, closed_by)


@dataclass(slots=True)
class _Values:
    """Names in expressions over a group: its key columns, and placeholders for aggregates and TUMBLE."""

    scope: Scope
    keys: Sequence[tuple[str, str]]
    tumble_us: int | None = None
    aggregates: dict[str, Aggregate] = field(default_factory=dict)
    columns: frozenset[tuple[SideName, str]] = frozenset()

    def key(self, node: exp.Column) -> tuple[SideName, int] | None:
        """Return the side and key position of a key column, or None if the column is not in the key."""
        pairs = [(a.lower(), b.lower()) for a, b in self.keys]
        shared = (node.name.lower(), node.name.lower())
        if not node.args.get("table") and shared in pairs:
            return "a", pairs.index(shared)
        found = self.scope.column(node)
        for number, (a, b) in enumerate(self.keys):
            if found.column.name == (a if found.side == "a" else b):
                return found.side, number
        return None

    def column(self, node: exp.Column) -> ResolvedColumn:
        """Return the group value (key column or placeholder) that a name denotes."""
        if _VALUE in node.meta:
            return ResolvedColumn("a", Column(node.name, node.meta[_VALUE]))
        key = self.key(node)
        if key is None:
            raise UnsupportedCql(
                f'column "{node.sql()}" outside of an aggregate is not supported',
                detail="Results are groups, and the pairs of a group differ in this column.",
                hint=f"Write it inside an aggregate: MIN({node.sql()}).",
                at=node,
            )
        side, number = key
        return ResolvedColumn(side, Column(key_name(number), self._type(side, number)))

    def sql(self, side: SideName, name: str) -> str:
        """Return the SQL of a group value; groups store side a's key, so a key column of side b is cast."""
        text = f"g.{quoted(name)}"
        if side == "a":
            return text
        return f"TRY_CAST({text} AS {duckdb_type(self._type(side, int(name.rpartition('_')[2])))})"

    def over_values(self, node: exp.Expr) -> exp.Expr:
        """Return an expression with its aggregates and TUMBLE replaced by values of the group."""
        return node.transform(self._value)

    def _type(self, side: SideName, number: int) -> str:
        column = self.scope.side(side).stream.column(self.keys[number][0 if side == "a" else 1])
        assert column is not None, "key columns were resolved before"
        return column.type

    def _value(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Filter):
            _refuse("FILTER", "Write the condition inside: SUM(CASE WHEN condition THEN x END).", node.this)
        if isinstance(node, exp.Star):
            _refuse("* of groups", "Name the key columns and aggregates one by one.", node)
        if not isinstance(node, exp.Anonymous):
            return node
        function = node.name.upper()
        if function == cql.TUMBLE:
            length_us = int(node.expressions[0].name)
            if length_us != self.tumble_us:
                _refuse(
                    "TUMBLE that differs from the one in GROUP BY",
                    "Write TUMBLE with the length that it has in GROUP BY.",
                    node,
                )
            return _placeholder(node, TUMBLE, "timestamp")
        if function in _SUPPORTED:
            return self._aggregate(node, function)
        if function in AGGREGATES:
            _refuse(
                f"the aggregate {function}",
                f"The supported aggregates are {', '.join(_SUPPORTED)}.",
                node,
            )
        return node

    def _aggregate(self, node: exp.Anonymous, function: str) -> exp.Expr:
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Distinct):
            _refuse(f"{function}(DISTINCT ...)", f"Write {function}(x).", node)
        if len(node.expressions) != 1:
            _refuse(f"{function} of {len(node.expressions)} arguments", f"Write {function}(x).", node)
        (argument,) = node.expressions
        if isinstance(argument, exp.Star):
            if function != "COUNT":
                _refuse(f"{function}(*)", f"Write {function}(x).", node)
            return _placeholder(node, COUNT_ALL, "bigint")
        value = typed_output(compile_expression(argument, self.scope), argument)
        if function in ("SUM", "AVG"):
            decimal = decimal_parts(value.type)
            if not is_numeric(value.type):
                _refuse(f"{function} of {value.type}", "Use a numeric argument.", argument)
            if decimal is not None and decimal[0] > _MOST_SUMMED_DIGITS:
                scale = min(decimal[1], _MOST_SUMMED_DIGITS)
                _refuse(
                    f"{function} of {value.type}",
                    f"Write CAST(x AS DECIMAL({_MOST_SUMMED_DIGITS},{scale})), so that the sum does not "
                    "overflow, or CAST(x AS DOUBLE).",
                    argument,
                )
        found = Aggregate(cast("AggregateFunction", function.lower()), value.sql, value.type)
        self.aggregates[found.name] = found
        self.columns |= value.columns
        return _placeholder(node, found.name, found.result_type)


def _placeholder(node: exp.Expr, name: str, type_: str) -> exp.Expr:
    column = exp.Column(this=exp.to_identifier(name))
    column.meta.update({**node.meta, _VALUE: type_})
    return column


def _name(node: exp.Expr, position: int) -> str:
    """Return the name of a result column without AS: the key column's name, or a name by position."""
    plain = node.unnest()
    return plain.name if isinstance(plain, exp.Column) else f"col{position}"


def _check_form(statement: Statement, keys: Sequence[tuple[str, str]]) -> None:
    if statement.form.kind != "inner":
        _refuse(
            "GROUP BY of an outer, semi or anti join", "Group the pairs of an inner join.", statement.group[0]
        )
    if not keys:
        _refuse(
            "GROUP BY of a join without an equal key",
            "Join the streams on an equal key, and group by it.",
            statement.group[0],
        )


def _tumble(
    statement: Statement, scope: Scope, names: _Values, clocks: Mapping[SideName, Clock]
) -> int | None:
    """Return the length of TUMBLE in µs, or None without TUMBLE; check the columns of GROUP BY.

    Apart from TUMBLE, GROUP BY must name exactly the columns of the join key. Without TUMBLE, punctuations of
    one stream must be able to close the key, and all windows must be time windows, because windows of rows do
    not use closed keys.
    """
    lengths: list[int] = []
    there: set[int] = set()
    for node in statement.group:
        plain = node.unnest()
        if isinstance(plain, exp.Anonymous) and plain.name.upper() == cql.TUMBLE:
            lengths.append(int(plain.expressions[0].name))
            if len(lengths) > 1:
                _refuse("a second TUMBLE", "Write TUMBLE once.", node)
            continue
        key = names.key(plain) if isinstance(plain, exp.Column) else None
        if key is None:
            _refuse(
                f"GROUP BY {node.sql()}",
                f"Group by the join key and an interval: {_example(scope, names.keys)}.",
                node,
            )
        there.add(key[1])
    missing = [a for number, (a, _) in enumerate(names.keys) if number not in there]
    if missing:
        _refuse(
            f"GROUP BY without the key column {missing[0]}",
            f"Group by all columns of the join key and an interval: {_example(scope, names.keys)}.",
            statement.group[0],
        )
    if lengths:
        return lengths[0]
    key_a, key_b = (frozenset(columns) for columns in zip(*names.keys, strict=True))
    if any(clock != "time" for clock in clocks.values()):
        _refuse(
            "GROUP BY without TUMBLE of a join with windows of rows",
            f"Write the length of the intervals, {_example(scope, names.keys)}, or use time windows.",
            statement.group[-1],
        )
    if not (scope.a.stream.closes_keys(key_a) or scope.b.stream.closes_keys(key_b)):
        raise UnsupportedCql(
            "GROUP BY without TUMBLE is not supported",
            detail="It is not known when a group is complete: no contract of "
            f'"{scope.a.stream.name}" or "{scope.b.stream.name}" lets punctuations close the key.',
            hint=f"Write the length of the intervals of event time: {_example(scope, names.keys)}; or give a "
            "stream a contract of punctuations on its key.",
            at=statement.group[-1],
        )
    return None


def _example(scope: Scope, keys: Sequence[tuple[str, str]]) -> str:
    return _EXAMPLE.format(key=", ".join(f"{scope.a.alias}.{a}" for a, _ in keys))


def _refuse_ungrouped(
    parts: Sequence[exp.Expr], having: exp.Expr | None, scope: Scope, keys: Sequence[tuple[str, str]]
) -> None:
    """Refuse aggregates, TUMBLE and HAVING of a query without GROUP BY."""
    if having is not None:
        _refuse("HAVING without GROUP BY", f"Write {_example(scope, keys)} before HAVING.", having)
    for part in parts:
        for node in part.find_all(exp.Anonymous):
            name = node.name.upper()
            if not isinstance(node.parent, exp.Window) and (name in _SUPPORTED or name == cql.TUMBLE):
                _refuse(f"{name} without GROUP BY", f"Write {_example(scope, keys)}.", node)


def _refuse(construct: str, hint: str, node: exp.Expr) -> NoReturn:
    raise UnsupportedCql(f"{construct} is not supported", hint=hint, at=node)
