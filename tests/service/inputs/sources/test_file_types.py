from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.store.store import Store
from catalog.values.stream import Column
from service.inputs.sources.listed.files import list_files
from tests.service.inputs.streams import EVERY_TYPE, files_stream, read_all, reasons

CASTS = [
    ("int", pa.array([1, None], pa.int16()), [1, None]),
    ("bigint", pa.array([1], pa.int32()), [1]),
    ("bigint", pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
    ("bigint", pa.array([7, None, 7], pa.int16()).dictionary_encode(), [7, None, 7]),
    ("bigint", pa.array([Decimal(7)], pa.decimal128(18, 0)), [7]),
    ("decimal(12,2)", pa.array([-7], pa.int32()), [Decimal("-7.00")]),
    ("decimal(20,0)", pa.array([2**64 - 1], pa.uint64()), [Decimal(2**64 - 1)]),
    ("date", pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    ("double", pa.array([0.5], pa.float16()), [0.5]),
    ("double", pa.array([0.5], pa.float32()), [0.5]),
    ("double", pa.array([7], pa.int32()), [7.0]),
    ("string", pa.array(["x", None], pa.large_string()), ["x", None]),
    ("string", pa.array(["x", "x", None]).dictionary_encode(), ["x", "x", None]),
    ("string", pa.nulls(2), [None, None]),
    ("date", pa.array([dt.date(2013, 1, 2)], pa.date64()), [dt.date(2013, 1, 2)]),
    ("decimal(10,2)", pa.array([Decimal("1.5")], pa.decimal128(5, 1)), [Decimal("1.50")]),
    (
        "timestamp",
        pa.array([1001], pa.int64()).cast(pa.timestamp("ns")),
        [dt.datetime(1970, 1, 1, 0, 0, 0, 1)],
    ),
    (
        "timestamp",
        pa.array([-1], pa.int64()).cast(pa.timestamp("ns")),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],
    ),
    (
        "timestamp",
        pa.array([1], pa.int64()).cast(pa.timestamp("ms")),
        [dt.datetime(1970, 1, 1, 0, 0, 0, 1000)],
    ),
    (
        "timestamp",
        pa.array([0], pa.int64()).cast(pa.timestamp("us", "America/New_York")),
        [dt.datetime(1970, 1, 1)],
    ),
]


@pytest.mark.parametrize(
    ("declared", "written", "read"), CASTS, ids=lambda case: str(getattr(case, "type", case))
)
def test_a_type_that_loses_nothing_is_cast(
    store: Store, folder: Path, declared: str, written: pa.Array, read: list[object]
) -> None:
    columns = (Column("ts", "timestamp"), Column("c", declared))
    stream = store.streams.add(files_stream(folder, columns=columns))
    times = pa.array(range(len(written)), pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"TS": times, "c": written}), folder / "x.parquet")
    list_files(store, stream)
    assert reasons(store, stream) == {}
    assert read_all(store, stream).column("c").to_pylist() == read


@pytest.mark.parametrize(
    ("declared", "written"),
    [
        ("int", pa.array([1], pa.int64())),
        ("bigint", pa.array([1], pa.uint64())),
        ("bigint", pa.array([1.0])),
        ("double", pa.array([1], pa.int64())),
        ("decimal(10,2)", pa.array([Decimal("1.555")], pa.decimal128(10, 3))),
        ("boolean", pa.array([1], pa.int8())),
        ("string", pa.array([b"x"])),
        ("int", pa.array([Decimal("1.0")], pa.decimal128(9, 1))),
        ("bigint", pa.array([Decimal(1)], pa.decimal128(19, 0))),
        ("decimal(19,0)", pa.array([1], pa.uint64())),
        ("date", pa.array([0]).cast(pa.timestamp("us"))),
        ("timestamp", pa.array([dt.time(1)])),
        ("decimal(10,2)", pa.array([Decimal("1.5")], pa.decimal256(50, 2))),
    ],
)
def test_a_type_that_could_lose_something_is_another_schema(
    store: Store, folder: Path, declared: str, written: pa.Array
) -> None:
    columns = (Column("ts", "timestamp"), Column("c", declared))
    stream = store.streams.add(files_stream(folder, columns=columns))
    pq.write_table(
        pa.table({"ts": pa.array([0]).cast(pa.timestamp("us")), "c": written}), folder / "x.parquet"
    )
    list_files(store, stream)
    assert reasons(store, stream)["x.parquet"] == (
        f'it is of another schema: column "c" is {written.type}, declared {declared}'
    )


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_the_time_range_is_found_with_and_without_statistics(
    store: Store, folder: Path, unit: str, statistics: bool, zone: str | None
) -> None:
    stream = store.streams.add(files_stream(folder))
    per_us = {"ms": 0.001, "us": 1, "ns": 1000}[unit]
    times = pa.array([int(t * per_us) for t in (-5000, 9000, 3000)], pa.int64()).cast(
        pa.timestamp(unit, zone)
    )
    table = pa.table({"ts": times, "k": pa.array([1, 2, 3]), "v": pa.array([0.1, 0.2, 0.3])})
    pq.write_table(table, folder / "x.parquet", write_statistics=statistics, row_group_size=1)
    list_files(store, stream)
    (listed,) = store.source_files.page(stream.id)
    assert (listed.t_min_us, listed.t_max_us) == (-5000, 9000)


CSV = """ts,b,i,l,x,s,m,d,more
2013-01-01T05:15:00Z,true,1,2,0.5,text,,2013-01-02,x
2013-01-01 07:15:00+02:00,False,-1,,nan,"a,""b""
c",-2,,
2013-01-01 05:15:00.25,,,,,"",,,
"""
JSONL = """{"ts": "2013-01-01T05:15:00Z", "b": true, "i": 1, "l": 2, "x": 0.5, "s": "text", "d": "2013-01-02"}

{"ts": "2013-01-01 07:15:00+02:00", "b": false, "i": -1, "x": NaN, "s": "a,\\"b\\"\\nc", "m": "-2", "y": []}
{"ts": 1357017300250000, "b": null, "s": ""}
"""


@pytest.mark.parametrize(("file_format", "text"), [("csv", CSV), ("jsonl", JSONL)])
def test_text_is_parsed_with_the_declared_types(
    store: Store, folder: Path, file_format: str, text: str
) -> None:
    stream = store.streams.add(files_stream(folder, file_format, EVERY_TYPE))
    (folder / "x").write_text(text)
    list_files(store, stream)
    assert reasons(store, stream) == {}
    rows = read_all(store, stream).to_pylist()
    moment = dt.datetime(2013, 1, 1, 5, 15)
    day = dt.date(2013, 1, 2)
    assert str(rows[1].pop("x")) == "nan"
    assert rows == [
        {"ts": moment, "b": True, "i": 1, "l": 2, "x": 0.5, "s": "text", "d": day, "m": None, "_pos": 0},
        {
            "ts": moment,
            "b": False,
            "i": -1,
            "l": None,
            "s": 'a,"b"\nc',
            "d": None,
            "m": Decimal("-2"),
            "_pos": 1,
        },
        {
            "ts": dt.datetime(2013, 1, 1, 5, 15, 0, 250000),
            "b": None,
            "i": None,
            "l": None,
            "x": None,
            "s": "",
            "d": None,
            "m": None,
            "_pos": 2,
        },
    ]
    (listed,) = store.source_files.page(stream.id)
    assert (listed.rows, listed.t_min_us, listed.t_max_us) == (3, 1357017300000000, 1357017300250000)
    assert read_all(store, stream, ["d"]).schema.names == ["ts", "d", "_pos"]
