"""Parquet files: old encodings, twin columns, and values that only Parquet can hold."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.values.stream import Column, FilesSource, Stream, TimeUnit
from service.errors import UnusableFile
from service.inputs.formats.parquet import read_parquet
from service.inputs.formats.parquet_footer import inspect_parquet

COLUMNS = (Column("ts", "timestamp"), Column("v", "bigint"))


def read_table(
    path: Path,
    table: pa.Table,
    columns: tuple[Column, ...] = COLUMNS,
    time_unit: TimeUnit | None = None,
    **writing,
) -> list[tuple[object, ...]] | str:
    """Rows of a table that was written as a file, or why it is refused."""
    pq.write_table(table, path, **writing)
    stream = Stream(1, "S", columns, "ts", 0, FilesSource("parquet", str(path)), time_unit=time_unit)
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            facts = inspect_parquet(connection, stream, str(path))
        found = read_parquet(stream, str(path), [c.name for c in columns], 0, facts.rows)
    except UnusableFile as error:
        return error.primary
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.parquet"


def times(*moments: dt.datetime) -> pa.Array:
    return pa.array(moments, pa.timestamp("us"))


def test_twin_columns_set_their_file_aside_if_the_stream_has_them(file: Path) -> None:
    arrays = [times(dt.datetime(2024, 5, 1)), pa.array([10]), pa.array([100])]
    twins = pa.Table.from_arrays(arrays, ["ts", "value", "Value"])
    value = (Column("ts", "timestamp"), Column("value", "bigint"))
    assert read_table(file, twins, value) == [(dt.datetime(2024, 5, 1), 10)]  # as it is spelt
    assert read_table(file, twins, (value[0], Column("VALUE", "bigint"))) == (
        'column "VALUE" appears 2 times in the file ("value", "Value"); rename or remove all but one'
    )
    same = twins.rename_columns(["ts", "value", "value"])
    assert read_table(file, same, value) == (
        'column "value" appears 2 times in the file ("value", "value"); rename or remove all but one'
    )
    assert read_table(file, same, value[:1]) == [(dt.datetime(2024, 5, 1),)]


def test_timestamps_of_96_bits_are_exact_in_every_year(file: Path) -> None:
    moments = [
        dt.datetime(1500, 1, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(3000, 1, 1),
    ]
    table = pa.table({"ts": times(*moments), "v": pa.array([1, 2, 3])})
    rows = read_table(file, table, use_deprecated_int96_timestamps=True)
    assert rows == [(moment, n) for n, moment in enumerate(moments, 1)]
    assert duckdb.sql(f"SELECT ts, v FROM '{file}'").fetchall() == rows


@pytest.mark.parametrize("type_", [pa.int64(), pa.int32(), pa.uint32()])
def test_integers_are_times_once_their_unit_is_declared(file: Path, type_: pa.DataType) -> None:
    table = pa.table({"ts": pa.array([1714550400], type_), "v": pa.array([1])})
    assert read_table(file, table, time_unit="s") == [(dt.datetime(2024, 5, 1, 8), 1)]
    assert read_table(file, table) == (
        f'it is of another schema: column "ts" is {type_}, declared timestamp; '
        "declare time_unit, the unit that it counts since 1970: s, ms, us or ns"
    )


def test_numbers_of_a_larger_unit_than_declared_are_refused(file: Path) -> None:
    table = pa.table({"ts": pa.array([10**14]), "v": pa.array([1])})
    assert read_table(file, table, time_unit="s") == (
        "numbers in it, read as seconds since 1970, lie outside the years 1 to 9999; "
        "declare another time_unit"
    )


def test_years_beyond_9999_and_text_that_is_not_utf8_are_refused_by_name(file: Path) -> None:
    columns = (*COLUMNS, Column("t", "timestamp"), Column("d", "date"), Column("s", "string"))
    sound = {
        "ts": times(dt.datetime(2024, 5, 1), dt.datetime(2024, 5, 2)),
        "v": pa.array([1, 2]),
        "t": times(dt.datetime(9999, 1, 1), dt.datetime(1, 1, 1)),
        "d": pa.array([dt.date(9999, 1, 1), dt.date(1, 1, 1)]),
        "s": pa.array(["x", "é"]),
    }
    assert len(read_table(file, pa.table(sound), columns)) == 2
    far = sound | {"t": pa.array([0, 2**61]).cast(pa.timestamp("us"))}
    assert read_table(file, pa.table(far), columns) == (
        f'row 2, column "t": timestamp[us] {2**61} is outside the years 1 to 9999'
    )
    far = sound | {"d": pa.array([4_000_000, 0], pa.int32()).cast(pa.date32())}
    assert read_table(file, pa.table(far), columns) == (
        'row 1, column "d": date32[day] 4000000 is outside the years 1 to 9999'
    )
    broken = pa.StringArray.from_buffers(
        2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"x\xff")
    )
    assert read_table(file, pa.table(sound | {"s": broken}), columns) == (
        'column "s" holds text that is not UTF-8'
    )
