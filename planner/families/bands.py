"""Band of a family without a key: the range in which a column of one side lies in every pair.

    a.x BETWEEN b.lo AND b.hi      a.x in [b.lo, b.hi]
    abs(a.x - b.x) <= 10           a.x in [b.x - 10, b.x + 10]
    a.x < b.lo AND a.s <> b.s      a.x in (.., b.lo]

The residual of every query must bound the same column by the same columns. The widest of their offsets
counts, and strict bounds count as inclusive ones. So a band may let in pairs that no query has, and never
leaves one out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from catalog.values.plan import Band, Bound, PlannedQuery
from planner.families.families import SideName
from planner.predicates.conditions import All, Atom, Condition
from planner.predicates.read_condition import read_condition

_NAME = r'([ab])\."((?:[^"]|"")*)"'
_NUMBER = r"(\d+(?:\.\d+)?)"
_PLAIN = re.compile(_NAME)
# Sums that can overflow are in TRY.
_SHIFTED = re.compile(rf"(?:TRY)?\({_NAME} ([+-]) {_NUMBER}\)")
_DIFFERENCE = re.compile(rf"(?:TRY)?\({_NAME} - {_NAME}\)")
_DISTANCE = re.compile(rf"TRY\(abs\((?:{_NAME} - {_NAME}|TRY\({_NAME} - {_NAME}\))\)\)")

_NUMBERS = ("int", "bigint", "double", "decimal")
_TIMES = ("date", "timestamp")

#: Types of the columns of both sides, by name.
Types = Mapping[SideName, Mapping[str, str]]
_End = Literal["low", "high"]


@dataclass(frozen=True, slots=True)
class _Term:
    """A column with what is added to it."""

    side: SideName
    column: str
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class _Limit:
    """A bound of a column: the end of its range, and where that is."""

    side: SideName
    column: str
    end: _End
    by: str
    offset: float


#: Limits by what they are of, with their offset.
_Limits = dict[tuple[SideName, str, _End, str], float]


def family_band(queries: Sequence[PlannedQuery], types: Types) -> Band | None:
    """Return the band of the queries of a family without a key.

    Args:
        queries: The queries.
        types: Types of the columns of both sides.

    Returns:
        The narrowest band that is known to hold every pair of every query; None if there is none.
    """
    common: _Limits | None = None
    for query in queries:
        own = _limits(query.residual, types)
        common = own if common is None else _widest(common, own)
        if not common:
            return None
    bands = [_band(common or {}, side, column) for side, column, _, _ in sorted(common or {})]
    # Closed at both ends before open at one; else the first by name.
    return min(bands, key=lambda band: band.low is None or band.high is None, default=None)


def _band(limits: _Limits, side: SideName, column: str) -> Band:
    ends: dict[_End, Bound] = {}
    for (of, name, end, by), offset in sorted(limits.items()):
        if (of, name) == (side, column):
            ends.setdefault(end, Bound(by, offset))
    return Band(side, column, ends.get("low"), ends.get("high"))


def _widest(one: _Limits, other: _Limits) -> _Limits:
    """Return the limits that both have."""
    chosen = {"low": min, "high": max}
    return {key: chosen[key[2]](one[key], other[key]) for key in one.keys() & other.keys()}


def _limits(residual: str | None, types: Types) -> _Limits:
    """Return the limits that the conjuncts of a residual set; of several of one column the narrowest."""
    found: _Limits = {}
    if residual is None:
        return found
    condition = read_condition(residual)
    narrowest = {"low": max, "high": min}
    for part in condition.parts if isinstance(condition, All) else (condition,):
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
    """Yield what one conjunct says of columns of the two sides."""
    if not isinstance(condition, Atom) or condition.values.null or not condition.values.cuts:
        return
    cuts = condition.values.cuts
    first, last = cuts[0][0], cuts[-1][0]
    if not isinstance(first, Decimal | float) or not isinstance(last, Decimal | float):
        return
    # The values lie below the last cut if those behind it are outside, and above the first likewise.
    above = None if condition.values.low else float(first)
    below = float(last) if condition.values.low == (len(cuts) % 2 == 1) else None
    if condition.other:
        left, right = _term(condition.text), _term(condition.other)
        if condition.domain == "order" and left is not None and right is not None:
            yield from _apart(left, right, above, below)
        return
    if condition.domain != "number":
        return
    if (found := _DIFFERENCE.fullmatch(condition.text)) is not None:
        yield from _apart(_named(found, 1), _named(found, 3), above, below)
    elif (found := _DISTANCE.fullmatch(condition.text)) is not None and below is not None:
        first_of = 1 if found[1] else 5
        yield from _apart(_named(found, first_of), _named(found, first_of + 2), -below, below)


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
    if (found := _PLAIN.fullmatch(text)) is not None:
        return _named(found, 1)
    if (found := _SHIFTED.fullmatch(text)) is not None:
        plain = _named(found, 1)
        return _Term(plain.side, plain.column, float(f"{found[3]}{found[4]}"))
    return None


def _named(found: re.Match[str], group: int) -> _Term:
    side: SideName = "a" if found[group] == "a" else "b"
    return _Term(side, found[group + 1].replace('""', '"'))
