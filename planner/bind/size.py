"""Limit on the number of conditions of a query.

DuckDB's time to prepare conditions grows faster than their number, and preparation cannot be interrupted. 500
conditions take 1 to 3 s, and 6,000 take minutes, in each task of each batch. A list of values counts as one
condition, whether it is written ``k = 1 OR k = 2 OR k = 3`` or ``k IN (1, 2, 3)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from planner.errors import UnsupportedCql

#: Maximum number of conditions of a query, including the conditions in its select list.
MAX_CONDITIONS = 512

#: Keywords that connect conditions. String literals match first, so words inside them are not counted.
_CONNECTOR = re.compile(r"'(?:[^']|'')*'|\b(AND|OR|WHEN)\b")


def check_size(texts: Iterable[str]) -> None:
    """Refuse a query with too many conditions.

    Args:
        texts: Canonical DuckDB texts of the query's filters, its residual and its result columns.

    Raises:
        UnsupportedCql: The query has more than ``MAX_CONDITIONS`` conditions.
    """
    found = sum(1 + sum(map(bool, _CONNECTOR.findall(text))) for text in texts)
    if found > MAX_CONDITIONS:
        raise UnsupportedCql(
            f"a query of {found:,} conditions is not supported",
            detail="Conditions are the operands of AND, OR and WHEN.",
            hint=f"Write at most {MAX_CONDITIONS} conditions, and lists of values as IN (...).",
        )
