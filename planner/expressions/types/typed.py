"""Compiled expressions (``Typed``), and definitions that all modules of the expression compiler use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol

from sqlglot import exp

from planner.expressions.types.column_types import duckdb_type
from planner.predicates.conditions import FALSE, TRUE, Condition, Operand, opaque
from planner.predicates.constants import Constant
from planner.sql.scopes.scope import SideName

#: Renders a column of a side as SQL.
ColumnSql = Callable[[SideName, str], str]


#: Conditions that are literals; NULL counts as FALSE, because rows pass only conditions that are TRUE.
_DECIDED: dict[str, Condition] = {"TRUE": TRUE, "FALSE": FALSE, "NULL": FALSE}


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression as DuckDB text, with its type.

    Attributes:
        sql: DuckDB text.
        type: Canonical column type, ``interval`` or ``null``.
        columns: Columns that the expression reads, with their sides.
        form: Kind of operand: an ``atom`` never needs parentheses, a ``comparison`` needs them except under
            AND and OR, and a ``compound`` always needs them.
        literal: Value of a string literal; None for any other expression.
        constant: Value of a literal whose comparisons are known exactly; None for any other expression.
        predicate: Condition that the expression represents, or None if its structure is not known.
    """

    sql: str
    type: str
    columns: frozenset[tuple[SideName, str]] = frozenset()
    form: Literal["atom", "comparison", "compound"] = "atom"
    literal: str | None = None
    constant: Constant | None = None
    predicate: Condition | None = None

    @property
    def operand(self) -> str:
        """The text as an operand, in parentheses if they are needed."""
        return self.sql if self.form == "atom" else f"({self.sql})"

    @property
    def condition(self) -> str:
        """The text as an operand of AND and OR."""
        return f"({self.sql})" if self.form == "compound" else self.sql

    @property
    def in_condition(self) -> Operand:
        """The expression as an operand of a condition."""
        return Operand(self.operand, self.columns, self.constant)

    @property
    def meaning(self) -> Condition:
        """Condition that a boolean expression represents; NULL is never TRUE."""
        if self.predicate is not None:
            return self.predicate
        return opaque(self.in_condition) if self.columns or self.sql not in _DECIDED else _DECIDED[self.sql]

    @property
    def sides(self) -> frozenset[SideName]:
        """Sides whose columns the expression reads."""
        return frozenset(side for side, _ in self.columns)


class Compiler(Protocol):
    """Interface that the compiler offers to handlers; each handler compiles one kind of syntax node."""

    column_sql: ColumnSql

    def compile(self, node: exp.Expr) -> Typed:
        """Return the node as typed SQL."""

    def mismatch(self, primary: str, hint: str, node: exp.Expr) -> NoReturn:
        """Raise TypeMismatch at the node."""

    def refuse(self, construct: str, hint: str, node: exp.Expr) -> NoReturn:
        """Raise UnsupportedCql at the node."""


#: Table of handlers by node type. Each handler takes only nodes of its type, which ``Any`` cannot express.
Handlers = dict[type[exp.Expr], Callable[[Compiler, Any], Typed]]


def columns_of(parts: Iterable[Typed]) -> frozenset[tuple[SideName, str]]:
    """Return all columns that the parts read."""
    return frozenset().union(*(part.columns for part in parts))


def cast_to(value: Typed, type_: str) -> Typed:
    """Return an expression that casts the value to a type and is NULL if the value does not fit."""
    if value.type == type_:
        return value
    return Typed(f"TRY_CAST({value.sql} AS {duckdb_type(type_)})", type_, value.columns)
