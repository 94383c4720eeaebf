"""Limit on the length of texts that an expression makes, so that no expression needs gigabytes of memory.

Only REPLACE multiplies lengths: if s, t and u have 10,000 characters, ``replace(replace(s, 'a', t), 'b', u)``
may have 10^12. DuckDB's memory limit does not count intermediate texts of a function.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

#: Maximum length, in characters, of a text that REPLACE may make. A call is refused if its result may be
#: longer with the lengths assumed below. In other calls, a result that may be longer is NULL.
MAX_TEXT: Final = 1_000_000
#: Assumed length of the text in a column, in characters.
_COLUMN: Final = 1_000
#: Assumed length of a number or time that is converted to text, in characters.
_OTHER: Final = 400
#: Length of the longest text that LPAD and RPAD make, in characters.
_PADDED: Final = 10_000


def longest_text(node: exp.Expr) -> int:
    """Return the maximum length of a text, counting a column's text as 1,000 characters."""
    match node:
        case exp.Literal():
            return len(node.name) if node.is_string else _OTHER
        case exp.Column():
            return _COLUMN
        case exp.Anonymous() if node.name.upper() == "REPLACE" and len(node.expressions) == 3:
            text, _, to = node.expressions
            return longest_text(text) * max(longest_text(to), 1)
        case exp.Anonymous() if node.name.upper() in ("LPAD", "RPAD"):
            return _PADDED
    return max(sum(longest_text(child) for child in node.iter_expressions()), _OTHER)


def grows(to: exp.Expr, part: exp.Expr) -> bool:
    """Return whether replacing one text by another can make a text longer."""
    if isinstance(to, exp.Literal) and to.is_string:
        least = len(part.name) if isinstance(part, exp.Literal) and part.is_string else 1
        return len(to.name) > least > 0
    return True
