"""Files of any dialect, type and damage, read by Sluice and by DuckDB.

What Sluice reads DuckDB reads to the same values. What Sluice refuses DuckDB refuses, too, but for what it
would change: numbers that it rounds, times that their zone leaves out, lines that are not JSON. A short form
runs always, a long one with the slow tests.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
import re
import tempfile
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

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
#: DuckDB also reads years of fewer digits, and more, which are most likely mistakes.
ISO_DATE = re.compile(r"\d{4}-\d\d?-\d\d?")
ISO_TIME = re.compile(ISO_DATE.pattern + r"[ T]\d\d?:\d\d(:\d\d(\.\d{1,6})?)?\s*(Z|[+-]\d\d(:?\d\d)?)?")
ENCODINGS = st.sampled_from(("utf-8", "utf-8", "cp1252", "utf-16", "utf-16-be"))
SHORT = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=4000, deadline=None, suppress_health_check=list(HealthCheck))

_moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
_null = st.just(None)


@dataclass(frozen=True)
class TextFile:
    """A file, as Sluice and as DuckDB are told to read it."""

    text: str
    newline: str
    dialect: dict[str, Any]

    @property
    def zone(self) -> ZoneInfo:
        """Zone of times without one."""
        return ZoneInfo(self.dialect["timezone"] or "UTC")

    def read(self, path: Path) -> list[tuple[object, ...]] | str:
        """What Sluice reads."""
        text = self.text.encode(self.dialect["encoding"])
        return read_text(path, text, file_format=path.suffix[1:], columns=COLUMNS, **self.dialect)


@st.composite
def csv_files(draw: st.DrawFn) -> TextFile:
    delimiter, point, thousands = draw(
        st.sampled_from(
            ((",", ".", None), (";", ",", "."), ("\t", ".", ","), ("|", ".", None), (";", ",", None))
        )
    )
    quote, escape = draw(st.sampled_from((('"', None), ("'", None), ('"', "\\"))))
    newline = draw(st.sampled_from(("\n", "\r\n")))
    null = draw(st.sampled_from(("", "NA")))
    time_format = draw(st.sampled_from((None, "%d.%m.%Y %H:%M:%S")))
    date_format = draw(st.sampled_from((None, None, "%d/%m/%Y")))
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
            draw(
                _null
                | st.integers(-(2**63), 2**63 - 1).map(str).map(number)
                | st.sampled_from(("1e3", "-25E1", "+10e-1", "15e-1"))
            ),
            draw(
                _null
                | st.decimals(-(10**6), 10**6, places=3).map(str).map(number)
                | st.sampled_from(("nan", "-inf"))
            ),
            draw(_null | st.decimals(-(10**6), 10**6, places=2).map(str).map(number)),
            draw(_null | st.sampled_from(("true", "False", "t", "no", "1"))),
            draw(
                _null | st.dates(dt.date(1000, 1, 1)).map(lambda day: day.strftime(date_format or "%Y-%m-%d"))
            ),
            draw(_null | st.text(f"ab {quote}{delimiter}é", max_size=6) | st.just(f"x{newline}y")),
        ]

    def field(text: str | None) -> str:
        if text is None:
            return null
        must = any(mark in text for mark in (quote, delimiter, "\n", "\r")) or text.startswith(" ")
        if not (must or text == null or draw(st.integers(0, 4)) == 0):
            return text
        inner = text.replace(escape, escape * 2) if escape else text
        spaces = " " * draw(st.sampled_from((0, 0, 0, 1, 2)))
        return quote + inner.replace(quote, (escape or quote) + quote) + quote + spaces

    skipped = draw(st.lists(st.sampled_from(("# of May", "", delimiter, "é")), max_size=2))
    header = draw(st.booleans())
    names = [delimiter.join(column.name for column in COLUMNS)] if header else []
    head = "".join(f"{line}{newline}" for line in skipped + names)
    rows = [delimiter.join(field(text) for text in texts()) for _ in range(draw(st.integers(1, 4)))]
    text = newline.join(rows) + draw(st.sampled_from((newline, "")))
    text = head + _damaged(draw, text, (quote, delimiter, newline, "7", "z", " "))
    dialect = {
        "encoding": draw(ENCODINGS),
        "header": header,
        "skip_rows": len(skipped),
        "delimiter": delimiter,
        "quote": quote,
        "escape": escape,
        "null_values": (null,),
        "timestamp_format": time_format,
        "date_format": date_format,
        "timezone": zone,
        "decimal_point": point,
        "thousands": thousands,
    }
    return TextFile(text, newline, dialect)


def _damaged(draw: st.DrawFn, text: str, marks: tuple[str, ...]) -> str:
    """Leave out, put in or cut off some characters; a line end is one."""
    tokens = re.findall(r"\r\n|.", text, re.DOTALL)
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        if not tokens:
            break
        at = draw(st.integers(0, len(tokens) - 1))
        match draw(st.sampled_from(("out", "in", "cut"))):
            case "out":
                del tokens[at]
            case "in":
                tokens.insert(at, draw(st.sampled_from(marks)))
            case "cut":
                del tokens[at:]
    return "".join(tokens)


def read_by_duckdb(path: Path, file: TextFile) -> list[tuple[object, ...]] | str:
    dialect = file.dialect
    is_formatted = dialect["timestamp_format"] is not None  # then without a zone, which the format lacks
    named = {c.name: DUCKDB_TYPES.get(c.type, c.type.upper()) for c in COLUMNS}
    types = ", ".join(
        f"'{n}': '{'TIMESTAMP' if n == 'ts' and is_formatted else t}'" for n, t in named.items()
    )
    moment = "timezone(current_setting('TimeZone'), ts)" if is_formatted else "ts"
    options: dict[str, Any] = {
        "header": dialect["header"],
        "skip": dialect["skip_rows"],
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
    if dialect["date_format"] is not None:
        options["dateformat"] = dialect["date_format"]
    given_options = ", ".join(f"{name} = ${name}" for name in options)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"SET TimeZone = '{dialect['timezone'] or 'UTC'}'")
        try:
            return connection.execute(
                f"SELECT epoch_us({moment}), * EXCLUDE ts FROM read_csv('{path}', auto_detect = false, "
                f"columns = {{{types}}}, {given_options})",
                options,
            ).fetchall()
        except duckdb.Error as error:
            return str(error)


def agree_on_csv(file: TextFile) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "x.csv")
        ours = file.read(path)
        path.write_bytes(file.text.encode())  # DuckDB knows few encodings
        theirs = read_by_duckdb(path, file)
    compare(ours, theirs, file, file.dialect["null_values"])


def compare(
    ours: list[tuple[object, ...]] | str,
    theirs: list[tuple[object, ...]] | str,
    file: TextFile,
    nulls: tuple[str, ...],
) -> None:
    """Compare what was read; what Sluice refuses DuckDB refuses, or changes."""
    if isinstance(ours, str):
        assert isinstance(theirs, str) or _is_changed(ours, theirs, file), (ours, theirs)
        return
    assert not isinstance(theirs, str), (ours, theirs)
    assert [_comparable(row, nulls) for row in ours] == [_comparable(row, nulls) for row in theirs]


def _is_changed(reason: str, theirs: list[tuple[object, ...]], file: TextFile) -> bool:
    """Return whether what is refused was changed by DuckDB: a value, or a line that is not a JSON object."""
    if reason.startswith("it is of another schema: no row has the event time"):
        return all(row[0] is None for row in theirs)
    if found := re.match(r"row \d+ \(line (\d+)\) is not (JSON|a JSON object): ", reason):
        try:
            return not isinstance(json.loads(file.text.split("\n")[int(found[1]) - 1]), dict)
        except ValueError:
            return True
    found = re.match(r"""row (\d+) \(line \d+\), column "(\w+)": (.+?) is not (an?|of) """, reason, re.DOTALL)
    if found is None:
        return False
    text = str(ast.literal_eval(found[3])).strip()
    read = theirs[int(found[1]) - 1][[column.name for column in COLUMNS].index(found[2])]
    if found[2] in ("k", "m"):
        separator = file.dialect.get("thousands")
        if separator and re.search(
            rf"{re.escape(separator)}(?![0-9]{{3}}(?![0-9]))|^[+-]?{re.escape(separator)}", text
        ):
            return True  # DuckDB leaves separators out wherever they stand
        digits = text.replace(file.dialect.get("thousands") or "\0", "").replace(
            file.dialect.get("decimal_point", "."), "."
        )
        try:
            return Decimal(digits) != read
        except InvalidOperation:
            return False
    if found[2] == "d":
        return file.dialect.get("date_format") is None and not ISO_DATE.fullmatch(text)
    if found[2] == "ts":
        form = file.dialect.get("timestamp_format")
        if form is None and not ISO_TIME.fullmatch(text):
            return True
        try:
            written = dt.datetime.strptime(text, form) if form else dt.datetime.fromisoformat(text)
        except ValueError:
            return form is not None
        utc = written.replace(tzinfo=written.tzinfo or file.zone).astimezone(dt.UTC)
        kept = utc.astimezone(file.zone).replace(tzinfo=None) == written.replace(tzinfo=None)
        return written.tzinfo is None and not kept
    return False


def _comparable(row: tuple[Any, ...], nulls: tuple[str, ...]) -> tuple[object, ...]:
    """A row whose NaNs are equal, whose time is a number, and whose quoted NULL texts are NULL."""
    first, *others, text = row
    if isinstance(first, dt.datetime):
        first = (first - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    plain = [str(value) if isinstance(value, float) and value != value else value for value in others]
    return (first, *plain, None if text in nulls else text)


@SHORT
@given(file=csv_files())
def test_csv_files_are_read_as_duckdb_reads_them(file: TextFile) -> None:
    agree_on_csv(file)


@pytest.mark.slow
@LONG
@given(file=csv_files())
def test_many_csv_files_are_read_as_duckdb_reads_them(file: TextFile) -> None:
    agree_on_csv(file)


@st.composite
def json_files(draw: st.DrawFn) -> TextFile:
    zone = draw(st.sampled_from((None, "Europe/Berlin", "America/New_York")))

    def texts() -> dict[str, str]:
        moment = draw(_moments).isoformat(draw(st.sampled_from(" T")))
        moment += "" if zone else draw(st.sampled_from(("", "Z", "+02:00")))
        written = {
            "ts": json.dumps(moment),
            "k": draw(st.integers(-(2**63), 2**63 - 1).map(str)),
            "x": draw(
                st.decimals(-(10**6), 10**6, places=3).map(str) | st.sampled_from(("-0", "1e3", '"nan"'))
            ),
            "m": draw(st.decimals(-(10**6), 10**6, places=2).map(str)),
            "b": draw(st.sampled_from(("true", "false"))),
            "d": json.dumps(str(draw(st.dates(dt.date(1000, 1, 1))))),
            "s": json.dumps(draw(st.text('ab "\\é\n', max_size=6)), ensure_ascii=draw(st.booleans())),
            "other": '[1, {"k": 2}]',
        }
        for name in draw(st.lists(st.sampled_from(("k", "m")), max_size=1)):
            written[name] = json.dumps(written[name])
        for name in draw(st.lists(st.sampled_from(tuple(written)), max_size=2, unique=True)):
            if name == "ts" or draw(st.booleans()):
                continue
            written[name] = "null"
        left_out = draw(st.lists(st.sampled_from(tuple(written)[1:]), max_size=2))
        return {name: written[name] for name in draw(st.permutations(list(written))) if name not in left_out}

    def row() -> str:
        comma, colon = draw(st.sampled_from((",", ", ", " ,"))), draw(st.sampled_from((":", ": ")))
        return "{" + comma.join(f'"{name}"{colon}{text}' for name, text in texts().items()) + "}"

    newline = draw(st.sampled_from(("\n", "\r\n", "\n\n")))
    text = newline.join(row() for _ in range(draw(st.integers(1, 4)))) + draw(st.sampled_from((newline, "")))
    text = _damaged(draw, text, ('"', ",", ":", "{", "}", "\n", "7", "z", " ", "-"))
    return TextFile(text, newline, {"timezone": zone, "encoding": draw(ENCODINGS)})


def agree_on_json(file: TextFile) -> None:
    with tempfile.TemporaryDirectory() as name, duckdb.connect(config={"threads": 1}) as connection:
        path = Path(name, "x.jsonl")
        ours = file.read(path)
        path.write_bytes(file.text.encode())  # DuckDB knows one encoding
        named = {c.name: DUCKDB_TYPES.get(c.type, c.type.upper()) for c in COLUMNS}
        named["ts"] = "VARCHAR"  # read_json ignores the zone
        types = ", ".join(f"{column}: '{type_}'" for column, type_ in named.items())
        connection.execute(f"SET TimeZone = '{file.zone}'")
        theirs: list[tuple[object, ...]] | str
        try:
            theirs = connection.execute(
                "SELECT epoch_us(ts::TIMESTAMPTZ), * EXCLUDE ts "
                f"FROM read_json('{path}', format = 'newline_delimited', columns = {{{types}}})"
            ).fetchall()
        except duckdb.Error as error:
            theirs = str(error)
    compare(ours, theirs, file, ())


@SHORT
@given(file=json_files())
def test_json_lines_are_read_as_duckdb_reads_them(file: TextFile) -> None:
    agree_on_json(file)


@pytest.mark.slow
@LONG
@given(file=json_files())
def test_many_json_lines_are_read_as_duckdb_reads_them(file: TextFile) -> None:
    agree_on_json(file)


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
