"""What values of every type look like in JSON, CSV and Arrow."""

from __future__ import annotations

import io
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.results.result_formats import (
    arrow_stream,
    csv_text,
    events,
    json_array,
    json_line,
    ndjson,
    parquet,
    result_line,
    rows_for_json,
)


def column(kind: pa.DataType, *values: object) -> pa.Table:
    return pa.table({"x": pa.array(values, kind)})


@pytest.mark.parametrize(
    ("kind", "value", "in_json", "in_csv"),
    [
        (pa.timestamp("us"), datetime(2026, 1, 2, 3, 4, 5, 6), '"2026-01-02T03:04:05.000006Z"', None),
        (pa.timestamp("us"), datetime(1969, 12, 31, 23, 59, 59), '"1969-12-31T23:59:59.000000Z"', None),
        (pa.date32(), date(2026, 1, 2), '"2026-01-02"', None),
        (pa.decimal128(10, 2), Decimal("1.10"), '"1.10"', None),
        (pa.decimal128(20, 9), Decimal("1E-9"), '"0.000000001"', None),
        (pa.decimal128(38, 0), Decimal("9" * 38), '"' + "9" * 38 + '"', None),
        (pa.int64(), 2**63 - 1, "9223372036854775807", None),
        (pa.int32(), -1, "-1", None),
        (pa.bool_(), True, "true", None),
        (pa.float64(), 0.1, "0.1", None),
        (pa.float64(), -0.0, "-0.0", "-0"),
        (pa.float64(), float("nan"), '"NaN"', None),
        (pa.float64(), float("inf"), '"Infinity"', None),
        (pa.float64(), float("-inf"), '"-Infinity"', None),
        (pa.string(), 'ü "q"\n,', '"ü \\"q\\"\\n,"', '"ü ""q""\n,"'),
        (pa.string(), "", '""', None),
        (pa.string(), None, "null", ""),
        (pa.float64(), None, "null", ""),
    ],
)
def test_values_as_text(kind: pa.DataType, value: object, in_json: str, in_csv: str | None) -> None:
    table = column(kind, value)
    assert ndjson(table).decode() == f'{{"x":{in_json}}}\n'
    assert csv_text(table).decode() == f'"x"\n{in_json if in_csv is None else in_csv}\n'


def test_doubles_beside_one_that_is_not_finite_stay_numbers() -> None:
    table = column(pa.float64(), 1.5, float("nan"), None)
    assert ndjson(table) == b'{"x":1.5}\n{"x":"NaN"}\n{"x":null}\n'


def test_no_rows_are_a_header_alone_in_csv_and_nothing_in_ndjson() -> None:
    table = column(pa.timestamp("us"))
    assert csv_text(table) == b'"x"\n'
    assert ndjson(table) == b""
    assert pa.ipc.open_stream(arrow_stream(table)).read_all().schema == table.schema


def test_result_punctuations_are_lines_and_events_of_their_own() -> None:
    table = pa.table({"k": [1, None], "_punctuation": [None, '{"k":1}']})
    assert ndjson(table) == b'{"k":1}\n{"_punctuation":{"k":1}}\n'
    assert [result_line(row) for row in rows_for_json(table)] == ndjson(table).decode().splitlines()
    told = events(table, "result", [pa.array(["1", "2"])]).decode().split("\n\n")
    assert told[:2] == [
        'event: result\ndata: {"k":1}\nid: 1',
        'event: punctuation\ndata: {"_punctuation":{"k":1}}\nid: 2',
    ]


def test_arrow_keeps_types_and_values() -> None:
    table = column(pa.decimal128(10, 2), Decimal("1.10"), None)
    assert pa.ipc.open_stream(arrow_stream(table)).read_all() == table


def test_what_goes_on_has_no_second_header() -> None:
    assert csv_text(column(pa.int64(), 1), header=False) == b"1\n"


def test_a_parquet_file_has_the_types_of_the_results() -> None:
    table = pa.table({"k": pa.array([1, None], pa.int64()), "p": pa.array([Decimal("1.10"), None])})
    assert pq.read_table(io.BytesIO(parquet(table))).equals(table)


#: Columns of every type, of values that are hard to write.
COLUMNS = st.sampled_from(
    [
        (pa.timestamp("us"), st.datetimes()),
        (pa.date32(), st.dates()),
        (pa.decimal128(20, 9), st.decimals(-(10**9), 10**9, places=9)),
        (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        (pa.bool_(), st.booleans()),
        (pa.float64(), st.floats()),
        (pa.string(), st.text(st.characters(codec="utf-8"))),
        (pa.string(), st.text("a\u00fc")),
    ]
)


@settings(max_examples=25)
@given(st.data(), st.integers(0, 5), st.lists(COLUMNS, min_size=1, max_size=4))
def test_json_is_what_python_writes_row_by_row(
    data: st.DataObject, rows: int, columns: list[tuple[pa.DataType, st.SearchStrategy[object]]]
) -> None:
    """Of chunks and of slices, as pages are, too."""
    names = [f'{n} "ü' for n in range(len(columns))]
    values = [data.draw(st.lists(st.none() | each, min_size=rows, max_size=rows)) for _, each in columns]
    arrays = [pa.array(some, kind) for some, (kind, _) in zip(values, columns, strict=True)]
    one = pa.table(arrays, names=names)
    table = pa.concat_tables([one, one]).slice(data.draw(st.integers(0, rows)))

    lines = [json_line(row) for row in rows_for_json(table)]

    assert ndjson(table).decode() == "".join(f"{line}\n" for line in lines)
    assert json_array(table).decode() == f"[{','.join(lines)}]"
    ids = pa.array([str(n) for n in range(table.num_rows)], pa.string())
    told = [f"event: e\ndata: {line}\nid: 3.{n}\n\n" for n, line in enumerate(lines)]
    assert events(table, "e", ["3.", ids]).decode() == "".join(told)
