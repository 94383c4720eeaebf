"""Scalar expressions: their types are checked, and they are rendered as DuckDB SQL that never raises.

An expression that fails on a value is NULL. So every operator that may fail in DuckDB is rendered in a form
that gives NULL instead: ``TRY_CAST`` for casts, ``NULLIF(divisor, 0)`` for
division, ``TRY(...)`` around operators that can overflow. Only the operator that fails is NULL, not the whole
expression: ``1 / 0 IS NULL`` is true. Otherwise types and values are the same as in DuckDB, so that tests can
compare with DuckDB.

The text is canonical, so that equal filters of different queries are one filter: constants are on the right
of a comparison, the operands of AND, OR and IN are sorted, and literals are normalized.

Each kind of syntax node is compiled in its own module: ``literals``, ``arithmetic``, ``comparisons``,
``conditionals``, ``calls`` and ``syntax_forms``.
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


#: Parts of every node that contain operands, and further parts that handlers of some node types read. A node
#: with any other part is refused, because that part would be silently lost.
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
    # sqlglot's flags for division by zero and integer division are ignored, because DuckDB's rules apply.
    exp.Div: frozenset({"typed", "safe"}),
    exp.DPipe: frozenset({"safe"}),
}


#: Hints for syntax of other systems, which CQL does not have.
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
    """Resolver of the names in an expression over a query (``planner.sql.scopes``) or over one stream."""

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
        scope: Names that the expression may use.
        column_sql: Renders a column as SQL.

    Raises:
        UnknownColumn, AmbiguousColumn: A name refers to no column, or to several columns.
        UnknownFunction: A function does not exist.
        TypeMismatch: An operator or function does not take these types.
        UnsupportedCql: The expression has a construct that CQL does not support.
    """
    return _Compiler(scope, column_sql).compile(node)


def compile_condition(node: exp.Expr, scope: Names, column_sql: ColumnSql = qualified) -> Typed:
    """Return a condition as typed DuckDB SQL; also raises TypeMismatch for a type other than boolean."""
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
            self.refuse("OVER", "Write a window after the stream: [RANGE 5 MINUTES].", node)
        if isinstance(node, exp.Star | exp.Column):
            self.refuse("* inside an expression", "Write * or A.* alone in the select list.", node)
        if isinstance(node, exp.Alias):
            self.refuse("AS inside an expression", "Write AS after the whole expression.", node)
        hint = _HINTS.get(type(node), "Use comparisons, arithmetic and scalar functions.")
        self.refuse(f"{node.sql()}", hint, node)

    def mismatch(self, primary: str, hint: str, node: exp.Expr) -> NoReturn:
        raise TypeMismatch(primary, hint=hint, at=node)

    def refuse(self, construct: str, hint: str, node: exp.Expr) -> NoReturn:
        raise UnsupportedCql(f"{construct} is not supported", hint=hint, at=node)
