"""Conjuncts of a query's conditions, and recognition of conjuncts that equate two columns."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from planner.errors import KeyTypeMismatch
from planner.expressions.expressions import compile_condition
from planner.expressions.types.column_types import equality
from planner.sql.dialect.normalize import conjuncts, distributed
from planner.sql.scopes.scope import Scope


def pieces(conditions: Iterable[exp.Expr], scope: Scope) -> list[exp.Expr]:
    """Return the conjuncts of conditions; type-check conditions from which the optimizer may drop parts."""
    found = []
    for written in conjuncts(conditions):
        parts = distributed(written)
        if parts != [written]:
            compile_condition(written, scope)
        found += parts
    return found


def key_columns(node: exp.Expr, scope: Scope) -> tuple[str, str] | None:
    """Return (column of a, column of b) if a conjunct equates a column of each side, otherwise None."""
    if not isinstance(node, exp.EQ):
        return None
    left, right = node.this.unnest(), node.expression.unnest()
    if not (isinstance(left, exp.Column) and isinstance(right, exp.Column)):
        return None
    if isinstance(left.this, exp.Star) or isinstance(right.this, exp.Star):
        return None
    columns = {c.side: c.column.name for c in (scope.column(left), scope.column(right))}
    return (columns["a"], columns["b"]) if len(columns) == 2 else None


def key_mismatch(names: tuple[str, str], types: tuple[str, str], node: exp.Expr) -> KeyTypeMismatch:
    """Return the error for two key columns, named with their aliases, whose types cannot be joined."""
    exact = equality(names[0], types[0], names[1], types[1])
    place = "ON with " if isinstance(node, exp.Identifier) else ""
    other = f" Or write {place}{exact}, which is tested on each pair of rows." if exact else ""
    return KeyTypeMismatch(
        f'key columns "{names[0]}" ({types[0]}) and "{names[1]}" ({types[1]}) have different types',
        detail="Whole numbers and decimals join if 38 digits hold the values of both. Any other type joins "
        "only with itself.",
        hint=f"Register both columns with the same type.{other}",
        at=node,
    )
