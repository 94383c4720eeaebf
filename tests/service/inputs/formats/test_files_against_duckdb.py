"""Files of any dialect, type and damage, read by Sluice and by DuckDB.

What Sluice reads DuckDB reads to the same values. What Sluice refuses DuckDB refuses, too, but for numbers
that it would round to fit their column. A short form runs always, a long one with the slow tests.
"""

from __future__ import annotations

import datetime as dt
import re
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.values.stream import Column
from tests.service.inputs.formats.reading import read_text
from tests.service.inputs.formats.test_parquet import read_table

COLUMNS = (
    Column("ts", "timestamp"),
    Column("k", "bigint"),
    Column("x", "double"),
    Column("m", "decimal(10,2)"),
    Column("b", "boolean"),
    Column("d", "date"),
    Column("s", "string"),
)
DUCKDB_TYPES = {"timestamp": "TIMESTAMPTZ", "string": "VARCHAR"}
SHORT = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=4000, deadline=None, suppress_health_check=list(HealthCheck))

_moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
_null = st.just(None)


@dataclass(frozen=True)
class CsvFile:
    """A file, as Sluice and as DuckDB are told to read it."""

    text: str
    newline: str
    dialect: dict[str, Any]


@st.composite
def csv_files(draw: st.DrawFn) -> CsvFile:
    delimiter, point, thousands = draw(
        st.sampled_from(
            ((",", ".", None), (";", ",", "."), ("\t", ".", ","), ("|", ".", None), (";", ",", None))
        )
    )
    quote, escape = draw(st.sampled_from((('"', None), ("'", None), ('"', "\\"))))
    newline = draw(st.sampled_from(("\n", "\r\n")))
    null = draw(st.sampled_from(("", "NA")))
    time_format = draw(st.sampled_from((None, "%d.%m.%Y %H:%M:%S")))
    zone = draw(st.sampled_from((None, "Europe/Berlin", "America/New_York")))

    def number(digits: str) -> str:
        whole, dot, fraction = digits.partition(".")
        if thousands is not None and draw(st.booleans()):
            sign = whole[:1] if whole.startswith("-") else ""
            whole = sign + f"{int(whole.lstrip('-')):,}".replace(",", thousands)
        return whole + dot.replace(".", point) + fraction

    def texts() -> list[str | None]:
        moment = draw(_moments)
        written = (
            moment.strftime(time_format) if time_format else moment.isoformat(draw(st.sampled_from(" T")))
        )
        return [
            written
            if time_format or zone or draw(st.booleans())
            else written + draw(st.sampled_from(("Z", "+02:00"))),
            draw(_null | st.integers(-(2**63), 2**63 - 1).map(str).map(number)),
            draw(
                _null
                | st.decimals(-(10**6), 10**6, places=3).map(str).map(number)
                | st.sampled_from(("nan", "-inf"))
            ),
            draw(_null | st.decimals(-(10**6), 10**6, places=2).map(str).map(number)),
            draw(_null | st.sampled_from(("true", "False", "t", "no", "1"))),
            draw(_null | st.dates(dt.date(1000, 1, 1)).map(str)),
            draw(_null | st.text(f"ab {quote}{delimiter}é", max_size=6) | st.just(f"x{newline}y")),
        ]

    def field(text: str | None) -> str:
        if text is None:
            return null
        must = any(mark in text for mark in (quote, delimiter, "\n", "\r")) or text.startswith(" ")
        if not (must or text == null or draw(st.integers(0, 4)) == 0):
            return text
        inner = text.replace(escape, escape * 2) if escape else text
        return quote + inner.replace(quote, (escape or quote) + quote) + quote

    rows = [delimiter.join(column.name for column in COLUMNS)]
    rows += [delimiter.join(field(text) for text in texts()) for _ in range(draw(st.integers(1, 4)))]
    text = newline.join(rows) + draw(st.sampled_from((newline, "")))
    text = _damaged(draw, text, newline, (quote, delimiter, newline, "7", "z", " "))
    dialect = {
        "delimiter": delimiter,
        "quote": quote,
        "escape": escape,
        "null_values": (null,),
        "timestamp_format": time_format,
        "timezone": zone,
        "decimal_point": point,
        "thousands": thousands,
    }
    return CsvFile(text, newline, dialect)


def _damaged(draw: st.DrawFn, text: str, newline: str, marks: tuple[str, ...]) -> str:
    """Leave out, put in or cut off some characters behind the header; a line end is one."""
    tokens = re.findall(r"\r\n|.", text, re.DOTALL)
    begin = tokens.index(newline) + 1
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        if begin >= len(tokens):
            break
        at = draw(st.integers(begin, len(tokens) - 1))
        match draw(st.sampled_from(("out", "in", "cut"))):
            case "out":
                del tokens[at]
            case "in":
                tokens.insert(at, draw(st.sampled_from(marks)))
            case "cut":
                del tokens[at:]
    return "".join(tokens)


