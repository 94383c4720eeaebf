"""Filters that compare a column with a number, as ``Threshold``: operators evaluate many of them together."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, Literal

from catalog.values.plan import Threshold
from planner.predicates.conditions import Atom, Condition
from planner.predicates.constants import DOUBLE_DIGITS, constant_text
from planner.predicates.read_condition import column_name

#: Operator, by (whether the numbers below the bound pass, whether the bound counts as one of them).
_OPERATORS: Final[dict[tuple[bool, bool], Literal["<", "<=", ">", ">="]]] = {
    (True, False): "<",
    (True, True): "<=",
    (False, True): ">",
    (False, False): ">=",
}


def threshold(condition: Condition) -> Threshold | None:
    """Return a filter as a comparison of a column with a number, or None if it is another condition.

    >>> from planner.predicates.read_condition import read_condition
    >>> threshold(read_condition('"v" <= 2.5'))
    Threshold(column='v', operator='<=', number=2.5)
    >>> [threshold(read_condition(text)) for text in ('"v" <= 2 AND "w" > 1', '"v" = 1', '"v" < "w"')]
    [None, None, None]
    """
    if not isinstance(condition, Atom) or len(condition.values.cuts) != 1 or condition.domain != "number":
        return None
    column, ((number, behind),) = column_name(condition.text), condition.values.cuts
    assert isinstance(number, Decimal)
    if column is None or sum(map(str.isdigit, constant_text(number, "number"))) > DOUBLE_DIGITS:
        return None
    whole = number == number.to_integral_value()
    operator = _OPERATORS[condition.values.low, behind]
    return Threshold(column, operator, int(number) if whole else float(number))
