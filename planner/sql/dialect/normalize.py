"""Normalization of conditions: NOT at the leaves, BETWEEN as two comparisons, AND split.

All rewrites are valid in three-valued logic. They allow the binder to find keys, window bounds and filters of
one stream inside NOT, BETWEEN or OR.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from sqlglot import exp
from sqlglot.optimizer import normalize, simplify

from catalog.times.durations import Duration

#: Key of a leaf: its node, or the set of both sides if it is an equation, and the lengths of its intervals.
_Leaf = tuple[exp.Expr | frozenset[exp.Expr], tuple[Duration, ...]]

#: Maximum number of leaves of an OR that is distributed over AND, and of leaves that this may add.
_MAX_LEAVES = 16
_MAX_ADDED = 128

_NEGATED: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
    exp.NullSafeEQ: exp.NullSafeNEQ,
    exp.NullSafeNEQ: exp.NullSafeEQ,
}


def conjuncts(conditions: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield the conjuncts of conditions in the order written; all of them have to be true.

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


def distributed(conjunct: exp.Expr) -> list[exp.Expr]:
    """Return conjuncts that are equivalent to an OR over ANDs; any other conjunct is returned alone.

    sqlglot's optimizer distributes OR over AND, and drops repeated and implied parts. The leaves are first
    replaced by names, because sqlglot's rules for comparisons, arithmetic and functions are not sound here
    (``bind.canonical``).

    Args:
        conjunct: A conjunct with NOT pushed inwards.

    >>> from sqlglot import parse_one
    >>> node = pushed(parse_one("(a.k = b.k AND a.v > 1) OR (b.u = 2 AND a.k = b.k)"))
    >>> [c.sql() for c in distributed(node)]
    ['a.k = b.k', 'a.v > 1 OR b.u = 2']
    """
    if not any(isinstance(part, exp.And) for part in operands(conjunct)):
        return [conjunct]
    leaves = list(islice(_leaves(conjunct), _MAX_LEAVES + 1))
    if len(leaves) > _MAX_LEAVES:
        return [conjunct]
    names: dict[_Leaf, str] = {}
    by_name: dict[str, exp.Expr] = {}
    for leaf in leaves:
        name = names.setdefault(_known(leaf), f"c{len(names):02}")
        by_name.setdefault(name, leaf)
    product = simplify.simplify(normalize.normalize(_named(conjunct, names), max_distance=_MAX_ADDED))
    parts = [part.unnest() for part in operands(product)] if isinstance(product, exp.And) else [product]
    return [_unnamed(part, by_name) for part in parts if not isinstance(part, exp.Boolean)]


def _leaves(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the leaves that AND and OR connect, left to right."""
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.And | exp.Or):
            pending += operands(part)[::-1]
        else:
            yield part


def _known(leaf: exp.Expr) -> _Leaf:
    """Return a key that distinguishes leaves; it has the interval lengths, because == ignores ``meta``."""
    lengths = tuple(interval.meta["duration"] for interval in leaf.find_all(exp.Interval))
    sides = frozenset((leaf.this, leaf.expression)) if isinstance(leaf, exp.EQ) and not lengths else leaf
    return sides, lengths


def _named(node: exp.Expr, names: Mapping[_Leaf, str]) -> exp.Expr:
    """Return the condition with a boolean column for every leaf."""
    if isinstance(node, exp.And | exp.Or):
        return _chain(type(node), [_named(part, names) for part in operands(node)])
    column = exp.column(names[_known(node)])
    column.type = exp.DType.BOOLEAN.into_expr()
    return column


def _unnamed(node: exp.Expr, leaves: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return the condition with its leaves restored."""
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        return _chain(type(node), [_unnamed(part, leaves) for part in operands(node)])
    return leaves[node.name].copy()


def pushed(node: exp.Expr, negate: bool = False) -> exp.Expr:
    """Return a condition, or its negation if ``negate``, with NOT pushed to the leaves."""
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
    """Connect the parts again, with as little nesting as possible."""
    while len(parts) > 1:
        pairs = zip(parts[::2], [*parts[1::2], None], strict=False)
        parts = [kind(this=left, expression=right) if right is not None else left for left, right in pairs]
    return parts[0]
