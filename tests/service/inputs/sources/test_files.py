from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import functools
import itertools
import os
import pickle
import random
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.store.store import Store
from catalog.values.stream import Column, Stream
from service.errors import CorruptInput, FileRefused, InputChanged, UnusableFile, find_corrupt_input
from service.inputs import read
from service.inputs.formats.facts import FileFacts
from service.inputs.formats.parquet import read_parquet
from service.inputs.formats.parquet_footer import inspect_parquet
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.read import read_partition
from service.inputs.sources.files import candidates, list_files
from tests.empty_catalog import prepared
from tests.examples import examples
from tests.service.inputs.streams import EVERY_TYPE, TS_K_V, files_stream, rows_from


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


def read_all(store: Store, stream: Stream, columns: list[str] | None = None) -> pa.Table:
    inputs = Inputs(store, None)
    (parts,) = inputs.partitions([(Lane(stream), 0, inputs.end(stream))])
    return pa.concat_tables([read_partition(stream, p, columns) for p in parts])


def reasons(store: Store, stream: Stream) -> dict[str, str | None]:
    return {
        Path(f.path).name: f.reason for f in store.source_files.page(stream.id) if f.verdict == "set-aside"
    }


def test_a_file_is_listed_once_with_its_facts_in_order_of_names(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    pq.write_table(rows_from(10, 5), folder / "b.parquet")
    pq.write_table(rows_from(0, 10), folder / "a.parquet")
    assert list_files(store, stream) == 2
    assert list_files(store, stream) == 0
    pq.write_table(rows_from(15, 1), folder / "A-later.parquet")
    assert list_files(store, stream) == 1
    facts = [(Path(f.path).name, f.rows, f.t_min_us, f.t_max_us) for f in store.source_files.page(stream.id)]
    assert facts == [("a.parquet", 10, 0, 9), ("b.parquet", 5, 10, 14), ("A-later.parquet", 1, 15, 15)]


def test_a_name_or_a_text_that_is_not_unicode_sets_its_file_aside_alone(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder, "jsonl", (*TS_K_V, Column("s", "string"))))
    row = '{"ts": "2024-05-01T08:00:00Z", "s": %s}\n'
    (folder / "a").write_text(row % '"\\ud800"')
    (folder / "b").write_text(row % '{"\\ud800": 1, "\\ud800": 2}')
    Path(os.fsdecode(os.fsencode(folder) + b"/c\xff")).write_text(row % '"c"')
    (folder / "d").write_text(row % '"d"')
    assert list_files(store, stream) == 4
    assert list_files(store, stream) == 0
    assert reasons(store, stream) == {
        "a": 'row 1 (line 1), column "s": "\\ud800" is not a string',
        "b": 'row 1 (line 1): the key "\\ud800" appears twice; keep one of them',
        "c\\xff": "its name is not UTF-8; rename it",
    }


def test_two_threads_that_list_at_once_list_each_file_once(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    for i in range(20):
        pq.write_table(rows_from(i, 1), folder / f"{i:02}.parquet")
    start = threading.Barrier(3)

    def listing(_: int) -> int:
        start.wait()
        return list_files(store, stream)

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(listing, range(3))) == 20
    assert [Path(f.path).stem for f in store.source_files.page(stream.id)] == [f"{i:02}" for i in range(20)]


