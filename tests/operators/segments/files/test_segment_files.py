"""Stored values as files: whole or not at all, the same bytes for everybody."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from operators.errors import CorruptSegment, WriterReplaced
from operators.segments.files.segment_files import Fence, SegmentFiles
from operators.segments.segment import ArrivedFile, Segment, labelled, unlabelled
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
    files.sweep("c")
    assert names(tmp_path) == ["c.0.1.0"]


def test_a_sweep_removes_what_a_checkpoint_left_that_was_given_up(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    kept = ["aaaaaaaaaaaa.0.1.0", "aaaaaaaaaaaa.1.plan.3", "aaaaaaaaaaaa.1.begin", "README"]
    for name in (*kept, "bbbbbbbbbbbb.0.1.0", "bbbbbbbbbbbb.1.plan.3", "bbbbbbbbbbbb.1.begin"):
        files.write(name, DATA)
    files.sweep("aaaaaaaaaaaa")
    assert names(tmp_path) == sorted(kept)


def test_a_value_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "c.0.1.0").mkdir()
    with pytest.raises(OSError, match="directory"):
        SegmentFiles(tmp_path).write("c.0.1.0", DATA)
    assert names(tmp_path) == ["c.0.1.0"]


def test_rows_on_their_way_become_a_value_without_being_written_again(tmp_path: Path) -> None:
    files = SegmentFiles(tmp_path)
    sent = files.send(batch=7, order=2, bucket=1, part=0, rows=ROWS)
    assert sent == ArrivedFile("rows.7.2.1.0", files.read("rows.7.2.1.0").size)
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
    assert SegmentFiles(tmp_path).read(sent.name).to_pybytes() == segment.encode()


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
    files.sweep("c")
    assert names(tmp_path) == ["c.1.7.0"]


@pytest.mark.parametrize("at", [0, 17, -20, -1])
def test_a_byte_that_is_another_one_is_an_error(tmp_path: Path, at: int) -> None:
    files = SegmentFiles(tmp_path)
    files.write("c.0.1.0", DATA)
    stored = bytearray((tmp_path / "c.0.1.0").read_bytes())
    stored[at] ^= 1
    (tmp_path / "c.0.1.0").write_bytes(stored)
    with pytest.raises(CorruptSegment, match=r'"c\.0\.1\.0" cannot be read as it was written'):
        files.read("c.0.1.0")


@pytest.mark.parametrize("length", [0, 1, 15, 16, 100])
def test_a_value_that_lost_its_end_is_an_error(tmp_path: Path, length: int) -> None:
    files = SegmentFiles(tmp_path)
    files.write("c.0.1.0", DATA)
    (tmp_path / "c.0.1.0").write_bytes((tmp_path / "c.0.1.0").read_bytes()[:length])
    with pytest.raises(CorruptSegment, match=r'"c\.0\.1\.0" cannot be read as it was written'):
        files.read("c.0.1.0")


def test_a_value_of_an_older_version_has_no_seal(tmp_path: Path) -> None:
    (tmp_path / "c.0.1.0").write_bytes(DATA)
    assert SegmentFiles(tmp_path, sealed=False).read("c.0.1.0").to_pybytes() == DATA
    with pytest.raises(CorruptSegment, match="no seal"):
        SegmentFiles(tmp_path).read("c.0.1.0")


def test_an_engine_that_was_replaced_writes_and_removes_nothing(tmp_path: Path) -> None:
    segments = tmp_path / "segments"
    segments.mkdir()
    first, second = (Fence(tmp_path / "epoch", epoch) for epoch in (1, 2))
    first.announce()
    files = SegmentFiles(segments, first)
    files.write("c.0.1.0", DATA)
    sent = files.send(batch=1, order=0, bucket=0, part=0, rows=ROWS)
    second.announce()
    for write in (
        lambda: files.write("c.0.2.0", DATA),
        lambda: files.send(batch=2, order=0, bucket=0, part=0, rows=ROWS),
        lambda: files.link(sent, "c.0.2.1"),
        lambda: files.remove(["c.0.1.0"]),
        lambda: files.sweep("c"),
    ):
        with pytest.raises(WriterReplaced, match="epoch 1 cannot be written, the current one is 2"):
            write()
    assert names(segments) == ["c.0.1.0", sent.name]
    SegmentFiles(segments, second).sweep("c")
    assert names(segments) == ["c.0.1.0"]
