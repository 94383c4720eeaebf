"""Conditions as Python values: AND and OR over atoms, each an expression with its set of allowed values.

    "v" > 10 AND ("s" IS NULL OR "i" IN (1, 2))
    All( v in (10, ..),  AnyOf( s in {NULL},  i in {1, 2} ) )

A filter passes the rows for which it is TRUE, and drops the rows for which it is FALSE or NULL. AND and OR
are TRUE only because of operands that are TRUE, and NOT is pushed to the leaves (``dialect.normalize``). So
a leaf is fully described by the values for which it is TRUE, and two-valued logic is valid for the tree. This
applies only to a whole filter, not to a condition inside an expression: ``(v > 10) IS NULL`` is a leaf and
stays unchanged.

The expression compiler makes conditions (``expressions.comparisons``), and ``read_condition`` reads stored
conditions. A leaf that has none of the forms below is opaque: a boolean expression that must be TRUE, or one
that must be FALSE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from planner.predicates.constants import Constant, Domain
from planner.predicates.value_sets import NONE, NULL, VALUES, Value, ValueSet, above, below, points, union
from planner.sql.scopes.scope import SideName

#: Key that distinguishes the expressions of a condition.
Subject = tuple[str, str, bool]

#: Columns that an expression reads, with their sides.
Columns = frozenset[tuple[SideName, str]]

_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})


@dataclass(frozen=True, slots=True)
class Operand:
    """An expression in a condition.

    Attributes:
        text: DuckDB text of the expression, in parentheses if an operand needs them.
        columns: Columns that the expression reads.
        constant: Value of a literal whose comparisons are known exactly; None for any other expression.
    """

    text: str
    columns: Columns = frozenset()
    constant: Constant | None = None

    @property
    def is_null(self) -> bool:
        """Return whether the expression is the literal NULL."""
        return self.text == "NULL"


@dataclass(frozen=True, slots=True)
class Atom:
    """One expression, and the values for which a condition on it is TRUE.

    Attributes:
        text: The expression, in parentheses if an operand needs them.
        values: Values of the expression for which the condition is TRUE.
        domain: Kind of the values.
        other: Text of the expression with which ``text`` is compared; empty if that is a constant.
        columns: Columns that both expressions read.
        negated: Text that is TRUE if the expression is FALSE; if empty, NOT before ``text``.
        meaning: Condition that the expression represents, or None if it is not known.
    """

    text: str
    values: ValueSet
    domain: Domain = ""
    other: str = ""
    columns: Columns = field(default=frozenset(), compare=False)
    negated: str = field(default="", compare=False)
    meaning: Condition | None = field(default=None, compare=False)

    @property
    def subject(self) -> Subject:
        """Key of the compared expressions; atoms with the same key are combined into one atom."""
        return self.text, self.other, self.domain == "double"


@dataclass(frozen=True, slots=True)
class All:
    """Conditions that all have to be true; an empty list is TRUE."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Conditions, at least one of which has to be true; an empty list is FALSE."""

    parts: tuple[Condition, ...] = ()


Condition = Atom | All | AnyOf

TRUE, FALSE = All(), AnyOf()


def columns_read(condition: Condition) -> Columns:
    """Return the columns that a condition reads."""
    if isinstance(condition, Atom):
        return condition.columns
    return frozenset[tuple[SideName, str]]().union(*(columns_read(part) for part in condition.parts))


def opaque(operand: Operand, truth: bool = True, negated: str = "") -> Atom:
    """Return the condition that a boolean expression is TRUE, or the condition that it is FALSE.

    >>> opaque(Operand('"f"'), truth=False).values.low
    True
    """
    return Atom(operand.text, _truth(truth), "boolean", columns=operand.columns, negated=negated)


def compared(left: Operand, operator: str, right: Operand) -> Condition:
    """Return a comparison (``= <> < <= > >=``), which is never TRUE if an operand is NULL.

    >>> compared(Operand('"v"'), "<", Operand("1", constant=Constant.decimal("1"))).values.low
    True
    """
    if left.is_null or right.is_null:
        return FALSE
    found, other = right.constant, left.constant
    if found is not None and other is not None and found.domain == other.domain:
        return TRUE if _holds(other.value, operator, found.value) else FALSE
    if found is not None and other is None:
        return _with_constant(left, operator, found)
    columns = left.columns | right.columns
    if left.text == right.text:
        return Atom(left.text, VALUES, columns=columns) if "=" in operator else FALSE
    return Atom(left.text, _compared_with(operator, Decimal(0)), "order", right.text, columns)


