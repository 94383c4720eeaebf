"""Bound conditions read as trees: AND and OR over atoms, each a set of values that one expression may have.

    "v" > 10 AND ("s" IS NULL OR "i" IN (1, 2))
    All( v in (10, ..),  AnyOf( s in {NULL},  i in {1, 2} ) )

A filter lets a row pass when it is TRUE; FALSE and NULL do not. AND and OR never make TRUE out of NULL, and
the binder has pushed NOT to the leaves. So each leaf is known by the values for which it is TRUE, and the
tree obeys two-valued logic, whatever NULL does to the leaves. That holds for a whole filter only, not for a
condition inside an expression: ``(v > 10) IS NULL`` is a leaf and stays as it is.

What is read is what the binder writes (``expressions``): constants stand right, operands are atoms or
in parentheses, columns alone are double-quoted. What a leaf means beyond the forms below is not looked into.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal

from planner.expressions.constants import Domain, constant
from planner.expressions.value_sets import NONE, NULL, VALUES, Value, ValueSet, above, below, points, union

#: What tells one expression of a condition from another.
Subject = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class Atom:
    """One expression, and the values for which a condition on it is TRUE.

    Attributes:
        text: The expression, in parentheses where an operand needs them.
        values: The values.
        domain: What the values are.
        other: The expression it is compared with, if that is no constant.
    """

    text: str
    values: ValueSet
    domain: Domain = ""
    other: str = ""

    @property
    def subject(self) -> Subject:
        """Subject of the condition: atoms of one subject combine to one."""
        return self.text, self.other, self.domain == "double"


@dataclass(frozen=True, slots=True)
class All:
    """Conditions that all have to be true; without any, TRUE."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Conditions of which one has to be true; without any, FALSE."""

    parts: tuple[Condition, ...] = ()


Condition = Atom | All | AnyOf

TRUE, FALSE = All(), AnyOf()

_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[A-Za-z_]\w*|[0-9.]+(?:[eE][+-]?[0-9]+)?|<>|<=|>=|\|\||//|\S"""
)
_OPEN, _CLOSE = frozenset({"(", "CASE"}), frozenset({")", "END"})
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_OPERATORS = _COMPARISONS | {"IS", "IN", "NOT", "LIKE", "ILIKE"}

#: Operators that take NOT before them.
_NEGATABLE = frozenset({"IN", "LIKE", "ILIKE"})


def parse(sql: str) -> Condition:
    """Read a bound condition.

    Args:
        sql: DuckDB text as the binder writes it.

    Returns:
        Its tree, not simplified.

    >>> parse('"v" <= 2 AND "i" IN (3)').parts[1].values.point
    Decimal('3')
    """
    text = _Text(sql)
    return text.condition(0, len(text.tokens))


def column_texts(sql: str) -> frozenset[str]:
    """Return the columns that a bound text reads, as they are written there.

    >>> sorted(column_texts('a."v" > 1 OR "left"("s", 1) IS NULL'))
    ['"s"', 'a."v"']
    """
    tokens = [*_Text(sql).tokens, ""]
    names = [(i, token) for i, token in enumerate(tokens) if token.startswith('"') and tokens[i + 1] != "("]
    return frozenset(
        f"{tokens[i - 2]}.{token}" if i >= 2 and tokens[i - 1] == "." else token for i, token in names
    )


def opposite(text: str) -> str:
    """Return a leaf negated, NULL staying NULL.

    >>> opposite('("s" LIKE "t")'), opposite('"f"')
    ('"s" NOT LIKE "t"', 'NOT "f"')
    """
    bare = _Text(text[1:-1] if text.startswith("(") else text)
    end = len(bare.tokens)
    at = bare.operator(0, end)
    if {"AND", "OR"} & set(bare.tokens):  # Perhaps several leaves.
        return f"NOT {text}"
    if bare.tokens[at : at + 3] == ["IS", "NOT", "DISTINCT"]:
        return f"{bare.sql[: bare.ends[at]]}{bare.sql[bare.ends[at + 1] :]}"
    if at == end or bare.tokens[at] not in _NEGATABLE:
        return f"NOT {text}"
    return f"{bare.sql[: bare.starts[at]]}NOT {bare.sql[bare.starts[at] :]}"


