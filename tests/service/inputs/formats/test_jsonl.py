"""JSON lines files: keys, digits and units."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from catalog.values.stream import Column
from tests.service.inputs.formats.reading import read_text

T = "2024-05-01T08:00:00Z"
AT = dt.datetime(2024, 5, 1, 8)
MONEY = (Column("ts", "timestamp"), Column("amount", "decimal(20,2)"), Column("rate", "decimal(38,18)"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.jsonl"


def test_decimals_keep_the_digits_that_a_double_has_no_room_for(file: Path) -> None:
    text = (
        f'{{"ts": "{T}", "amount": 12345678901234567.89, "rate": 0.123456789012345678}}\n'
        f'{{"ts": "{T}", "amount": "12345678901234567.89", "rate": 799.929496989092949698}}\n'
    )
    rows = read_text(file, text, file_format="jsonl", columns=MONEY)
    assert rows == [
        (AT, Decimal("12345678901234567.89"), Decimal("0.123456789012345678")),
        (AT, Decimal("12345678901234567.89"), Decimal("799.929496989092949698")),
    ]
    refused = read_text(file, f'{{"ts": "{T}", "amount": 1.005}}', file_format="jsonl", columns=MONEY)
    assert refused == (
        'row 1 (line 1), column "amount": 1.005 is not a number of at most 18 digits before and 2 behind '
        "the point"
    )


def test_keys_are_columns_without_regard_to_case(file: Path) -> None:
    text = f'{{"TS": "{T}", "K": 1, "v": 0.5}}\n{{"ts": "{T}", "k": "2"}}\n'
    assert read_text(file, text, file_format="jsonl") == [(AT, 1, 0.5), (AT, 2, None)]


def test_a_key_with_spaces_around_it_is_another_key_as_in_duckdb(file: Path) -> None:
    text = f'{{"ts": "{T}", "k": 1, " k": 2, "v ": 0.5}}\n'
    assert read_text(file, text, file_format="jsonl") == [(AT, 1, None)]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('"k": 1, "k": 2', 'row 1 (line 2): the key "k" appears twice; keep one of them'),
        ('"x": {"y": 1, "y": 2}', 'row 1 (line 2): the key "y" appears twice; keep one of them'),
        (
            '"K": 1, "k": 2',
            'row 1 (line 2) has column "k" twice, in keys that differ by case; keep one of them',
        ),
    ],
)
def test_two_values_of_one_key_are_refused(file: Path, keys: str, reason: str) -> None:
    assert read_text(file, f'\n{{"ts": "{T}", {keys}}}\n', file_format="jsonl") == reason


@pytest.mark.parametrize(
    ("unit", "number", "name"), [("s", 1714550400, "seconds"), ("ms", 1714550400000, "milliseconds")]
)
def test_times_that_are_most_likely_of_another_unit_are_refused(
    file: Path, unit: str, number: int, name: str
) -> None:
    text = f'{{"ts": {number}, "k": 1}}\n{{"ts": {number + 60}, "k": 2}}\n'
    assert read_text(file, text, file_format="jsonl") == (
        f'column "ts": {number} microseconds since 1970 is in the year 1970; the number most likely counts '
        f"{name}; declare time_unit: {unit} in the stream, "
        "or write the times as text if these values are right"
    )
    assert read_text(file, text, file_format="jsonl", time_unit=unit)[0] == (AT, 1, None)
    assert "the number most likely counts" in read_text(file, text, file_format="jsonl", time_unit="us")


def test_nanoseconds_that_are_taken_for_microseconds_are_refused_with_their_year(file: Path) -> None:
    assert read_text(file, '{"ts": 1714550400000000000, "k": 1}\n', file_format="jsonl") == (
        'column "ts": 1714550400000000000 microseconds since 1970 is in the year 56301; the number most '
        "likely counts nanoseconds; declare time_unit: ns in the stream, or write the times as text if these "
        "values are right"
    )


def test_bare_constants_are_numbers_as_duckdb_reads_them(file: Path) -> None:
    text = "".join(f'{{"ts": "{T}", "v": {value}}}\n' for value in ("Infinity", "-Infinity", "NaN"))
    *infinite, (_, _, nan) = read_text(file, text, file_format="jsonl")
    assert infinite == [(AT, None, math.inf), (AT, None, -math.inf)]
    assert math.isnan(nan)
    rows = duckdb.sql(f"SELECT v FROM read_json('{file}', columns = {{'v': 'DOUBLE'}})").fetchall()
    assert repr(rows) == "[(inf,), (-inf,), (nan,)]"


def test_a_line_of_up_to_16_mb_is_read(file: Path) -> None:
    line = f'{{"ts": "{T}", "k": 1, "trace": "%s"}}\n'
    assert read_text(file, line % ("x" * 15_900_000), file_format="jsonl") == [(AT, 1, None)]
    assert read_text(file, line % ("x" * 17_000_000), file_format="jsonl") == (
        "row 1 (line 1) is longer than 16 MB"
    )
