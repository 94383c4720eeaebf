"""Pipes, devices and files of the kernel are not sources, and nothing waits for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from catalog.values.stream import Column, FilesSource, Stream
from service.errors import InputChanged, SourceNotFound
from service.inputs.checks.validate import validate_source
from service.inputs.partitions import FileRows, FilesPartition
from service.inputs.reading.read import read_partition
from service.inputs.sources.listed.files import candidates, judged_files, source_warnings

pytestmark = pytest.mark.timeout(20)


def stream(path: Path | str) -> Stream:
    columns = (Column("ts", "timestamp"), Column("k", "bigint"))
    return Stream(1, "s", columns, "ts", 0, FilesSource("jsonl", str(path), settle_us=0))


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_pipe_is_refused_as_a_source(pipe: Path) -> None:
    with pytest.raises(SourceNotFound, match="is a pipe, a socket or a device"):
        validate_source(stream(pipe))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused_as_a_source(path: str) -> None:
    with pytest.raises(SourceNotFound, match="is a pipe, a socket or a device"):
        validate_source(stream(path))


@pytest.mark.parametrize("path", ["/proc", "/proc/**", "/proc/kmsg", "/sys/kernel", "/proc/self/../*"])
def test_files_of_the_kernel_are_refused_as_a_source(path: str) -> None:
    with pytest.raises(SourceNotFound, match="is in a file system of the kernel"):
        validate_source(stream(path))


def test_a_link_into_the_kernel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    with pytest.raises(SourceNotFound, match="is in a file system of the kernel"):
        validate_source(stream(tmp_path / "link"))


def test_a_pipe_in_a_directory_or_in_place_of_a_file_is_passed_over(pipe: Path) -> None:
    (pipe.parent / "whole").write_text('{"ts": 1, "k": 1}\n')
    for path in (pipe.parent, pipe.parent / "*", pipe):
        found = sorted(candidates(str(path)))
        assert found == ([] if path == pipe else [str(pipe.parent / "whole")])
    assert list(judged_files(stream(pipe), [str(pipe)])) == []


def test_what_is_no_file_in_a_directory_is_named(pipe: Path) -> None:
    (pipe.parent / "gone").symlink_to("nowhere")
    found = stream(pipe.parent)
    no_files, special = source_warnings(found, found.source)
    assert no_files == f'stream "s" has no files: "{pipe.parent}" holds none'
    assert special == (
        '"gone", "pipe" in the directory of stream "s" cannot be read: not a regular file, but a pipe, a '
        "socket, a device or a broken link"
    )
    (pipe.parent / "whole").write_text('{"ts": 1, "k": 1}\n')
    assert source_warnings(found, found.source) == (special,)


@pytest.mark.parametrize(("count", "told"), [(1, "1 directory"), (2, "2 directories")])
def test_a_directory_of_directories_is_told(tmp_path: Path, count: int, told: str) -> None:
    for number in range(count):
        (tmp_path / f"day={number}").mkdir()
    found = stream(tmp_path)
    (warning,) = source_warnings(found, found.source)
    assert warning == (
        f'stream "s" has no files: "{tmp_path}" holds none, but {told}; write path: "{tmp_path}/**/*" to '
        f"read the files in {'it' if count == 1 else 'them'}"
    )
    assert source_warnings(stream(tmp_path / "**/*"), FilesSource("jsonl", f"{tmp_path}/**/*")) == (
        f'stream "s" has no files: nothing matches "{tmp_path}/**/*"',
    )


def test_a_file_that_became_a_pipe_is_not_opened(pipe: Path) -> None:
    found = pipe.stat()
    listed = FileRows(0, str(pipe), found.st_size, found.st_mtime_ns, 0, 1)
    with pytest.raises(InputChanged, match="it is not a regular file any more"):
        read_partition(stream(pipe), FilesPartition(1, 0, None, 1, (listed,)))
