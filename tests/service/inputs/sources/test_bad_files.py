from __future__ import annotations

import dataclasses
import errno
import functools
import os
import random
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.store.store import Store
from catalog.values.stream import Column, FilesSource, Stream
from service.errors import CorruptInput, FileRefused, UnusableFile, find_corrupt_input
from service.inputs.formats.file_readers import READERS
from service.inputs.formats.findings.facts import FileFacts
from service.inputs.formats.parquet import read_parquet
from service.inputs.formats.parquet_footer import inspect_parquet
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.sources.listed.files import list_files, unsettled_s, wait_for_settled
from tests.examples import examples
from tests.service.inputs.streams import TS_K_V, files_stream, read_all, reasons, rows_from


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


@pytest.mark.parametrize(("age_s", "listed"), [(0, 0), (3500, 0), (3700, 1), (-3500, 0), (-9000, 1)])
def test_a_file_that_still_changes_is_not_listed(store: Store, folder: Path, age_s: int, listed: int) -> None:
    stream = store.streams.add(files_stream(folder, settle_us=3_600_000_000))
    (folder / "x.parquet").write_text("half a file")
    moment_s = time.time() - age_s
    os.utime(folder / "x.parquet", (moment_s, moment_s))
    assert list_files(store, stream) == listed
    assert list_files(store, stream, settled=False) == 1 - listed


def test_a_run_waits_until_its_files_are_settled(folder: Path) -> None:
    source = FilesSource("csv", str(folder), settle_us=50_000)
    for age_s in (3600, 0):
        (folder / "x").write_text("")
        moment_s = time.time() - age_s
        os.utime(folder / "x", (moment_s, moment_s))
        wait_for_settled(source)
        assert unsettled_s(source, os.stat(folder / "x")) == 0


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
    inputs = Inputs(store, None, bounded=True)
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

    monkeypatch.setattr("service.inputs.formats.file_inspectors.inspect_parquet", inspect)
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
        short.setattr("service.inputs.formats.file_inspectors.inspect_parquet", inspect)
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

    monkeypatch.setitem(READERS, "parquet", fails)
    with pytest.raises(CorruptInput, match="KeyError: 'value'") as error:
        read_all(store, stream)
    assert find_corrupt_input(str(error.value)) == (stream.id, 0)
