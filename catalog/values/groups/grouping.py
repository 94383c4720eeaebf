"""Groupings: how a query with GROUP BY turns its pairs into groups.

SELECT a.k, TUMBLE(1 HOUR), SUM(b.v) ... GROUP BY a.k, TUMBLE(1 HOUR) HAVING COUNT(*) > 2

A group has the pairs of one join key whose event times lie in one interval of the tumbling window. The values
of a group have names: ``key_0`` is the first key column, ``tumble`` the beginning of the interval,
``count_all`` the number of pairs, ``sum_4f2c81d09a3b`` the sum of the expression with that digest. Outputs
and HAVING of the query are expressions over these names, such as ``g."sum_4f2c81d09a3b"``. The name of a
value depends only on its function and expression, so all queries of a family, in every plan version, use the
same name for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

AggregateFunction = Literal["count", "sum", "avg", "min", "max"]

#: Reason why a group was closed: the watermarks passed its interval, its key is finished, or the query left
#: the plan.
ClosedBy = Literal["watermark", "punctuation", "leave"]

#: Names of values that every group has besides its key columns and aggregates.
TUMBLE = "tumble"
COUNT_ALL = "count_all"
CLOSED_BY = "closed_by"


def key_name(number: int) -> str:
    """Return the name of a key column of a group; the column has side a's value and type."""
    return f"key_{number}"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate function of an expression over the pairs of a group.

    Attributes:
        function: The function.
        argument: Expression over ``a."column"`` and ``b."column"``; the function ignores its NULLs.
        type: Canonical type of the argument.
    """

    function: AggregateFunction
    argument: str
    type: str

    @property
    def digest(self) -> str:
        """Digest of the argument, the same in every process."""
        text = f"{self.type} {self.argument}"
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    @property
    def sql(self) -> str:
        """Text of the argument, cast to its type; NULL if the cast fails."""
        return f"TRY_CAST(({self.argument}) AS {self.type})"

    @property
    def name(self) -> str:
        """Name of the aggregate's value in a group."""
        return f"{self.function}_{self.digest}"

    @property
    def result_type(self) -> str:
        """Canonical type of the aggregate's value in a group.

        >>> Aggregate("sum", 'a."v"', "int").result_type
        'bigint'
        >>> Aggregate("sum", 'a."v"', "decimal(9,2)").result_type
        'decimal(38,2)'
        """
        if self.function == "count":
            return "bigint"
        if self.function == "avg":
            return "double"
        if self.function == "sum" and self.type != "double":
            scale = self.type.removesuffix(")").rpartition(",")[2]
            return f"decimal(38,{scale})" if self.type.startswith("decimal") else "bigint"
        return self.type


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups, aggregates and HAVING of a query with GROUP BY.

    Attributes:
        tumble_us: Length of the intervals of event time, µs; each interval begins at a multiple of this
            length since 1970. None if there are no intervals: a group then has all pairs of its key, and
            punctuations close it.
        aggregates: Aggregates that the query's outputs and HAVING read, by name.
        having: Condition over ``g."name"`` that a group must satisfy; None if every group is a result.
        columns: Columns that the key and the arguments read, as (side, column), sorted.
    """

    tumble_us: int | None
    aggregates: tuple[Aggregate, ...]
    having: str | None
    columns: tuple[tuple[Literal["a", "b"], str], ...]

    @property
    def width_us(self) -> int:
        """Length of the intervals, µs; 0 without intervals."""
        return self.tumble_us or 0

    def values(self, key_types: Sequence[str]) -> dict[str, str]:
        """Return the canonical types of the values of a group, by name of the value.

        Args:
            key_types: Types of the key columns, as side a has them.
        """
        types = {key_name(number): kind for number, kind in enumerate(key_types)}
        types |= {TUMBLE: "timestamp", COUNT_ALL: "bigint", CLOSED_BY: "string"}
        return types | {each.name: each.result_type for each in self.aggregates}

    def __post_init__(self) -> None:
        """Refuse intervals without length."""
        if self.tumble_us is not None and self.tumble_us < 1:
            raise ValueError(f"an interval has at least 1 µs, not {self.tumble_us} µs")
