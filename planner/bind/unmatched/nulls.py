"""Conditions and expressions of a row without a partner, where every column of the other side is NULL.

    b.v > 3                     NULL            not TRUE, so WHERE drops the row
    b.k IS NULL                 TRUE
    COALESCE(b.v, a.v) > 3      COALESCE(CAST(NULL AS DOUBLE), a.v) > 3
    CASE WHEN b.k IS NULL THEN 1 ELSE 0 END = 1          1 = 1
    CASE WHEN b.v > 3 THEN a.v > 1 ELSE a.v > 2 END      a.v > 2

Parts of a condition that are certain to be NULL are folded, so that ``bind.unmatched.absence`` can examine
the rest of the condition. Folding is sound but not complete: it may miss parts that are always NULL.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from planner.bind.canonical import ALWAYS, NEVER, canonical
from planner.bind.unmatched.branches import with_chosen_branches
from planner.expressions.expressions import compile_condition
from planner.expressions.types.column_types import duckdb_type
from planner.sql.joins import names_in
from planner.sql.scopes.scope import Scope, SideName

#: Functions that may return a value although an argument is NULL. For NULLIF this is its second argument; if
#: the first argument is NULL, NULLIF returns NULL.
_TAKE_NULL = frozenset({"COALESCE", "IFNULL", "NVL", "GREATEST", "LEAST", "CONCAT", "IF", "IIF", "NULLIF"})

#: Operators that return NULL if any operand is NULL.
_STRICT = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Not, exp.DPipe),
    *(exp.Like, exp.ILike, exp.Escape, exp.RegexpLike, exp.StrPosition, exp.Substring, exp.Trim),
)

_IsNull = Callable[[exp.Expr], bool]


def condition_without(node: exp.Expr, scope: Scope, side: SideName) -> exp.Expr:
    """Return a condition, with NOT already pushed inwards, in which every column of one side is NULL."""

    def is_null(part: exp.Expr) -> bool:
        return _is_null(part, scope, side)

    def decided(part: exp.Expr) -> bool | None:
        found = canonical([compile_condition(condition_without(part, scope, side), scope)]).sql
        return {ALWAYS: True, NEVER: False}.get(found)

    chosen = with_chosen_branches(node, decided)
    return _folded(chosen, is_null, lambda part: expression_without(part, scope, side))


def expression_without(node: exp.Expr, scope: Scope, side: SideName) -> exp.Expr:
    """Return an expression with a typed NULL in place of each column of a side."""
    whole = exp.Paren(this=node.copy())
    for name in names_in(whole):
        if isinstance(name, exp.Column) and (type_ := _type_of(name, scope, side)) is not None:
            name.replace(exp.Cast(this=exp.Null(), to=exp.DataType.build(duckdb_type(type_))))
    inner: exp.Expr = whole.this
    return inner


def _type_of(node: exp.Column, scope: Scope, side: SideName) -> str | None:
    """Return the type of a column, or None if it does not belong to the side."""
    if isinstance(node.this, exp.Star):
        return None
    found = scope.column(node)
    return found.column.type if found.side == side else None


def _folded(node: exp.Expr, is_null: _IsNull, typed: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    if isinstance(node, exp.Paren):
        return _folded(node.this, is_null, typed)
    if isinstance(node, exp.And | exp.Or):
        left, right = (_folded(part, is_null, typed) for part in (node.this, node.expression))
        return type(node)(this=left, expression=right)
    if is_null(node):
        return exp.Null()
    tested = node.this if isinstance(node, exp.Not) else node
    if isinstance(tested, exp.Is) and is_null(tested.this):
        return exp.Boolean(this=isinstance(tested.expression, exp.Null) != (tested is not node))
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        for part, other in ((node.this, node.expression), (node.expression, node.this)):
            if is_null(part):
                test: exp.Expr = exp.Is(this=other.copy(), expression=exp.Null())
                test = exp.Not(this=test) if isinstance(node, exp.NullSafeNEQ) else test
                return _folded(test, is_null, typed)
    return typed(node)


def _is_null(node: exp.Expr, scope: Scope, side: SideName) -> bool:
    """Return whether an expression is certain to be NULL."""

    def any_of(*parts: exp.Expr | None) -> bool:
        return any(part is not None and _is_null(part, scope, side) for part in parts)

    match node:
        case exp.Null():
            return True
        case exp.Column():
            return _type_of(node, scope, side) is not None
        case exp.Paren() | exp.Cast() | exp.TryCast() | exp.In():
            return any_of(node.this)
        case exp.And() | exp.Or():
            return any_of(node.this) and any_of(node.expression)
        case exp.Extract():
            return any_of(node.expression)
        case exp.Anonymous() if node.name.upper() == "NULLIF":
            return any_of(*node.expressions[:1])
        case exp.Anonymous() if node.name.upper() not in _TAKE_NULL:
            units = {id(part) for part in node.expressions} - {id(name) for name in names_in(node)}
            return any_of(
                *(p for p in node.expressions if not (isinstance(p, exp.Column) and id(p) in units))
            )
        case _ if isinstance(node, _STRICT):
            return any_of(*(part for part in node.args.values() if isinstance(part, exp.Expr)))
    return False
