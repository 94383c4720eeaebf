"""Scalar expressions: types checked, then rendered as DuckDB SQL that never raises.

"An expression that fails on a value is NULL" (design, Semantics). So every operator that may fail in DuckDB
is rendered in a form that gives NULL: ``TRY_CAST`` for casts, ``NULLIF(divisor, 0)`` for
division, ``TRY(...)`` around operators that can overflow. Failure is contained in the operator that fails:
``1 / 0 IS NULL`` is true. Otherwise types and values are the same as in DuckDB, so that DuckDB can serve as a
test oracle.

The text is canonical, so that equal filters of different queries are one filter: constants are on the right
of a comparison, AND, OR and IN are sorted, literals are normalised.

Each kind of node has its module: ``literals``, ``arithmetic``, ``comparisons``, ``conditionals``,
``calls`` and ``syntax_forms``.
"""

from __future__ import annotations

from typing import NoReturn, Protocol

from sqlglot import exp

from catalog.sql_text import quoted
from planner.errors import TypeMismatch, UnsupportedCql
from planner.expressions import arithmetic, calls, comparisons, literals, syntax_forms
from planner.expressions import conditionals as choices
from planner.expressions.types.typed import ColumnSql, Handlers, Typed
from planner.sql.scopes.scope import ResolvedColumn, SideName

_HANDLERS: Handlers = {
    **literals.HANDLERS,
    **arithmetic.HANDLERS,
    **comparisons.HANDLERS,
    **choices.HANDLERS,
    **calls.HANDLERS,
    **syntax_forms.HANDLERS,
}


#: Parts of a node that handlers read, besides operands. A part that no handler reads would be silently lost.
_OPERANDS = frozenset({"this", "expression", "expressions"})
_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"table", "db"}),
    exp.Literal: frozenset({"is_string"}),
    exp.Between: frozenset({"low", "high", "symmetric"}),
    exp.In: frozenset({"query", "unnest", "field"}),
    exp.Case: frozenset({"ifs", "default"}),
    exp.Cast: frozenset({"to"}),
    exp.TryCast: frozenset({"to", "safe", "requires_string"}),
    exp.Substring: frozenset({"start", "length"}),
    exp.Trim: frozenset({"position"}),
    exp.StrPosition: frozenset({"substr"}),
    # Divisions by zero or of integers have DuckDB's result, whatever sqlglot's dialect says.
    exp.Div: frozenset({"typed", "safe"}),
    exp.DPipe: frozenset({"safe"}),
}


#: Hints for syntax of other systems.
_HINTS: dict[type[exp.Expr], str] = {
    exp.BitwiseXor: "Write pow(x, y) for a power.",
    exp.Concat: "Write || between texts to join them.",
    exp.SimilarTo: "Write regexp_matches(text, pattern).",
    exp.Glob: "Write LIKE, or regexp_matches(text, pattern).",
    exp.AtTimeZone: "Leave it out: timestamps are UTC.",
    exp.Tuple: "Write a comparison of each pair, joined with AND.",
    exp.Placeholder: "Write the value itself.",
    exp.Parameter: "Write the value itself.",
}


class Names(Protocol):
    """Meaning of names in an expression: those of a query (``planner.sql.scopes``), or of one stream."""

    def column(self, node: exp.Column) -> ResolvedColumn:
        """Return the column to which a name refers."""


def bare(side: SideName, column: str) -> str:
    """Render a column for a filter: ``"v"``."""
    return quoted(column)


def qualified(side: SideName, column: str) -> str:
    """Render a column for a residual or an output: ``a."v"``."""
    return f"{side}.{quoted(column)}"


def compile_expression(node: exp.Expr, scope: Names, column_sql: ColumnSql = qualified) -> Typed:
    """Return an expression as typed DuckDB SQL.

    Args:
        node: Parsed expression.
        scope: Names it may use.
        column_sql: How columns are rendered.

    Raises:
        UnknownColumn, AmbiguousColumn: A name does not resolve.
        UnknownFunction: There is no such function.
        TypeMismatch: An operator or function does not take these types.
        UnsupportedCql: CQL does not support a construct.
    """
    return _Compiler(scope, column_sql).compile(node)


def compile_condition(node: exp.Expr, scope: Names, column_sql: ColumnSql = qualified) -> Typed:
    """Return a condition as typed DuckDB SQL; also raises TypeMismatch if it is not a condition."""
    return comparisons.condition(_Compiler(scope, column_sql), node, "WHERE")


class _Compiler:
    """Compiles the expressions of one query."""

    def __init__(self, scope: Names, column_sql: ColumnSql) -> None:
        self.scope = scope
        self.column_sql = column_sql

    def compile(self, node: exp.Expr) -> Typed:
        if isinstance(node, exp.Paren):
            return self.compile(node.this)
        known = _OPERANDS | _PARTS.get(type(node), frozenset())
        if any(value and name not in known for name, value in node.args.items()):
            self._refuse_node(node)
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            return self._column(node)
        handler = _HANDLERS.get(type(node))
        if handler is None:
            self._refuse_node(node)
        return handler(self, node)

    def _column(self, node: exp.Column) -> Typed:
        found = self.scope.column(node)
        name = found.column.name
        return Typed(self.column_sql(found.side, name), found.column.type, frozenset({(found.side, name)}))

    def _refuse_node(self, node: exp.Expr) -> NoReturn:
        if isinstance(node, exp.Window):
            self.refuse("OVER", "Write a window behind the stream: [RANGE 5 MINUTES].", node)
        if isinstance(node, exp.Star | exp.Column):
            self.refuse("* inside an expression", "Write * or A.* alone in the select list.", node)
        if isinstance(node, exp.Alias):
            self.refuse("AS inside an expression", "Write AS behind the whole expression.", node)
        hint = _HINTS.get(type(node), "Use comparisons, arithmetic and scalar functions.")
        self.refuse(f"{node.sql()}", hint, node)

    def mismatch(self, primary: str, hint: str, node: exp.Expr) -> NoReturn:
        raise TypeMismatch(primary, hint=hint, at=node)

    def refuse(self, construct: str, hint: str, node: exp.Expr) -> NoReturn:
        raise UnsupportedCql(f"{construct} is not supported", hint=hint, at=node)
