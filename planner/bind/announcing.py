"""Result punctuations: the column ``_punctuation`` of a select list.

    SELECT a.item_id AS item, b.price, _punctuation FROM ...
      ordinary result       7     2.50   NULL
      result punctuation    NULL  NULL   {"item":7}       no later result has 7 as its item

A result punctuation is stored in the results, as a joined pair is. It has no event time, so it comes after
the pairs of its batch. Apart from ``_punctuation``, only its key columns have values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from sqlglot import exp

from catalog.sql_text import text_literal
from catalog.values.query import PUNCTUATION_OUTPUT, Clock, JoinKind, Output
from planner.bind.outputs import is_announcement
from planner.errors import UnsupportedCql
from planner.expressions.expressions import qualified
from planner.sql.scopes.scope import Scope, SideName, SideScope
from planner.sql.statement import Statement

#: SQL that writes a result value as JSON, by the type of the value. For types that are missing here, DuckDB's
#: own JSON text is used.
_JSON: Mapping[str, str] = {
    "timestamp": "'\"' || strftime({0}, '%Y-%m-%dT%H:%M:%S.%fZ') || '\"'",
    "date": "'\"' || CAST({0} AS VARCHAR) || '\"'",
    "decimal": "'\"' || CAST({0} AS VARCHAR) || '\"'",
    "double": "CASE WHEN isfinite({0}) THEN CAST(to_json({0}) AS VARCHAR) WHEN isnan({0}) THEN '\"NaN\"' "
    "WHEN {0} > 0 THEN '\"Infinity\"' ELSE '\"-Infinity\"' END",
}


def refuse_announcement(statement: Statement, sides: Sequence[SideScope], construct: str) -> None:
    """Refuse a query if it selects ``_punctuation``; called for kinds of queries without result punctuations.

    Args:
        statement: The query.
        sides: Streams of the query.
        construct: Kind of the query, for the error text.

    Raises:
        UnsupportedCql: The query selects ``_punctuation``.
    """
    for node in statement.select:
        if is_announcement(node, sides):
            _refuse(
                f"of {construct}",
                "Select it only in an inner join of two streams with time windows and a key.",
                node,
            )


def with_announcement(
    outputs: tuple[Output, ...],
    statement: Statement,
    scope: Scope,
    keys: Sequence[tuple[str, str]],
    kind: JoinKind,
    clocks: Mapping[SideName, Clock],
) -> tuple[Output, ...]:
    """Return the result columns; ``_punctuation``, if selected, gets the expression that computes it.

    Args:
        outputs: The result columns.
        statement: The query.
        scope: Names that the query may use.
        keys: Join key: pairs of a column of side a and the equal column of side b.
        kind: Kind of the join.
        clocks: Clock that measures the windows of each side.

    Raises:
        UnsupportedCql: The query cannot have result punctuations, or does not select its key.
    """
    asked = [node for node in statement.select if is_announcement(node, scope.written)]
    if not asked:
        return outputs
    if kind != "inner":
        refuse_announcement(statement, scope.written, "an outer, semi or anti join")
    if any(clock != "time" for clock in clocks.values()):
        refuse_announcement(statement, scope.written, "a join without time windows")
    if not keys:
        refuse_announcement(statement, scope.written, "a join without an equal key")
    values = []
    columns: list[tuple[SideName, str]] = []
    for a, b in keys:
        pair: tuple[tuple[SideName, str], ...] = (("a", a), ("b", b))
        columns += pair
        found = [
            o for o in outputs if o.columns in tuple((of,) for of in pair) and o.sql in map(_plain, pair)
        ]
        if not found:
            key = f"{scope.a.alias}.{a}"
            hint = f"Select the key, too: SELECT {key}, {PUNCTUATION_OUTPUT} ..."
            _refuse(f"without the key column {key}", hint, asked[0])
        values.append(text_literal(_json_text(found[0].name) + ":") + f" || {_json_value(found[0])}")
    pattern = " || ',' || ".join(values)
    sql = f"CASE WHEN r.\"_event_time\" IS NULL THEN '{{' || {pattern} || '}}' END"
    announcing = Output(PUNCTUATION_OUTPUT, sql, "string", tuple(sorted(set(columns))))
    return tuple(announcing if output.name == PUNCTUATION_OUTPUT else output for output in outputs)


def _plain(column: tuple[SideName, str]) -> str:
    return qualified(*column)


def _json_text(name: str) -> str:
    r"""Return a name as a JSON string.

    >>> print(_json_text('a "b"'))
    "a \"b\""
    """
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _json_value(output: Output) -> str:
    """Return SQL for the value of a result column as JSON."""
    value = f"TRY_CAST({output.sql} AS {output.type})"
    text = _JSON.get(output.type.partition("(")[0], "CAST(to_json({0}) AS VARCHAR)")
    return f"coalesce({text.format(value)}, 'null')"


def _refuse(construct: str, hint: str, node: exp.Expr) -> NoReturn:
    raise UnsupportedCql(
        f"{PUNCTUATION_OUTPUT} {construct} is not supported",
        detail="In a result punctuation, this column contains the key for which no later result follows.",
        hint=hint,
        at=node,
    )
