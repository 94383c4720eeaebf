"""Limits that a condition on a pair sets on a column of one row, given the other row of the pair.

    a.x BETWEEN b.lo AND b.hi      a.x in [b.lo, b.hi]
    abs(a.x - b.x) <= 10           a.x in [b.x - 10, b.x + 10], b.x in [a.x - 10, a.x + 10]
    a.x < b.lo AND a.s <> b.s      a.x in (.., b.lo]

Strict bounds are treated as inclusive bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from sqlglot import TokenType
from sqlglot.dialects.duckdb import DuckDB

from planner.predicates.conditions import All, Atom, Condition
from planner.sql.scopes.scope import SideName

_NUMBERS = ("int", "bigint", "double", "decimal")
_TIMES = ("date", "timestamp")

#: Types of the columns of both sides, by name.
Types = Mapping[SideName, Mapping[str, str]]
End = Literal["low", "high"]


@dataclass(frozen=True, slots=True)
class _Term:
    """A column plus a constant offset."""

    side: SideName
    column: str
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class _Limit:
    """A limit on one end of a column's range: the value of the other row's column ``by`` plus ``offset``."""

    side: SideName
    column: str
    end: End
    by: str
    offset: float


#: Offsets of limits by side, column, end, and the column of the other side from which they are measured.
Limits = dict[tuple[SideName, str, End, str], float]


def limits(residual: Condition, types: Types) -> Limits:
    """Return the limits set by the conjuncts of a residual, the narrowest limit for each column.

    Args:
        residual: Simplified condition on the two rows of a pair.
        types: Types of the columns of both sides.
    """
    found: Limits = {}
    narrowest = {"low": max, "high": min}
    for part in residual.parts if isinstance(residual, All) else (residual,):
        for limit in _limits_of(part):
            if not _comparable(limit, types):
                continue
            key = (limit.side, limit.column, limit.end, limit.by)
            found[key] = narrowest[limit.end](found.get(key, limit.offset), limit.offset)
    return found


def _comparable(limit: _Limit, types: Types) -> bool:
    other: SideName = "b" if limit.side == "a" else "a"
    kinds = [types[limit.side][limit.column], types[other][limit.by]]
    if all(kind.startswith(_NUMBERS) for kind in kinds):
        return True
    return kinds[0] == kinds[1] and kinds[0] in _TIMES and limit.offset == 0


def _limits_of(condition: Condition) -> Iterator[_Limit]:
    """Yield the bounds that one conjunct sets on columns of the two sides."""
    if not isinstance(condition, Atom) or condition.values.null or not condition.values.cuts:
        return
    cuts = condition.values.cuts
    first, last = cuts[0][0], cuts[-1][0]
    if not isinstance(first, Decimal | float) or not isinstance(last, Decimal | float):
        return
    # If values above the last cut are excluded, this cut is an upper bound; likewise for the first cut.
    above = None if condition.values.low else float(first)
    below = float(last) if condition.values.low == (len(cuts) % 2 == 1) else None
    if condition.other:
        left, right = _term(condition.text), _term(condition.other)
        if condition.domain == "order" and left is not None and right is not None:
            yield from _apart(left, right, above, below)
        return
    if condition.domain != "number":
        return
    match _parts(condition.text):
        case (_Term() as left, "-", _Term() as right):
            yield from _apart(left, right, above, below)
        case ("ABS", "(", *inside, ")") if below is not None:
            match _ungrouped(inside):
                case (_Term() as left, "-", _Term() as right):
                    yield from _apart(left, right, -below, below)


def _apart(left: _Term, right: _Term, above: float | None, below: float | None) -> Iterator[_Limit]:
    """Yield the limits that follow from ``above <= left - right <= below``."""
    if left.side == right.side:
        return
    shift = right.offset - left.offset
    if below is not None:
        yield _Limit(left.side, left.column, "high", right.column, shift + below)
        yield _Limit(right.side, right.column, "low", left.column, -shift - below)
    if above is not None:
        yield _Limit(left.side, left.column, "low", right.column, shift + above)
        yield _Limit(right.side, right.column, "high", left.column, -shift - above)


def _term(text: str) -> _Term | None:
    """Return the column and offset of an expression, or None if it is not a column plus a number."""
    match _parts(text):
        case (_Term() as plain,):
            return plain
        case (_Term() as plain, "+" | "-" as sign, str(number)) if number.replace(".", "", 1).isdecimal():
            return _Term(plain.side, plain.column, float(sign + number))
    return None


@lru_cache(maxsize=1_000)
def _parts(text: str) -> tuple[_Term | str, ...]:
    """Return an expression as a list of columns, words and parentheses.

    TRY, outer parentheses and the casts by which arithmetic widens an int are left out.

    >>> _parts('TRY(abs(TRY(CAST(a."x" AS BIGINT) - b."y")))')[:3]
    ('ABS', '(', '(')
    """
    tokens = DuckDB().tokenize(text)
    parts: list[_Term | str] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        words = [following.text.upper() for following in tokens[place : place + 8]]
        if words[0] == "CAST" and words[5:] == ["AS", "BIGINT", ")"]:
            # Written casts are TRY_CAST, so this is a column of type int that arithmetic has widened.
            del tokens[place + 5 : place + 8]
            place += 2
            continue
        side: SideName | None = "a" if token.text == "a" else "b" if token.text == "b" else None
        dotted = [following.token_type for following in tokens[place + 1 : place + 3]]
        if side is not None and dotted == [TokenType.DOT, TokenType.IDENTIFIER]:
            parts.append(_Term(side, tokens[place + 2].text))
            place += 3
            continue
        if token.text.upper() != "TRY":
            parts.append(token.text.upper())
        place += 1
    return _ungrouped(parts)


def _ungrouped(parts: Sequence[_Term | str]) -> tuple[_Term | str, ...]:
    """Return the parts of an expression without the parentheses around the whole expression.

    If the first and the last parenthesis are not a pair, as in ``(x) - (y)``, the parts that remain have
    unpaired parentheses and match none of the known forms.
    """
    while len(parts) > 1 and (parts[0], parts[-1]) == ("(", ")"):
        parts = parts[1:-1]
    return tuple(parts)
