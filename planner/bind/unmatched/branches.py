"""Replacement of CASE by one branch if all rows of a kind (pairs, or rows without a partner) choose it.

CASE WHEN b.k IS NULL THEN 1 ELSE 0 END = 1      pairs, whose keys are not NULL      0 = 1
                                                 rows of a without a partner         1 = 1
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

#: Function that returns True if a condition is true for all rows, False if it is true for no row, and None if
#: it may be true for some rows only.
Decided = Callable[[exp.Expr], bool | None]


def with_chosen_branches(node: exp.Expr, decided: Decided) -> exp.Expr:
    """Return a condition with each CASE replaced by one branch, if all rows choose this branch.

    The type of a CASE depends on all its branches. So a CASE inside an expression is replaced only if the
    values of all its branches are literals of one type.

    Args:
        node: The condition; it is not modified.
        decided: Function that decides whether the condition of a branch is true for all rows or for none.
    """
    whole = exp.Paren(this=node.copy())
    for case in reversed(list(whole.find_all(exp.Case))):
        values = [branch.args["true"] for branch in case.args["ifs"]]
        values += [case.args["default"]] if case.args.get("default") is not None else []
        if case.parent is whole or len({_literal_type(value) for value in values} - {"null"}) == 1:
            value = _only_value(case, decided)
            if value is not None:
                case.replace(value.copy())
    inner: exp.Expr = whole.this
    return inner


def _literal_type(node: exp.Expr) -> object:
    """Return a value that is equal for literals of one type, and unique for any other expression."""
    match node:
        case exp.Null():
            return "null"
        case exp.Boolean():
            return "boolean"
        case exp.Literal() if node.is_string or node.is_int:
            return "string" if node.is_string else "int"
    return id(node)


def _only_value(case: exp.Case, decided: Decided) -> exp.Expr | None:
    """Return the value of the branch that all rows choose, or None if no such branch is known."""
    for branch in case.args["ifs"]:
        condition = branch.this
        if case.this is not None:
            condition = exp.EQ(this=case.this.copy(), expression=branch.this.copy())
        chosen = decided(condition)
        if chosen is None:
            return None
        if chosen:
            value: exp.Expr = branch.args["true"]
            return value
    return case.args.get("default") or exp.Null()
