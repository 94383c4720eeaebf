"""Reader of stored conditions: the DuckDB text that ``condition_text`` writes, lexed by sqlglot.

Plans and queries store their conditions as the text that DuckDB evaluates. In this text, constants are on the
right, operands are atoms or in parentheses, and only columns are double-quoted. A leaf that has none of the
forms in ``conditions`` is read as an opaque expression.

The typed form is not stored, because it is slow to load. For 10,000 filters it makes a document 3 to 5 times
as large, and decoding takes 6 to 25 times as long (0.16 to 0.44 s) in every process that reads a plan. The
planner reads a filter's text once, when the filter enters a plan.

sqlglot's own parser is not used. Its trees do not give the position of an operand in the text, and its
generator writes other text, such as ``CAST('2024-01-01' AS DATE)`` for ``DATE '2024-01-01'``. The text must
not change, because filters and groups are identified by their text, also in older catalogs. The parser also
takes 4.6 times as long as the lexer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from functools import lru_cache

from sqlglot import Token, TokenType
from sqlglot.dialects.duckdb import DuckDB

from planner.predicates.conditions import (
    FALSE,
    TRUE,
    All,
    AnyOf,
    Condition,
    Operand,
    compared,
    distinct_from,
    matched,
    null_test,
    one_of,
    opaque,
    truth_test,
)
from planner.predicates.constants import Constant

_OPEN = frozenset({TokenType.L_PAREN, TokenType.CASE})
_CLOSE = frozenset({TokenType.R_PAREN, TokenType.END})
_COMPARISONS = {
    TokenType.EQ: "=",
    TokenType.NEQ: "<>",
    TokenType.LT: "<",
    TokenType.LTE: "<=",
    TokenType.GT: ">",
    TokenType.GTE: ">=",
}
_MATCHED = {TokenType.IN: "IN", TokenType.LIKE: "LIKE", TokenType.ILIKE: "ILIKE"}
_OPERATORS = frozenset({*_COMPARISONS, *_MATCHED, TokenType.IS, TokenType.NOT})
_TIMES = {"DATE": date, "TIMESTAMP": datetime}
_SINGLE = {
    TokenType.TRUE: Constant("boolean", True),
    TokenType.FALSE: Constant("boolean", False),
}

#: Number of conditions that are cached by text: each new plan version reads the residuals of theta joins
#: again, and each display of a plan reads all texts.
_CACHED = 1_000


@lru_cache(maxsize=_CACHED)
def read_condition(sql: str) -> Condition:
    """Return the condition that a stored text expresses, without simplifying it.

    Args:
        sql: DuckDB text as ``condition_text.render`` writes it.

    >>> read_condition('"v" <= 2 AND "i" IN (3)').parts[1].values.point
    Decimal('3')
    """
    text = _Text(sql)
    return text.condition(0, len(text.tokens))


def with_columns(sql: str, shown: Callable[[str, str], str]) -> str:
    """Return a stored expression with its columns written differently.

    Args:
        sql: DuckDB text of the expression compiler.
        shown: Returns the text of a column, given its side (``a``, ``b``, or "" if there is none) and name.

    >>> with_columns('a."v" > 1 OR "left"("s", 1) IS NULL', lambda side, column: f"{side}:{column}")
    'a:v > 1 OR "left"(:s, 1) IS NULL'
    """
    tokens = DuckDB().tokenize(sql)
    kinds = [token.token_type for token in tokens]
    parts, done = [], 0
    for i, token in enumerate(tokens):
        if token.token_type != TokenType.IDENTIFIER or kinds[i + 1 : i + 2] == [TokenType.L_PAREN]:
            continue
        sided = i >= 2 and kinds[i - 1] == TokenType.DOT
        start = tokens[i - 2].start if sided else token.start
        parts += [sql[done:start], shown(tokens[i - 2].text if sided else "", token.text)]
        done = token.end + 1
    return "".join([*parts, sql[done:]])


def column_name(sql: str) -> str | None:
    """Return the name of a column, or None if the stored expression is not a bare column.

    >>> column_name('"v"'), column_name('a."v"'), column_name('"v" + 1')
    ('v', None, None)
    """
    (token, *more) = DuckDB().tokenize(sql)
    return token.text if token.token_type == TokenType.IDENTIFIER and not more else None


class _Text:
    """A condition cut into tokens."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens: list[Token] = DuckDB().tokenize(sql)
        self.kinds = [token.token_type for token in self.tokens]
        self.closing: dict[int, int] = {}
        opened: list[int] = []
        for i, kind in enumerate(self.kinds):
            if kind in _OPEN:
                opened.append(i)
            elif kind in _CLOSE:
                self.closing[opened.pop()] = i

    def condition(self, start: int, end: int) -> Condition:
        """Return the condition that the tokens from start to end express."""
        start, end = self._bare(start, end)
        for word, kind in ((TokenType.OR, AnyOf), (TokenType.AND, All)):
            parts = self._split(start, end, word)
            if len(parts) > 1:
                return kind(tuple(self.condition(*part) for part in parts))
        return self._leaf(start, end)

    def _bare(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of tokens without parentheses around the whole range."""
        while self.kinds[start] == TokenType.L_PAREN and self.closing[start] == end - 1:
            start, end = start + 1, end - 1
        return start, end

    def _split(self, start: int, end: int, word: TokenType) -> list[tuple[int, int]]:
        """Split the range of tokens at each occurrence of a word outside parentheses."""
        parts, i = [], start
        while i < end:
            if self.kinds[i] == word:
                parts.append((start, i))
                start = i + 1
            i = self.closing.get(i, i) + 1
        return [*parts, (start, end)]

    def _sql(self, start: int, end: int) -> str:
        return self.sql[self.tokens[start].start : self.tokens[end - 1].end + 1]

    def _operand(self, start: int, end: int) -> Operand:
        return Operand(self._sql(start, end), constant=self._constant(*self._bare(start, end)))

    def _constant(self, start: int, end: int) -> Constant | None:
        """Return the value of a literal, or None if its comparisons are not known exactly."""
        kind, text = self.kinds[start], self.tokens[start].text
        if end - start == 1:
            if kind == TokenType.STRING:
                return Constant("string", text)
            return _number(text) if kind == TokenType.NUMBER else _SINGLE.get(kind)
        if end - start == 2 and self.kinds[start + 1] == TokenType.NUMBER and kind == TokenType.DASH:
            return _number(f"-{self.tokens[start + 1].text}")
        if end - start == 2 and self.kinds[start + 1] == TokenType.STRING and text in _TIMES:
            value = _TIMES[text].fromisoformat(self.tokens[start + 1].text)
            return Constant("timestamp" if text == "TIMESTAMP" else "date", value)
        # CAST(-2147483648 AS INTEGER) is written because DuckDB would read a minus and then a number that is
        # too large.
        if end - start == 7 and text == "CAST" and self.tokens[end - 2].text in ("INTEGER", "BIGINT"):
            return self._constant(start + 2, start + 4)
        return None

    def _leaf(self, start: int, end: int) -> Condition:
        at = start
        while at < end and self.kinds[at] not in _OPERATORS:
            at = self.closing.get(at, at) + 1
        if at == end:
            if end - start == 1 and self.kinds[start] in (TokenType.TRUE, TokenType.FALSE, TokenType.NULL):
                return TRUE if self.kinds[start] == TokenType.TRUE else FALSE
            return opaque(self._atom(start, end))
        if at == start:
            return opaque(self._atom(*self._bare(start + 1, end)), False)
        kind = self.kinds[at]
        if kind in _COMPARISONS:
            return compared(self._operand(start, at), _COMPARISONS[kind], self._operand(at + 1, end))
        if kind == TokenType.IS:
            return self._is(start, at, end)
        return self._matched(start, at, end, negated=kind == TokenType.NOT)

    def _atom(self, start: int, end: int) -> Operand:
        """Return an operand; it is in parentheses unless it is one token, a call, ``a."v"`` or CASE."""
        called = end - start > 1 and self.kinds[start + 1] == TokenType.L_PAREN
        whole = end - start == 1 or self.closing.get(start + called) == end - 1
        whole = whole or (end - start == 3 and self.kinds[start + 1] == TokenType.DOT)
        text = self._sql(start, end)
        return Operand(text if whole else f"({text})")

    def _is(self, start: int, at: int, end: int) -> Condition:
        negated = self.kinds[at + 1] == TokenType.NOT
        word = self.kinds[at + 1 + negated]
        operand = self._operand(start, at)
        if word == TokenType.NULL:
            return null_test(operand, negated=negated)
        if word == TokenType.DISTINCT:
            return distinct_from(operand, self._operand(at + negated + 3, end), negated)
        return truth_test(operand, self.condition(start, at), word == TokenType.TRUE, negated=negated)

    def _matched(self, start: int, at: int, end: int, *, negated: bool) -> Condition:
        """Read [NOT] IN, LIKE, ILIKE."""
        operand, kind = self._operand(start, at), self.kinds[at + negated]
        if kind == TokenType.IN:
            items = self._split(at + negated + 2, end - 1, TokenType.COMMA)
            return one_of(operand, [self._operand(*item) for item in items], negated=negated)
        return matched(operand, _MATCHED[kind], self._sql(at + negated + 1, end), (), negated=negated)


def _number(text: str) -> Constant | None:
    return Constant("double", float(text)) if "e" in text.lower() else Constant.decimal(text)
