"""Locations of errors in a CQL text.

An error is raised with its place in the text (``at``). The innermost function with the decorator ``located``
turns this place into a line and column (``location``).

sqlglot keeps the source offsets of names and literals in ``Expr.meta``; an operator spans its operands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sqlglot import Token, exp

from catalog.errors import Location, SluiceError

#: Part of a CQL text: a syntax node, a token, or half-open offsets.
Place = exp.Expr | Token | tuple[int, int]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def located(function: Callable[Concatenate[str, _P], _T]) -> Callable[Concatenate[str, _P], _T]:
    """Wrap a function on a CQL text: its errors get a ``location`` in the text, computed from ``at``."""

    @wraps(function)
    def locating(text: str, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(text, *args, **kwargs)
        except SluiceError as error:
            if error.at is not None:
                error.location, error.at = _location(text, error.at), None
            raise

    return locating


def _location(text: str, at: object) -> Location | None:
    r"""Return the location of a place, underlined up to the end of its first line.

    The sentinel token after the last token is at the end of the text. The result is None for a node without
    any position.

    >>> _location("SELECT x\nFROM A", (9, 13))
    Location(line=2, column=1, text='SELECT x\nFROM A', length=4, file=None)
    """
    match at:
        case exp.Expr():
            spans = [(n.meta["start"], n.meta["end"] + 1) for n in at.walk() if "start" in n.meta]
            if not spans:
                return None
            start, end = min(s for s, _ in spans), max(e for _, e in spans)
        case Token():
            end = at.end + 1 if at else len(text.rstrip())
            start = at.start if at else end
        case (int(start), int(end)):
            pass
        case _:
            raise TypeError(f"{at!r} is not a place in a text")
    start = min(max(start, 0), len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    return Location(
        line=text.count("\n", 0, start) + 1,
        column=start - line_start + 1,
        text=text,
        length=max(min(end, line_end) - start, 1),
    )