def test_rows_come_with_positions_of_file_and_row(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    pq.write_table(rows_from(0, 2), folder / "0.parquet")
    pq.write_table(rows_from(2, 3), folder / "1.parquet", row_group_size=1)
    list_files(store, stream)
    table = read_all(store, stream)
    assert table.column("k").to_pylist() == [0, 1, 2, 3, 4]
    assert table.column("_pos").to_pylist() == [0, 1, 1 << 32, (1 << 32) + 1, (1 << 32) + 2]


def test_only_wanted_columns_and_the_event_time_are_read(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    pq.write_table(rows_from(0, 2).append_column("extra", pa.array(["x", "y"])), folder / "0.parquet")
    list_files(store, stream)
    assert read_all(store, stream, ["v"]).schema.names == ["ts", "v", "_pos"]
    assert read_all(store, stream, []).schema.names == ["ts", "_pos"]
    assert read_all(store, stream).schema.names == ["ts", "k", "v", "_pos"]


def test_hidden_and_unfinished_files_and_folders_are_no_input(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    for name in (".a.parquet", "_a.parquet", "_SUCCESS", "a.parquet.tmp", "a.parquet.part"):
        pq.write_table(rows_from(0, 1), folder / name)
    (folder / "sub.parquet").mkdir()
    assert list_files(store, stream) == 0


def test_a_glob_and_a_single_file_are_sources_too(store: Store, folder: Path) -> None:
    pq.write_table(rows_from(0, 1), folder / "x-[1].parquet")
    pq.write_table(rows_from(1, 1), folder / "y-1.parquet")
    globbed = store.streams.add(files_stream(folder / "x-*.parquet"))
    assert list_files(store, globbed) == 1
    single = store.streams.add(Stream(0, "T", TS_K_V, "ts", 0, files_stream(folder / "y-1.parquet").source))
    assert list_files(store, single) == 1
    assert read_all(store, single).column("k").to_pylist() == [1]


def test_broken_files_are_set_aside_with_a_reason_and_the_others_are_read(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    pq.write_table(rows_from(0, 3), folder / "good.parquet")
    (folder / "empty.parquet").touch()
    (folder / "junk.parquet").write_bytes(random.Random(1).randbytes(500))
    whole = (folder / "good.parquet").read_bytes()
    (folder / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(rows_from(0, 3).drop_columns("v"), folder / "lacks.parquet")
    pq.write_table(rows_from(0, 3).set_column(1, "k", pa.array(["a", "b", "c"])), folder / "other.parquet")
    pq.write_table(
        rows_from(0, 1).set_column(0, "ts", pa.array([2**60]).cast(pa.timestamp("us"))),
        folder / "far.parquet",
    )
    assert list_files(store, stream) == 7
    found = reasons(store, stream)
    assert found.pop("lacks.parquet") == 'it is of another schema: column "v" is missing'
    assert found.pop("other.parquet") == 'it is of another schema: column "k" is string, declared bigint'
    assert found.pop("far.parquet") == (
        f'column "ts" has the event time {2**60} µs, outside the years 1 to 9999'
    )
    assert found.keys() == {"empty.parquet", "junk.parquet", "truncated.parquet"}
    assert all(reason and reason.startswith("it is not a valid Parquet file (") for reason in found.values())
    assert read_all(store, stream).column("k").to_pylist() == [0, 1, 2]


def test_a_file_that_looks_broken_may_be_given_time_to_become_whole(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    pq.write_table(rows_from(0, 3), folder / "x.parquet")
    whole = (folder / "x.parquet").read_bytes()
    (folder / "x.parquet").write_bytes(whole[:-9])
    assert list_files(store, stream, settle_s=3600) == 0
    (folder / "x.parquet").write_bytes(whole)
    assert list_files(store, stream, settle_s=3600) == 1
    assert reasons(store, stream) == {}


def test_a_file_without_rows_or_without_event_times_is_sound(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    pq.write_table(rows_from(0, 0), folder / "0.parquet")
    pq.write_table(rows_from(0, 2).set_column(0, "ts", pa.nulls(2, pa.timestamp("us"))), folder / "1.parquet")
    list_files(store, stream)
    facts = [(f.rows, f.t_min_us, f.t_max_us, f.verdict) for f in store.source_files.page(stream.id)]
    assert facts == [(0, None, None, "ok"), (2, None, None, "ok")]
    assert read_all(store, stream).column("ts").to_pylist() == [None, None]


@pytest.mark.parametrize("change", ["grown", "same size, later", "gone"])
def test_a_file_changed_after_its_listing_fails_loudly(store: Store, folder: Path, change: str) -> None:
    stream = store.streams.add(files_stream(folder))
    path = folder / "x.parquet"
    pq.write_table(rows_from(0, 3), path)
    list_files(store, stream)
    if change == "grown":
        pq.write_table(rows_from(0, 4), path)
    elif change == "gone":
        path.unlink()
    else:
        os.utime(path, ns=(1, 1))
    with pytest.raises(InputChanged, match="changed after it was listed"):
        read_all(store, stream)


def test_a_corrupt_body_stops_the_read_and_names_the_file_to_set_aside(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    pq.write_table(rows_from(0, 1), folder / "0.parquet")
    path = folder / "1.parquet"
    pq.write_table(rows_from(0, 10_000), path, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[100:4000] = b"\xff" * 3900
    path.write_bytes(data)
    list_files(store, stream)
    assert reasons(store, stream) == {}  # the footer is sound
    with pytest.raises(CorruptInput) as caught:
        read_all(store, stream)
    assert caught.value.position == 1
    assert find_corrupt_input(f"Traceback ...\n{caught.value}\nat org.apache") == (stream.id, 1)
    assert find_corrupt_input("another error") is None
    store.source_files.set_verdict(stream.id, 1, "set-aside", caught.value.reason)
    assert read_all(store, stream).num_rows == 1


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


@settings(max_examples=examples(150), deadline=None)
@given(
    at=st.lists(st.integers(0, 10**6), min_size=1, max_size=5),
    byte=st.integers(0, 255),
    footer=st.booleans(),
    cut=st.integers(0, 10**6) | st.none(),
)
def test_whatever_the_damage_a_file_is_set_aside_or_read_or_refused(
    at: list[int], byte: int, footer: bool, cut: int | None
) -> None:
    data = bytearray(_sound_file())
    tail = len(data) - int.from_bytes(data[-8:-4], "little") if footer else 0
    for index in at:
        data[tail + index % (len(data) - tail)] = byte
    if cut is not None:
        data = data[: cut % len(data)]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "x.parquet")
        path.write_bytes(data)
        stream = files_stream(Path(name))
        with suppress(UnusableFile), duckdb.connect(config={"threads": 1}) as connection:
            facts = inspect_parquet(connection, stream, str(path))
            assert read_parquet(stream, str(path), ("ts", "k", "v"), 0, facts.rows).num_rows == facts.rows
            assert read_parquet(stream, str(path), ("ts",), 150, 50).num_rows == 50


@functools.cache
def _sound_file() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows_from(0, 300), sink, row_group_size=100)
    return bytes(sink.getvalue())


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


@settings(max_examples=examples(30), deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    group=st.integers(1, 15),
    run=st.integers(1, 25),
    shared=st.integers(1, 60),
    data=st.data(),
)
def test_any_cut_of_the_positions_and_any_partition_size_give_the_same_rows(
    sizes: list[int], group: int, run: int, shared: int, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sizes)), max_size=3)))
    with tempfile.TemporaryDirectory() as name, Store.open(prepared(f"sqlite:///{name}/catalog.db")) as store:
        folder = Path(name) / "in"
        folder.mkdir()
        stream = store.streams.add(files_stream(folder))
        for i, size in enumerate(sizes):
            pq.write_table(rows_from(i * 100, size), folder / f"{i}.parquet", row_group_size=group)
        list_files(store, stream)
        inputs = Inputs(store, None, rows_per_partition=shared, rows_per_file_partition=run)
        bounds = [0, *cuts, len(sizes)]
        found: list[tuple[int, int]] = []
        for start, end in itertools.pairwise(bounds):
            for partition in inputs.partitions([(Lane(stream), start, end)])[0]:
                table = read_partition(stream, pickle.loads(pickle.dumps(partition)))
                assert table.num_rows == partition.rows > 0
                assert table.column("_pos")[0].as_py() == partition.first_pos
                found += zip(table.column("_pos").to_pylist(), table.column("k").to_pylist(), strict=True)
    assert found == [((i << 32) + r, i * 100 + r) for i, size in enumerate(sizes) for r in range(size)]


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


@pytest.mark.parametrize(
    ("file_format", "text", "reason"),
    [
        ("csv", "", 'it is of another schema: column "ts" is missing; the file is empty'),
        (
            "csv",
            "ts,k\n",
            'it is of another schema: column "v" is missing; the header found is ts,k',
        ),
        (
            "csv",
            "ts,k,v\n2013-01-01,1,2\n2013-01-01,1\n",
            "row 2 (line 3) has 2 fields, not 3: '2013-01-01,1'",
        ),
        (
            "csv",
            "ts,k,v\n2013-01-01,1,2\n2013-01-01,one,2\n",
            "row 2 (line 3), column \"k\": 'one' is not an integer of 64 bits",
        ),
        ("csv", "ts,k,v\n20130101,1,2\n", None),
        ("jsonl", '{"ts": 1, "k": 1}\n{"ts": 2, "k"\n', 'row 2 (line 2) is not JSON: \'{"ts": 2, "k"\''),
        ("jsonl", '{"ts": 1} {"ts": 2}\n', 'row 1 (line 1) is not JSON: \'{"ts": 1} {"ts": 2}\''),
        ("jsonl", ' {"ts": 1}\t\r\nnull,\n', "row 2 (line 2) is not JSON: 'null,'"),
        ("jsonl", "so\n", "row 1 (line 1) is not JSON: 'so'"),
        ("jsonl", '\n{"ts": 1}\n[1]\n', "row 2 (line 3) is not a JSON object: '[1]'"),
        ("jsonl", '{"ts": 1, "k": true}\n', 'row 1 (line 1), column "k": true is not an integer of 64 bits'),
        ("jsonl", '{"time": 1}\n', 'it is of another schema: no row has the event time "ts"'),
        ("jsonl", "\xff", None),
    ],
)
def test_a_malformed_row_sets_its_file_aside_and_is_named(
    store: Store, folder: Path, file_format: str, text: str, reason: str | None
) -> None:
    stream = store.streams.add(files_stream(folder, file_format))
    (folder / "bad").write_text(text, encoding="latin-1")
    list_files(store, stream)
    found = reasons(store, stream)
    assert found.keys() == {"bad"}
    assert reason is None or found["bad"] == reason


@pytest.mark.parametrize(("file_format", "text"), [("csv", "k,v,ts\n"), ("jsonl", "")])
def test_a_text_file_without_rows_is_sound(store: Store, folder: Path, file_format: str, text: str) -> None:
    stream = store.streams.add(files_stream(folder, file_format))
    (folder / "x").write_text(text)
    list_files(store, stream)
    assert reasons(store, stream) == {}
    assert Inputs(store, None).partitions([(Lane(stream), 0, 1)]) == [()]


def test_a_corrected_file_is_read_once_after_a_retry(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    known: set[str] = set()
    pq.write_table(rows_from(0, 1), folder / "0.parquet")
    (folder / "1.parquet").write_text("no Parquet")
    (folder / "2.parquet").write_text("no Parquet")
    assert list_files(store, stream, known=known) == 3
    pq.write_table(rows_from(1, 2), folder / "1.parquet")
    assert list_files(store, stream, known=known) == 0  # nobody has asked
    assert [f.path for f in store.source_files.retry(stream.id)] == [
        str(folder / "1.parquet"),
        str(folder / "2.parquet"),
    ]
    pq.write_table(rows_from(3, 1), folder / "3.parquet")
    assert list_files(store, stream, known=known) == 2
    assert list_files(store, stream, known=known) == 0
    assert reasons(store, stream).keys() == {"1.parquet", "2.parquet"}
    assert [Path(f.path).name for f in store.source_files.set_aside(stream.id)] == ["2.parquet"]
    assert read_all(store, stream).column("k").to_pylist() == [0, 1, 2, 3]


def test_a_file_that_is_gone_is_looked_for_until_it_is_there(store: Store, folder: Path) -> None:
    stream = store.streams.add(files_stream(folder))
    (folder / "1.parquet").write_text("no Parquet")
    list_files(store, stream)
    (folder / "1.parquet").unlink()
    store.source_files.retry(stream.id)
    assert list_files(store, stream) == 0
    pq.write_table(rows_from(1, 2), folder / "1.parquet")
    assert list_files(store, stream) == 1
    assert read_all(store, stream).column("k").to_pylist() == [1, 2]


def test_no_batch_goes_beyond_a_bad_file_of_a_stream_that_stops(store: Store, folder: Path) -> None:
    stream = store.streams.add(dataclasses.replace(files_stream(folder), on_error="stop"))
    for name in ("0", "1", "2"):
        pq.write_table(rows_from(int(name), 1), folder / f"{name}.parquet")
    (folder / "1.parquet").write_text("no Parquet")
    assert list_files(store, stream) == 3
    inputs = Inputs(store, None)
    assert [piece.position for piece in inputs.pending(Lane(stream), 0, 1)] == [0]
    with pytest.raises(
        FileRefused, match=f'file "{folder}/1.parquet" of stream "S" is bad: it is not a valid'
    ):
        inputs.pending(Lane(stream), 0, 9)
    with pytest.raises(FileRefused):
        read_all(store, stream)

    store.source_files.retry(stream.id)
    pq.write_table(rows_from(1, 1), folder / "1.parquet")
    assert list_files(store, stream) == 1
    assert read_all(store, stream).column("k").to_pylist() == [0, 1, 2]


def test_an_unforeseen_error_of_one_file_sets_that_file_aside(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = store.streams.add(files_stream(folder))
    for name in ("0", "1", "2"):
        pq.write_table(rows_from(int(name), 1), folder / f"{name}.parquet")

    def inspect(connection: duckdb.DuckDBPyConnection, stream: Stream, path: str, *_: object) -> FileFacts:
        if path.endswith("1.parquet"):
            raise KeyError("value")
        return inspect_parquet(connection, stream, path)

    monkeypatch.setattr("service.inputs.sources.files.inspect_parquet", inspect)
    assert list_files(store, stream) == 3
    assert reasons(store, stream) == {"1.parquet": "it cannot be read (KeyError: 'value')"}
    assert read_all(store, stream).column("k").to_pylist() == [0, 2]


def test_a_machine_without_file_handles_sets_no_file_aside(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = store.streams.add(files_stream(folder))
    pq.write_table(rows_from(0, 1), folder / "0.parquet")

    def inspect(*_: object) -> FileFacts:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as short:
        short.setattr("service.inputs.sources.files.inspect_parquet", inspect)
        with pytest.raises(OSError, match="Too many open files"):
            list_files(store, stream)
    assert list_files(store, stream) == 1


def test_an_unforeseen_error_in_a_worker_names_the_file_to_set_aside(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = store.streams.add(files_stream(folder))
    pq.write_table(rows_from(0, 1), folder / "0.parquet")
    list_files(store, stream)

    def fails(*_: object, **__: object) -> pa.Table:
        raise KeyError("value")

    monkeypatch.setitem(read._READ, "parquet", fails)
    with pytest.raises(CorruptInput, match="KeyError: 'value'") as error:
        read_all(store, stream)
    assert find_corrupt_input(str(error.value)) == (stream.id, 0)


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    deep = tmp_path / "in" / "2024" / "05"
    deep.mkdir(parents=True)
    for directory in (tmp_path / "in", deep):
        (directory / "x.csv").touch()
    (tmp_path / "in" / ".hidden").mkdir()
    (tmp_path / "in" / ".hidden" / "x.csv").touch()
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "y.csv").touch()
    (tmp_path / "in" / "beside").symlink_to(tmp_path / "beside")
    before = {
        str(p) for p in (tmp_path / "in" / "x.csv", deep / "x.csv", tmp_path / "in" / "beside" / "y.csv")
    }
    for pattern in ("**/*", "**/*.csv", "**", "**/**/*"):
        assert set(candidates(f"{tmp_path}/in/{pattern}")) == before, pattern
    assert set(candidates(f"{tmp_path}/in/**/05/*")) == {str(deep / "x.csv")}
    assert set(candidates(f"{tmp_path}/*/**/0*/x.csv")) == {str(deep / "x.csv")}
    for place in (deep, tmp_path / "in", tmp_path / "beside"):
        for number in range(3):
            (place / f"loop{number}").symlink_to(tmp_path / "in")
    found = list(candidates(f"{tmp_path}/in/**/*"))
    assert set(found) == before
    assert len(found) == len(before)


def test_a_directory_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refused(path: str):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(PermissionError):
        list(candidates(f"{tmp_path}/**/*"))