class _Text:
    """A condition cut into tokens."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        found = list(_TOKEN.finditer(sql))
        self.tokens = [match[0] for match in found]
        self.starts = [match.start() for match in found]
        self.ends = [match.end() for match in found]
        self.closing: dict[int, int] = {}
        opened: list[int] = []
        for i, token in enumerate(self.tokens):
            if token in _OPEN:
                opened.append(i)
            elif token in _CLOSE:
                self.closing[opened.pop()] = i

    def condition(self, start: int, end: int) -> Condition:
        """Read the tokens from start to end."""
        while self.tokens[start] == "(" and self.closing[start] == end - 1:
            start, end = start + 1, end - 1
        for word, kind in (("OR", AnyOf), ("AND", All)):
            parts = self._split(start, end, word)
            if len(parts) > 1:
                return kind(tuple(self.condition(*part) for part in parts))
        return self._leaf(start, end)

    def _split(self, start: int, end: int, word: str) -> list[tuple[int, int]]:
        """Cut at a word outside parentheses."""
        parts, i = [], start
        while i < end:
            if self.tokens[i] == word:
                parts.append((start, i))
                start = i + 1
            i = self.closing.get(i, i) + 1
        return [*parts, (start, end)]

    def _text(self, start: int, end: int) -> str:
        return self.sql[self.starts[start] : self.ends[end - 1]]

    def operator(self, start: int, end: int) -> int:
        """Return where a leaf's operator is: the first one outside parentheses; end if it has none."""
        at = start
        while at < end and self.tokens[at] not in _OPERATORS:
            at = self.closing.get(at, at) + 1
        return at

    def _leaf(self, start: int, end: int) -> Condition:
        at = self.operator(start, end)
        if at == end:
            if end - start == 1 and self.tokens[start] in ("TRUE", "FALSE", "NULL"):
                return TRUE if self.tokens[start] == "TRUE" else FALSE
            return self._boolean(start, end, True)
        if at == start:
            return self._negation(start + 1, end)
        operator = self.tokens[at]
        if operator in _COMPARISONS:
            return _compared(self._text(start, at), operator, self._text(at + 1, end))
        if operator == "IS":
            return self._is(start, at, end)
        return self._membership(start, at, end, operator == "NOT")

    def _boolean(self, start: int, end: int, truth: bool) -> Atom:
        """Return a leaf that is not looked into, true or false."""
        text = self._text(start, end)
        return Atom(text if self._is_atom(start, end) else f"({text})", _truth(truth), "boolean")

    def _is_atom(self, start: int, end: int) -> bool:
        """Tell whether an operand needs no parentheses: one token, a call, ``a."v"``, CASE."""
        called = end - start > 1 and self.tokens[start + 1] == "("
        if end - start == 1 or self.closing.get(start + called) == end - 1:
            return True
        return end - start == 3 and self.tokens[start + 1] == "."

    def _negation(self, start: int, end: int) -> Atom:
        while self.tokens[start] == "(" and self.closing[start] == end - 1:
            start, end = start + 1, end - 1
        return self._boolean(start, end, False)

    def _is(self, start: int, at: int, end: int) -> Condition:
        negated = self.tokens[at + 1] == "NOT"
        word = self.tokens[at + 1 + negated]
        text = self._text(start, at)
        if word == "NULL":
            return Atom(text, VALUES if negated else NULL)
        if word == "DISTINCT":
            return self._distinct(start, at, end, negated)
        inner = self.condition(start, at)
        if word == "TRUE" and not negated:
            return inner
        if word == "TRUE" and isinstance(inner, Atom) and inner.domain != "order":
            return replace(inner, values=inner.values.complement)
        values = _truth((word == "TRUE") != negated)
        return Atom(text, values.with_null if negated else values, "boolean")

    def _distinct(self, start: int, at: int, end: int, same: bool) -> Condition:
        """Read IS [NOT] DISTINCT FROM: = and <> for which NULL is a value."""
        left, right = self._text(start, at), self._text(at + 2 + same + 1, end)
        found = constant(right)
        if right == "NULL":
            return Atom(left, NULL if same else VALUES)
        if found is None or constant(left) is not None:
            text = f"({left} IS NOT DISTINCT FROM {right})"
            return Atom(text, _truth(same), "boolean")
        atom = _with_constant(left, "=" if same else "<>", *found)
        return atom if same else replace(atom, values=atom.values.with_null)

    def _membership(self, start: int, at: int, end: int, negated: bool) -> Condition:
        """Read [NOT] IN, LIKE, ILIKE."""
        word = self.tokens[at + negated]
        left = self._text(start, at)
        if word == "IN":
            items = [self._text(*part) for part in self._split(at + negated + 2, end - 1, ",")]
            listed = [constant(item) for item in items if item != "NULL"]
            domains = {found[0] for found in listed if found is not None}
            if None not in listed and len(domains) <= 1 and constant(left) is None:
                if negated and len(listed) < len(items):  # NOT IN with a NULL is never TRUE.
                    return FALSE
                equal = [_with_constant(left, "=", *found) for found in listed if found is not None]
                if not equal:
                    return FALSE
                values = union(atom.values for atom in equal)
                return replace(equal[0], values=values.inverse if negated else values)
        text = f"({left} {self._text(at + negated, end)})"
        return Atom(text, _truth(not negated), "boolean")


def _truth(true: bool) -> ValueSet:
    """Return {TRUE} or {FALSE}: booleans have one cut, between the two."""
    return above(True, inclusive=True) if true else below(True)


def _compared(left: str, operator: str, right: str) -> Condition:
    """Return a comparison; never TRUE with NULL."""
    if "NULL" in (left, right):
        return FALSE
    found, other = constant(right), constant(left)
    if found is not None and other is not None and found[0] == other[0]:
        return TRUE if _holds(other[1], operator, found[1]) else FALSE
    if found is not None and other is None:
        return _with_constant(left, operator, *found)
    if left == right:
        return Atom(left, VALUES) if "=" in operator else FALSE
    return Atom(left, _compared_with(operator, Decimal(0)), "order", right)


def _with_constant(text: str, operator: str, domain: Domain, value: Value) -> Atom:
    if domain != "boolean":
        return Atom(text, _compared_with(operator, value), domain)
    false, true = (_holds(each, operator, value) for each in (False, True))
    values = ValueSet(((True, False),), low=false) if false != true else VALUES if true else NONE
    return Atom(text, values, "boolean")


def _compared_with(operator: str, value: Value) -> ValueSet:
    """Return the values for which the comparison with a constant is TRUE."""
    if operator in ("=", "<>"):
        return points([value]) if operator == "=" else points([value]).inverse
    inclusive = len(operator) == 2
    return below(value, inclusive=inclusive) if operator[0] == "<" else above(value, inclusive=inclusive)


def _holds(left: Value, operator: str, right: Value) -> bool:
    """Compare two constants of one domain."""
    return points([left]) <= _compared_with(operator, right)
