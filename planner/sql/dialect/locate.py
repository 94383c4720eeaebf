"""Locations of tokens and parsed expressions in the CQL text.

sqlglot keeps the source offsets of names and literals in ``Expr.meta``; an operator spans its operands.
"""

from __future__ import annotations

from sqlglot import Token, exp

from catalog.errors import Location


def at_offsets(text: str, start: int, end: int) -> Location:
    r"""Return the location of ``text[start:end]``, underlined up to the end of its first line.

    >>> at_offsets("SELECT x\nFROM A", 9, 13)
    Location(line=2, column=1, text='SELECT x\nFROM A', length=4, file=None)
    """
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


def at_token(text: str, token: Token) -> Location:
    """Return the location of a token; for the sentinel after the last token, the end of the text."""
    if not token:
        end = len(text.rstrip())
        return at_offsets(text, end, end + 1)
    return at_offsets(text, token.start, token.end + 1)


def at_expression(text: str, node: exp.Expr) -> Location | None:
    """Return the location that covers all positions in ``node``, or None if it has none."""
    spans = [(n.meta["start"], n.meta["end"]) for n in node.walk() if "start" in n.meta]
    if not spans:
        return None
    return at_offsets(text, min(s for s, _ in spans), max(e for _, e in spans) + 1)