def distinct_from(left: Operand, right: Operand, same: bool) -> Condition:
    """Return IS [NOT] DISTINCT FROM, a comparison by <> or = that treats NULL as an ordinary value."""
    if right.is_null:
        return null_test(left, negated=not same)
    if right.constant is None or left.constant is not None:
        whole = Operand(f"({left.text} IS NOT DISTINCT FROM {right.text})", left.columns | right.columns)
        return opaque(whole, same, f"{left.text} IS DISTINCT FROM {right.text}")
    atom = _with_constant(left, "=" if same else "<>", right.constant)
    return atom if same else replace(atom, values=atom.values.with_null)


def null_test(operand: Operand, *, negated: bool) -> Atom:
    """Return IS NULL, or IS NOT NULL."""
    return Atom(operand.text, VALUES if negated else NULL, columns=operand.columns)


def truth_test(operand: Operand, meaning: Condition, truth: bool, *, negated: bool) -> Condition:
    """Return IS TRUE, IS FALSE or the negation of one of them.

    Args:
        operand: An expression of type boolean.
        meaning: Condition that the expression represents.
        truth: Truth value that is tested: True for IS TRUE, False for IS FALSE.
        negated: Whether the test is negated.
    """
    if truth and not negated:
        return meaning
    if truth and isinstance(meaning, Atom) and meaning.domain != "order":
        return replace(meaning, values=meaning.values.complement)
    values = _truth(truth != negated)
    values = values.with_null if negated else values
    if isinstance(meaning, Atom) and (meaning.text, meaning.domain) == (operand.text, "boolean"):
        return replace(meaning, values=values)
    return Atom(operand.text, values, "boolean", columns=operand.columns, meaning=meaning)


def one_of(operand: Operand, items: Sequence[Operand], *, negated: bool) -> Condition:
    """Return IN or NOT IN over a list; NOT IN over a list with a NULL is never TRUE."""
    listed = [item.constant for item in items if not item.is_null]
    constants = [found for found in listed if found is not None]
    if (
        len(constants) == len(listed)
        and len({found.domain for found in constants}) <= 1
        and operand.constant is None
    ):
        if (negated and len(listed) < len(items)) or not listed:
            return FALSE
        equal = [_with_constant(operand, "=", found) for found in constants]
        values = union(atom.values for atom in equal)
        return replace(equal[0], values=values.inverse if negated else values)
    return matched(operand, "IN", f"({', '.join(item.text for item in items)})", items, negated=negated)


def matched(
    operand: Operand, operator: str, rest: str, items: Sequence[Operand], *, negated: bool
) -> Condition:
    """Return a condition with an operator that NOT can precede: IN, LIKE, ILIKE.

    Args:
        operand: Left operand.
        operator: The operator.
        rest: DuckDB text after the operator.
        items: Expressions in ``rest``.
        negated: Whether NOT is before the operator.
    """
    columns = operand.columns.union(*(item.columns for item in items))
    whole = Operand(f"({operand.text} {operator} {rest})", columns)
    return opaque(whole, not negated, f"{operand.text} NOT {operator} {rest}")


def _truth(true: bool) -> ValueSet:
    """Return the set {TRUE} or {FALSE}, whose only cut is between FALSE and TRUE."""
    return above(True, inclusive=True) if true else below(True)


def _with_constant(operand: Operand, operator: str, constant: Constant) -> Atom:
    if constant.domain != "boolean":
        values = _compared_with(operator, constant.value)
        return Atom(operand.text, values, constant.domain, columns=operand.columns)
    false, true = (_holds(each, operator, constant.value) for each in (False, True))
    values = ValueSet(((True, False),), low=false) if false != true else VALUES if true else NONE
    return Atom(operand.text, values, "boolean", columns=operand.columns)


def _compared_with(operator: str, value: Value) -> ValueSet:
    """Return the values for which the comparison with a constant is TRUE."""
    if operator in ("=", "<>"):
        return points([value]) if operator == "=" else points([value]).inverse
    inclusive = len(operator) == 2
    return below(value, inclusive=inclusive) if operator[0] == "<" else above(value, inclusive=inclusive)


def _holds(left: Value, operator: str, right: Value) -> bool:
    """Compare two constants of one domain."""
    return points([left]) <= _compared_with(operator, right)
