from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.columns.arrow_types import arrow_schema, arrow_type, canonical_type
from catalog.errors import UnknownType
from catalog.values.stream import SIMPLE_TYPES, Column, HttpSource, Stream


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("BigInt", "bigint"),
        ("integer", "int"),
        ("long", "bigint"),
        ("smallint", "int"),
        ("float", "double"),
        ("double precision", "double"),
        ("real", "double"),
        ("text", "string"),
        ("VARCHAR(20)", "string"),
        ("character varying (20)", "string"),
        ("bool", "boolean"),
        ("timestamptz", "timestamp"),
        ("timestamp(6)", "timestamp"),
        ("timestamp with time zone", "timestamp"),
        ("datetime", "timestamp"),
        ("numeric(10, 2)", "decimal(10,2)"),
        ("DECIMAL(5)", "decimal(5,0)"),
        ("decimal(38,38)", "decimal(38,38)"),
    ],
)
def test_aliases_name_canonical_types(text: str, canonical: str) -> None:
    assert canonical_type(text) == canonical
    assert canonical_type(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "primary", "hint"),
    [
        ("bigin", 'type "bigin" does not exist', 'Did you mean "bigint"?'),
        ("blob", 'type "blob" does not exist', None),
        ("int(3)", 'type "int(3)" does not exist', 'Did you mean "int32"?'),
        ("", 'type "" does not exist', None),
        ("decimal", 'type "decimal" lacks its number of digits', "Write digits and scale: decimal(10,2)."),
        ("decimal(39,0)", 'type "decimal(39,0)" is out of range', "A decimal has 1 to 38 digits"),
        ("decimal(2,3)", 'type "decimal(2,3)" is out of range', "A decimal has 1 to 38 digits"),
        ("decimal(0)", 'type "decimal(0)" is out of range', "A decimal has 1 to 38 digits"),
    ],
)
def test_other_texts_are_refused_with_the_nearest_type(text: str, primary: str, hint: str | None) -> None:
    with pytest.raises(UnknownType) as caught:
        canonical_type(text)
    assert caught.value.primary == primary
    assert (caught.value.hint or "").startswith(hint or "")


def test_a_schema_has_the_declared_columns_in_order() -> None:
    columns = tuple(Column(f"c{i}", t) for i, t in enumerate((*SIMPLE_TYPES, "decimal(10,2)")))
    schema = arrow_schema(Stream(1, "S", columns, "c6", 0, HttpSource()))
    assert schema.names == [c.name for c in columns]
    assert schema.types[-2:] == [pa.timestamp("us"), pa.decimal128(10, 2)]


def test_only_canonical_types_have_an_arrow_type() -> None:
    with pytest.raises(UnknownType, match="not canonical"):
        arrow_type("varchar")
