"""Canonical column types, their aliases, and the Arrow types that carry them.

Arrow timestamps are stored without a time zone and mean UTC. In every Arrow buffer, an event time is
therefore an int64 number of microseconds.
"""

from __future__ import annotations

import re

import pyarrow as pa

from catalog.errors import UnknownType
from catalog.values.stream import SIMPLE_TYPES, Stream
from catalog.wording.wording import did_you_mean

#: Column that ``service.inputs`` adds to rows: the row's position in its source, int64, unique in the stream.
POSITION_COLUMN = "_pos"
#: Column that readers add to streams with punctuations. In a punctuation, it holds a JSON array of the names
#: of the fixed columns (``punctuation_marks``); in an ordinary row, it is NULL.
PUNCTUATION_COLUMN = "_punctuation"
#: Column of the punctuations in a control record: exclusive end of the range that a punctuation closes. The
#: value of the fixed column in the same row is the beginning of the range.
BELOW_COLUMN = "_below"

#: Most digits that decimal128 can hold.
MAX_DECIMAL_PRECISION = 38

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}

_ALIASES = {
    alias: canonical
    for canonical, aliases in (
        ("boolean", "bool logical"),
        ("int", "integer int4 int32 smallint int2 int16 short tinyint int1 int8 byte"),
        ("bigint", "long int64"),
        ("double", "float real float4 float8 float32 float64 double_precision"),
        ("string", "text varchar char str utf8 character_varying character"),
        ("date", "date32"),
        ("timestamp", "timestamptz datetime timestamp_ntz timestamp_ltz timestamp_us"),
    )
    for alias in aliases.split()
}
# PostgreSQL's long names. Both mean the canonical type, whose values are always in UTC.
_ALIASES["timestamp_with_time_zone"] = _ALIASES["timestamp_without_time_zone"] = "timestamp"

_PARAMETRISED = re.compile(r"([a-z_0-9]+)_?\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def canonical_type(text: str) -> str:
    """Return the canonical column type that a text names.

    >>> canonical_type("INTEGER"), canonical_type("numeric(10, 2)"), canonical_type("varchar(20)")
    ('int', 'decimal(10,2)', 'string')

    Args:
        text: Type as people write it, in any case, with the aliases of common SQL dialects.

    Raises:
        UnknownType: The text does not name a type, a decimal type lacks its number of digits, or its digits
            or scale are out of range.
    """
    folded = "_".join(text.lower().split())
    folded = re.sub(r"_*([(,)])_*", r"\1", folded)
    if folded in SIMPLE_TYPES:
        return folded
    if folded in _ALIASES:
        return _ALIASES[folded]
    if match := _PARAMETRISED.fullmatch(folded):
        base, first, second = match[1], int(match[2]), int(match[3] or 0)
        if base in ("decimal", "numeric", "dec"):
            return _decimal(text, first, second)
        if match[3] is None and _ALIASES.get(base) in ("string", "timestamp"):
            return _ALIASES[base]  # Sluice does not enforce the length or precision
        if match[3] is None and base == "timestamp":
            return base
    if folded in ("decimal", "numeric", "dec"):
        raise UnknownType(
            f'type "{text}" lacks its number of digits', hint="Write digits and scale: decimal(10,2)."
        )
    raise UnknownType(
        f'type "{text}" does not exist',
        detail=f"The types are {', '.join(SIMPLE_TYPES)} and decimal(p,s).",
        hint=did_you_mean(folded, [*SIMPLE_TYPES, *_ALIASES, "decimal", "numeric"]),
    )


def _decimal(text: str, precision: int, scale: int) -> str:
    if not (1 <= precision <= MAX_DECIMAL_PRECISION and scale <= precision):
        raise UnknownType(
            f'type "{text}" is out of range',
            hint=f"A decimal has 1 to {MAX_DECIMAL_PRECISION} digits, and its scale is at most its number of "
            "digits.",
        )
    return f"decimal({precision},{scale})"


def arrow_type(column_type: str) -> pa.DataType:
    """Return the Arrow type of a canonical column type.

    >>> arrow_type("decimal(10,2)")
    Decimal128Type(decimal128(10, 2))

    Raises:
        UnknownType: The type is not canonical.
    """
    simple = _ARROW.get(column_type)
    if simple is not None:
        return simple
    if canonical_type(column_type) != column_type:
        raise UnknownType(
            f'type "{column_type}" is not canonical', hint=f'Write "{canonical_type(column_type)}".'
        )
    precision, scale = column_type[len("decimal(") : -1].split(",")
    return pa.decimal128(int(precision), int(scale))


def arrow_schema(stream: Stream) -> pa.Schema:
    """Return the Arrow schema of a stream's columns, in declared order."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in stream.columns])
