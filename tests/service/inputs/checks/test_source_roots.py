"""Streams registered with the service read files of the source roots, and nothing else."""

from __future__ import annotations

import fcntl
import gzip
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.store.store import Store
from catalog.values.stream import Stream
from service.config.data_dir import DataDir, open_data_dir
from service.config.storage import storage_of
from service.errors import CorruptInput, InvalidSetting, SourceNotAllowed
from service.inputs.checks.source_roots import SourceRoots
from service.inputs.partitions import FileRows, FilesPartition
from service.inputs.reading.read import read_partition
from service.inputs.sources.listed.files import candidates, judged_files, list_files
from tests.service.inputs.streams import files_stream

ROW = "ts,k,v\n2026-01-01T00:00:00Z,1,2.5\n"


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return open_data_dir(tmp_path / "data")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "in").mkdir(parents=True)
    (tmp_path / "root" / "in" / "1.csv").write_text(ROW)
    (tmp_path / "secret.csv").write_text(ROW)
    return tmp_path / "root"


def confined(path: Path | str, root: Path, data_dir: DataDir) -> Stream:
    return SourceRoots.of((root,), data_dir).confined(files_stream(Path(path), "csv"))


@pytest.mark.parametrize("path", ["root", "root/in", "root/in/*.csv", "root/**/*", "root/not/yet"])
def test_a_path_in_a_root_is_allowed(tmp_path: Path, root: Path, data_dir: DataDir, path: str) -> None:
    assert confined(tmp_path / path, root, data_dir).source.confinement.root == str(root)


@pytest.mark.parametrize(
    "path", ["secret.csv", "nothing", "*", "roots", "root-2/x", "data", "data/events.db"]
)
def test_a_path_outside_is_refused_alike_whether_it_is_there(
    tmp_path: Path, root: Path, data_dir: DataDir, path: str
) -> None:
    with pytest.raises(SourceNotAllowed, match="is outside the directories that sources may read") as caught:
        confined(tmp_path / path, root, data_dir)

    assert caught.value.path == ("source", "path")
    assert str(root) in str(caught.value.detail)


@pytest.mark.parametrize("path", ["out", "out/secret.csv", "out/*.csv"])
def test_a_link_out_of_the_root_is_refused(tmp_path: Path, root: Path, data_dir: DataDir, path: str) -> None:
    (root / "out").symlink_to(tmp_path)

    with pytest.raises(SourceNotAllowed):
        confined(root / path, root, data_dir)


def test_the_data_directory_is_kept_out_of_a_root_around_it(tmp_path: Path, data_dir: DataDir) -> None:
    (tmp_path / "link").symlink_to(data_dir.root)
    for path in ("data", "data/checkpoint", "data/sources", "link/results/*.parquet"):
        with pytest.raises(SourceNotAllowed):
            confined(tmp_path / path, tmp_path, data_dir)

    assert confined(tmp_path / "in", tmp_path, data_dir)


def test_without_a_setting_the_root_is_in_the_data_directory(data_dir: DataDir) -> None:
    roots = SourceRoots.of((), data_dir)

    assert roots.roots == (data_dir.sources,)
    assert data_dir.sources.is_dir()
    assert roots.confined(files_stream(data_dir.sources / "in"))
    with pytest.raises(SourceNotAllowed):
        roots.confined(files_stream(data_dir.results))


@pytest.mark.parametrize("path", ["", "checkpoint", "checkpoint/segments", "results"])
def test_a_root_among_the_service_s_own_files_is_refused(data_dir: DataDir, path: str) -> None:
    with pytest.raises(InvalidSetting, match="source root"):
        SourceRoots.of((data_dir.root / path,), data_dir)


@pytest.mark.parametrize("path", ["segments", "segments/1", "late"])
def test_a_root_in_a_separate_storage_is_refused(tmp_path: Path, data_dir: DataDir, path: str) -> None:
    apart = replace(data_dir, storage=storage_of(f"file://{tmp_path / 'apart'}", None, 1))
    with pytest.raises(InvalidSetting, match="source root"):
        SourceRoots.of((tmp_path / "apart" / path,), apart)


