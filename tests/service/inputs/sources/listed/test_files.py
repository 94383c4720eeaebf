from __future__ import annotations

import errno
import itertools
import os
import pickle
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.store.store import Store
from catalog.values.stream import Stream
from service.errors import InputChanged
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.reading.read import read_partition
from service.inputs.sources.listed.files import candidates, list_files
from tests.empty_catalog import prepared
from tests.examples import examples
from tests.service.inputs.streams import TS_K_V, files_stream, read_all, reasons, rows_from


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


@pytest.mark.parametrize(("file_format", "text"), [("csv", "k,v,ts\n"), ("jsonl", "")])
def test_a_text_file_without_rows_is_sound(store: Store, folder: Path, file_format: str, text: str) -> None:
    stream = store.streams.add(files_stream(folder, file_format))
    (folder / "x").write_text(text)
    list_files(store, stream)
    assert reasons(store, stream) == {}
    assert Inputs(store, None).partitions([(Lane(stream), 0, 1)]) == [()]


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
