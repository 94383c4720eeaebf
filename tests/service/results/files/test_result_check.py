"""Result files that are not as they were written are named, not read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.values.batch import ResultFile
from service.errors import CorruptResults
from service.results.files.result_check import check_files
from service.results.files.result_files import ResultWriter


def written(directory: Path) -> ResultFile:
    rows = pa.record_batch({"_route": pa.array([1, 1, 2]), "k": pa.array([7, 8, 9])})
    return ResultWriter(directory, None, 1).write_pairs(0, "f", rows)


def flip_a_bit(path: Path) -> None:
    data, times = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))


def test_a_file_is_as_it_was_written(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert file.bytes == (tmp_path / file.path).stat().st_size
    for _ in range(2):
        check_files(tmp_path, [file])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (Path.unlink, "No such file"),
        (lambda path: path.write_bytes(b""), "It is empty"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "its batch wrote"),
        (flip_a_bit, "Its checksum is not the one"),
    ],
)
@pytest.mark.parametrize("looked_at", [False, True])
def test_a_damaged_file_is_named(
    tmp_path: Path, damage: Callable[[Path], object], says: str, looked_at: bool
) -> None:
    file = written(tmp_path)
    if looked_at:
        check_files(tmp_path, [file])
    damage(tmp_path / file.path)
    with pytest.raises(CorruptResults, match=r'result file ".*" is damaged') as refused:
        check_files(tmp_path, [file])
    assert says in str(refused.value.detail)


def test_of_a_file_of_an_older_version_it_is_known_whether_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "old.parquet").write_bytes(b"something")
    check_files(tmp_path, [ResultFile("old.parquet", "f", 1)])
    (tmp_path / "old.parquet").write_bytes(b"")
    with pytest.raises(CorruptResults, match="is damaged"):
        check_files(tmp_path, [ResultFile("old.parquet", "f", 1)])