def test_a_link_put_there_later_is_set_aside_and_never_read(
    tmp_path: Path, root: Path, data_dir: DataDir, store: Store
) -> None:
    stream = store.streams.add(confined(root / "in", root, data_dir))
    (root / "in" / "2.csv").symlink_to(tmp_path / "secret.csv")
    (root / "in" / "3.csv").symlink_to(root / "in" / "1.csv")

    list_files(store, stream)

    found = store.source_files.page(stream.id, 0, 10)
    assert [(os.path.basename(f.path), f.verdict, f.rows) for f in found] == [
        ("1.csv", "ok", 1),
        ("2.csv", "set-aside", 0),
        ("3.csv", "ok", 1),  # of the root as well
    ]
    assert found[1].reason == f'it is a link that leads out of "{root}"'


def test_a_directory_that_becomes_a_link_gives_nothing_of_the_other_one(
    tmp_path: Path, root: Path, data_dir: DataDir
) -> None:
    stream = confined(root / "in", root, data_dir)
    (root / "in").rename(root / "before")
    (root / "in").symlink_to(tmp_path)

    found = list(judged_files(stream, sorted(candidates(stream.source.path))))

    assert [os.path.basename(f.path) for f in found] == ["secret.csv"]
    assert [f.verdict for f in found] == ["set-aside"]


def test_a_listed_file_that_becomes_a_link_to_one_of_the_same_size_and_time_is_not_read(
    tmp_path: Path, root: Path, data_dir: DataDir
) -> None:
    stream = confined(root / "in", root, data_dir)
    path = root / "in" / "1.csv"
    (listed,) = judged_files(stream, [str(path)])
    partition = FilesPartition(1, 0, None, 1, (FileRows(0, str(path), listed.size, listed.mtime_ns, 0, 1),))
    assert read_partition(stream, partition).num_rows == 1
    path.unlink()
    path.symlink_to(tmp_path / "secret.csv")
    os.utime(path, ns=(listed.mtime_ns, listed.mtime_ns))

    with pytest.raises(CorruptInput, match="a link that leads out"):
        read_partition(stream, partition)

    free = replace(stream, source=replace(stream.source, confinement=None))  # as a workload file has it
    assert read_partition(free, partition).num_rows == 1


def test_a_compressed_file_is_read_under_confinement(root: Path, data_dir: DataDir) -> None:
    (root / "in" / "2.csv.gz").write_bytes(gzip.compress(ROW.encode()))
    stream = confined(root / "in", root, data_dir)

    assert [f.rows for f in judged_files(stream, sorted(candidates(stream.source.path)))] == [1, 1]


def test_a_refused_file_of_the_service_keeps_its_locks(
    tmp_path: Path, root: Path, data_dir: DataDir, store: Store
) -> None:
    """Whoever opens and closes a file gives up the locks of his process on it, those of SQLite among them."""
    catalog = data_dir.root / "catalog.db"
    catalog.write_bytes(b"locked")
    stream = store.streams.add(confined(tmp_path / "**" / "*.*", tmp_path, data_dir))
    (root / "in" / "link.csv").symlink_to(catalog)
    with catalog.open("rb+") as ours:
        fcntl.lockf(ours, fcntl.LOCK_EX)

        list_files(store, stream)

        refused = {f.path for f in store.source_files.page(stream.id, 0, 10) if f.verdict == "set-aside"}
        assert refused >= {str(catalog), str(root / "in" / "link.csv")}
        # Locks of open file descriptions are refused beside those of any process, this one's included.
        wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        with catalog.open("rb+") as other, pytest.raises(BlockingIOError):
            fcntl.fcntl(other, fcntl.F_OFD_SETLK, wanted)
