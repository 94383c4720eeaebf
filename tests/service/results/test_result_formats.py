"""What values of every type look like in JSON, CSV and Arrow."""

from __future__ import annotations

import io
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.results.result_formats import arrow_stream, csv_text, ndjson, parquet


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


def test_arrow_keeps_types_and_values() -> None:
    table = column(pa.decimal128(10, 2), Decimal("1.10"), None)
    assert pa.ipc.open_stream(arrow_stream(table)).read_all() == table


def test_what_goes_on_has_no_second_header() -> None:
    assert csv_text(column(pa.int64(), 1), header=False) == b"1\n"


def test_a_parquet_file_has_the_types_of_the_results() -> None:
    table = pa.table({"k": pa.array([1, None], pa.int64()), "p": pa.array([Decimal("1.10"), None])})
    assert pq.read_table(io.BytesIO(parquet(table))).equals(table)