def read_by_duckdb(path: Path, file: CsvFile) -> list[tuple[object, ...]] | str:
    dialect = file.dialect
    is_formatted = dialect["timestamp_format"] is not None  # then without a zone, which the format lacks
    named = {c.name: DUCKDB_TYPES.get(c.type, c.type.upper()) for c in COLUMNS}
    types = ", ".join(
        f"'{n}': '{'TIMESTAMP' if n == 'ts' and is_formatted else t}'" for n, t in named.items()
    )
    moment = "timezone(current_setting('TimeZone'), ts)" if is_formatted else "ts"
    options: dict[str, Any] = {
        "delim": dialect["delimiter"],
        "quote": dialect["quote"],
        "escape": dialect["escape"] or dialect["quote"],
        "nullstr": dialect["null_values"][0],
        "decimal_separator": dialect["decimal_point"],
        "new_line": file.newline.replace("\r", "\\r").replace("\n", "\\n"),
    }
    if dialect["thousands"] is not None:
        options["thousands"] = dialect["thousands"]
    if is_formatted:
        options["timestampformat"] = dialect["timestamp_format"]
    given_options = ", ".join(f"{name} = ${name}" for name in options)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"SET TimeZone = '{dialect['timezone'] or 'UTC'}'")
        try:
            return connection.execute(
                f"SELECT epoch_us({moment}), * EXCLUDE ts FROM read_csv('{path}', auto_detect = false, "
                f"header = true, columns = {{{types}}}, {given_options})",
                options,
            ).fetchall()
        except duckdb.Error as error:
            return str(error)


def agree_on_csv(file: CsvFile) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "x.csv")
        ours = read_text(path, file.text, columns=COLUMNS, **file.dialect)
        theirs = read_by_duckdb(path, file)
    if isinstance(ours, str):
        assert isinstance(theirs, str) or _is_stricter(ours), (ours, theirs)
        return
    assert not isinstance(theirs, str), (ours, theirs)
    nulls = file.dialect["null_values"]
    assert [_comparable(row, nulls) for row in ours] == [_comparable(row, nulls) for row in theirs]


def _is_stricter(reason: str) -> bool:
    """Tell whether a value is refused that DuckDB would have rounded, or a time that its zone leaves out."""
    return bool(re.search(r'column "(k|m|ts|d)": ', reason))


def _comparable(row: tuple[Any, ...], nulls: tuple[str, ...]) -> tuple[object, ...]:
    """A row whose NaNs are equal, whose time is a number, and whose quoted NULL texts are NULL."""
    first, *others, text = row
    if isinstance(first, dt.datetime):
        first = (first - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    plain = [str(value) if isinstance(value, float) and value != value else value for value in others]
    return (first, *plain, None if text in nulls else text)


@SHORT
@given(file=csv_files())
def test_csv_files_are_read_as_duckdb_reads_them(file: CsvFile) -> None:
    agree_on_csv(file)


@pytest.mark.slow
@LONG
@given(file=csv_files())
def test_many_csv_files_are_read_as_duckdb_reads_them(file: CsvFile) -> None:
    agree_on_csv(file)


PHYSICAL = st.sampled_from(
    (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.date32()),
        *(pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")),
        *(pa.decimal128(5, 2), pa.decimal128(18, 0), pa.decimal128(38, 10), pa.decimal256(40, 2)),
    )
)
DECLARED = st.sampled_from(
    ("boolean", "int", "bigint", "double", "string", "date", "timestamp", "decimal(10,2)", "decimal(20,0)")
)


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """A column of a Parquet file with values that its type just holds."""
    type_ = draw(PHYSICAL)
    if pa.types.is_integer(type_):
        low = 0 if pa.types.is_unsigned_integer(type_) else -(2 ** (type_.bit_width - 1))
        values = st.integers(low, low + 2**type_.bit_width - 1)
    elif pa.types.is_decimal(type_):
        most = 10 ** min(type_.precision, 38) - 1
        values = st.integers(-most, most).map(lambda digits: Decimal(f"{digits}E-{type_.scale}"))
    elif pa.types.is_floating(type_):
        values = st.floats(width=type_.bit_width, allow_nan=False)
    elif pa.types.is_timestamp(type_):
        far = (1700, 2200) if type_.unit == "ns" else (1, 9999)
        values = st.datetimes(dt.datetime(far[0], 1, 1), dt.datetime(far[1], 12, 31))
    else:
        values = {
            pa.bool_(): st.booleans(),
            pa.binary(): st.binary(max_size=3),
            pa.date32(): st.dates(),
        }.get(type_, st.text("aé1", max_size=3))
    found = draw(st.lists(_null | values, min_size=1, max_size=4))
    if pa.types.is_timestamp(type_) and type_.unit == "ms":
        found = [None if v is None else v.replace(microsecond=v.microsecond // 1000 * 1000) for v in found]
    array = pa.array(found, type_)
    if pa.types.is_timestamp(type_) or pa.types.is_binary(type_) or not draw(st.booleans()):
        return array
    return array.dictionary_encode()


def agree_on_parquet(values: pa.Array, declared: str, int96: bool) -> None:
    times = pa.array([0] * len(values), pa.int64()).cast(pa.timestamp("us"))
    stream_columns = (Column("ts", "timestamp"), Column("c", declared))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "x.parquet")
        table = pa.table({"ts": times, "c": values})
        ours = read_table(path, table, stream_columns, use_deprecated_int96_timestamps=int96)
        if isinstance(ours, str):
            assert ours.startswith('it is of another schema: column "c" is '), ours
            return
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            type_ = DUCKDB_TYPES.get(declared, declared).replace("TIMESTAMPTZ", "TIMESTAMP")
            theirs = connection.execute(f"SELECT c::{type_} FROM '{path}'").fetchall()
    assert [row[1] for row in ours] == [row[0] for row in theirs]


@SHORT
@given(values=columns(), declared=DECLARED, int96=st.booleans())
def test_parquet_columns_are_converted_exactly_or_refused_by_name(
    values: pa.Array, declared: str, int96: bool
) -> None:
    agree_on_parquet(values, declared, int96)


@pytest.mark.slow
@LONG
@given(values=columns(), declared=DECLARED, int96=st.booleans())
def test_many_parquet_columns_are_converted_exactly_or_refused_by_name(
    values: pa.Array, declared: str, int96: bool
) -> None:
    agree_on_parquet(values, declared, int96)
