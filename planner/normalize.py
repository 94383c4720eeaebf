"""Conditions brought into one form: NOT at the leaves, BETWEEN as two comparisons, AND taken apart.

Both rewrites hold in three-valued logic. They make more conditions visible to the binder (a window bound or
a filter inside NOT or BETWEEN) and make equal filters of different queries equal texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

_NEGATED: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
}


def conjuncts(conditions: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield the parts that all have to be true, in the order written.

    >>> from sqlglot import parse_one
    >>> [c.sql() for c in conjuncts([parse_one("a AND NOT (b = 1 OR c BETWEEN 1 AND 2)")])]
    ['a', 'b <> 1', 'c < 1 OR c > 2']
    """
    pending = [pushed(condition) for condition in conditions][::-1]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.And):
            pending += [node.expression, node.this]
        else:
            yield node


def pushed(node: exp.Expr, negate: bool = False) -> exp.Expr:
    """Return a condition with NOT pushed to its leaves, negated on request."""
    if isinstance(node, exp.Paren):
        return pushed(node.this, negate)
    if isinstance(node, exp.Not):
        return pushed(node.this, not negate)
    if isinstance(node, exp.And | exp.Or):
        kind = exp.And if isinstance(node, exp.And) != negate else exp.Or
        return _chain(kind, [pushed(part, negate) for part in operands(node)])
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low, high = node.args["low"], node.args["high"]
        value, again = node.this, node.this.copy()
        if negate:
            return exp.Or(
                this=exp.LT(this=value, expression=low), expression=exp.GT(this=again, expression=high)
            )
        return exp.And(
            this=exp.GTE(this=value, expression=low), expression=exp.LTE(this=again, expression=high)
        )
    if not negate:
        return node
    opposite = _NEGATED.get(type(node))
    if opposite is not None:
        return opposite(this=node.this, expression=node.expression)
    return exp.Not(this=node)


def operands(node: exp.Expr) -> list[exp.Expr]:
    """Operands of a chain of the same connector, left to right, without recursion."""
    kind, found, pending = type(node), list[exp.Expr](), [node]
    while pending:
        part = pending.pop()
        if type(part) is kind:
            pending += [part.expression, part.this]
        else:
            found.append(part)
    return found


def _chain(kind: type[exp.And] | type[exp.Or], parts: list[exp.Expr]) -> exp.Expr:
    """Connect the parts again, as deep as needed only."""
    while len(parts) > 1:
        pairs = zip(parts[::2], [*parts[1::2], None], strict=False)
        parts = [kind(this=left, expression=right) if right is not None else left for left, right in pairs]
    return parts[0]
