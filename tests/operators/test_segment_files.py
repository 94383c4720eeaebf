"""Stored values as files: whole or not at all, the same bytes for everybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.segment import CorruptSegment, Segment
from operators.segment_files import SegmentFiles
from tests.operators.segments import a_segment

DATA = a_segment([(1, 10), (2, 20)]).encode()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_one_writes_another_maps(tmp_path: Path) -> None:
    SegmentFiles(tmp_path).write("c.0.1.0", DATA)
    found = SegmentFiles(tmp_path).read("c.0.1.0")
    assert found.to_pybytes() == DATA
    assert Segment.decode(found, "c.0.1.0").key.tolist() == [1, 2]


def test_a_value_that_is_removed_stays_with_whoever_has_it(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    files.write("c.0.1.0", DATA)
    found = files.read("c.0.1.0")
    for _ in range(2):
        files.remove(["c.0.1.0", "c.0.1.1"])
    assert names(tmp_path) == []
    assert found.to_pybytes() == DATA


def test_a_value_written_again_is_the_same_one(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    for _ in range(2):
        files.write("c.0.1.0", DATA)
    assert names(tmp_path) == ["c.0.1.0"]
    assert files.read("c.0.1.0").to_pybytes() == DATA


@pytest.mark.parametrize("data", [None, b"", DATA[: len(DATA) // 2], b"not a segment"])
def test_a_value_that_is_not_whole_is_an_error_that_names_it(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / "c.0.1.0").write_bytes(data)
    with pytest.raises(CorruptSegment, match=r'"c\.0\.1\.0"'):
        Segment.decode(SegmentFiles(tmp_path).read("c.0.1.0"), "c.0.1.0")


def test_a_sweep_removes_what_is_half_written_and_nothing_else(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    files.write("c.0.1.0", DATA)
    (tmp_path / ".c.0.1.1.4711").write_bytes(DATA[:9])
    files.sweep()
    assert names(tmp_path) == ["c.0.1.0"]


def test_a_value_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "c.0.1.0").mkdir()
    with pytest.raises(OSError, match="directory"):
        SegmentFiles(tmp_path).write("c.0.1.0", DATA)
    assert names(tmp_path) == ["c.0.1.0"]
