"""Stored values as files: whole or not at all, the same bytes for everybody."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from operators.errors import CorruptSegment
from operators.segments.segment import ArrivedFile, Segment, labelled, unlabelled
from operators.segments.segment_files import SegmentFiles
from tests.operators.segment_builders import a_segment

DATA = a_segment([(1, 10), (2, 20)]).encode()


ROWS = labelled(a_segment([(1, 10), (2, 20)]).rows, 3, (4, 7))


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


def test_rows_on_their_way_become_a_value_without_being_written_again(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    sent = files.send(batch=7, order=2, bucket=1, part=0, rows=ROWS)
    assert sent == ArrivedFile("rows.7.2.1.0", (tmp_path / "rows.7.2.1.0").stat().st_size)
    for _ in range(2):
        files.link(sent, "c.1.7.0")
    assert (tmp_path / "c.1.7.0").samefile(tmp_path / sent.name)
    files.remove([sent.name])
    segment = Segment.decode(files.read("c.1.7.0"), "c.1.7.0")
    assert (segment.key.tolist(), segment.epoch, segment.filters) == ([1, 2], 3, (4, 7))
    assert segment.stored_bytes == sent.bytes
    assert names(tmp_path) == ["c.1.7.0"]


def test_what_is_sent_is_what_a_segment_writes(tmp_path: Path) -> None:
    sent = SegmentFiles(tmp_path).send(batch=0, order=0, bucket=0, part=0, rows=ROWS)
    segment = Segment(ROWS.replace_schema_metadata(None), 3, (4, 7))
    assert (tmp_path / sent.name).read_bytes() == segment.encode()


def test_rows_are_copied_where_files_have_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(self))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    files = SegmentFiles(tmp_path)
    sent = files.send(batch=7, order=2, bucket=1, part=0, rows=ROWS)
    files.link(sent, "c.1.7.0")
    assert (tmp_path / "c.1.7.0").read_bytes() == (tmp_path / sent.name).read_bytes()
    assert names(tmp_path) == ["c.1.7.0", "rows.7.2.1.0"]


def test_rows_that_never_came_are_an_error(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.link(ArrivedFile("rows.7.2.1.0", 9), "c.1.7.0")
    with pytest.raises(CorruptSegment, match=r'"rows\.7\.2\.1\.0"'):
        files.read("rows.7.2.1.0")
    assert names(tmp_path) == []


@pytest.mark.parametrize(("epoch", "filters"), [(2, (4, 7)), (3, (4,)), (3, (7, 4))])
def test_rows_packed_for_something_else_are_an_error(epoch: int, filters: tuple[int, ...]) -> None:
    with pytest.raises(CorruptSegment, match=r'file "f" was packed for another plan version'):
        unlabelled(ROWS, "f", epoch, filters)


def test_a_sweep_removes_rows_on_their_way(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    files.link(files.send(batch=7, order=2, bucket=1, part=0, rows=ROWS), "c.1.7.0")
    assert list(files.sizes()) == ["c.1.7.0"]
    files.sweep()
    assert names(tmp_path) == ["c.1.7.0"]
