"""Constants of conditions: values that Python orders as DuckDB does, and their DuckDB text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from catalog.sql_text import text_literal
from planner.predicates.value_sets import Value

#: Kinds of constants. ``double``: both sides are compared as doubles. ``order``: two expressions a and b are
#: compared, and a < b is stored as "the order of a and b is less than 0". "": there is no constant.
Domain = Literal["number", "double", "string", "date", "timestamp", "boolean", "order", ""]

#: Number of decimal digits that a double keeps exactly. Two numbers with at most this many digits compare in
#: the same way as decimals and as doubles.
DOUBLE_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal whose value Python compares as DuckDB does.

    Attributes:
        domain: Kind of the value.
        value: The value; a number is exact.
    """

    domain: Domain
    value: Value

    @classmethod
    def decimal(cls, text: str) -> Constant | None:
        """Return the constant of a literal without an exponent, or None for fractions of over 15 digits.

        Two longer fractions can be different decimals but equal doubles.

        >>> Constant.decimal("1.50"), Constant.decimal("0.1234567890123456")
        (Constant(domain='number', value=Decimal('1.50')), None)
        """
        digits = text.lstrip("-").replace(".", "").lstrip("0")
        return None if "." in text and len(digits) > DOUBLE_DIGITS else cls("number", Decimal(text))


def constant_text(value: Value, domain: Domain) -> str:
    """Return the DuckDB text of a constant.

    >>> constant_text(Decimal("-1.5"), "number"), constant_text(Decimal(-(2**31)), "number")
    ('-1.5', 'CAST(-2147483648 AS INTEGER)')
    """
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if domain == "double":
        text = repr(value)
        return text if "e" in text else f"{text}e0"
    if value in (-(2**31), -(2**63)):  # DuckDB would read a minus and then a number that is too large.
        return f"CAST({value:f} AS {'INTEGER' if value == -(2**31) else 'BIGINT'})"
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short_decimal(value: float) -> str | None:
    """Return a double as a decimal of at most 15 digits, or None if no such decimal equals the double.

    >>> short_decimal(2e-1), short_decimal(1e3), short_decimal(1e300)
    ('0.2', '1000', None)
    """
    exact = Decimal(repr(value + 0.0))  # -0.0 is 0.0.
    # At most 15 digits without outer zeros, and at most 22 decimal places: up to 10^22, powers of ten are
    # exact doubles.
    if exact and not -7 <= exact.adjusted() < DOUBLE_DIGITS:
        return None
    text = constant_text(exact, "number")
    return text if len(text.replace(".", "").strip("-0")) <= DOUBLE_DIGITS else None
