"""Folders: a directory and an object store do the same, whichever machine looks."""

from __future__ import annotations

import dataclasses
import random
import time
from pathlib import Path

import pytest

from operators.errors import CorruptSegment, StorageDown
from operators.segments.files.segment_files import SegmentFiles
from operators.storage.folder import (
    Folder,
    contents,
    create,
    directory_here,
    fetch,
    folder_of,
    folder_text,
    names,
    prepare,
    publish,
    read,
    remove,
    stored,
    written_before,
)
from operators.storage.object_folder import ObjectFolder
from tests.s3 import S3Server

CACHE_BYTES = 1 << 20


@pytest.fixture(params=["directory", "s3"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Folder, Folder]:
    """One folder as two machines see it."""
    if request.param == "directory":
        shared = tmp_path / "shared"
        shared.mkdir()
        return shared, shared
    url = request.getfixturevalue("s3").new_url()
    return ObjectFolder(tmp_path / "one", url, CACHE_BYTES), ObjectFolder(
        tmp_path / "other", url, CACHE_BYTES
    )


def put(folder: Folder, name: str, data: bytes) -> None:
    prepare(folder)
    (folder / name).write_bytes(data)
    publish(folder, [name])


def test_files_are_told_apart_by_when_they_were_written(machines: tuple[Folder, Folder]) -> None:
    one, other = machines
    put(one, "a.jsonl", b"rows")
    day_us = 86_400_000_000
    now_us = int(time.time() * 1e6)
    assert written_before(other, now_us + day_us) == ["a.jsonl"]
    assert written_before(other, now_us - day_us) == []


def test_a_published_file_is_read_on_another_machine(machines: tuple[Folder, Folder]) -> None:
    one, other = machines
    put(one, "a.parquet", b"rows")
    assert [path.read_bytes() for path in fetch(other, ["a.parquet"])] == [b"rows"]
    found = stored(other, ["a.parquet", "b.parquet"])
    assert {name: file.bytes for name, file in found.items()} == {"a.parquet": 4}
    assert contents(other) == {"a.parquet": 4}
    assert names(other) == ["a.parquet"]


def test_a_file_that_nobody_has_is_left_to_whoever_opens_it(machines: tuple[Folder, Folder]) -> None:
    (path,) = fetch(machines[1], ["b.parquet"])
    assert not path.exists()


def test_a_removed_file_is_gone_everywhere_and_may_be_removed_again(machines: tuple[Folder, Folder]) -> None:
    one, other = machines
    put(one, "a", b"1")
    put(one, "b", b"2")
    remove(one, ["a", "no such file"])
    remove(one, ["a"])
    assert contents(other) == {"b": 1}
    assert stored(other, ["a"]) == {}


def test_one_of_two_makes_a_file(machines: tuple[Folder, Folder]) -> None:
    one, other = machines
    assert create(one, "identity.json", b"one")
    assert not create(other, "identity.json", b"other")
    assert read(other, "identity.json") == b"one"
    assert read(other, "no such file") is None


def test_folders_do_what_a_dictionary_does(machines: tuple[Folder, Folder], chosen_seed: int) -> None:
    """Random steps on random machines, compared with a dictionary."""
    drawn, expected = random.Random(chosen_seed), dict[str, bytes]()
    for _ in range(80):
        folder, name = drawn.choice(machines), f"f{drawn.randrange(6)}-{drawn.randrange(3)}"
        step = drawn.choice(["put", "put", "read", "remove", "list"])
        if step == "put" and name not in expected:  # a name is written once
            expected[name] = drawn.randbytes(drawn.randrange(1, 300))
            put(folder, name, expected[name])
        elif step == "read" and name in expected:
            assert fetch(folder, [name])[0].read_bytes() == expected[name], chosen_seed
        elif step == "remove" and expected:
            gone = drawn.choice(sorted(expected))
            # Nobody reads what was removed, but other machines may still have it; names do not come again.
            remove(folder, [gone])
            expected[gone + "-gone"] = expected.pop(gone)
            put(folder, gone + "-gone", expected[gone + "-gone"])
        else:
            assert contents(folder) == {name: len(data) for name, data in expected.items()}, chosen_seed


def test_a_folder_survives_as_a_text(machines: tuple[Folder, Folder]) -> None:
    assert folder_of(folder_text(machines[0])) == machines[0]


def test_a_cache_keeps_its_size_and_what_was_used_last(s3: S3Server, tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path / "cache", s3.new_url(), cache_bytes=1000)
    for n in range(6):
        put(folder, f"f{n}", bytes(300))
    assert sum(path.stat().st_size for path in folder.directory.iterdir()) <= 1000
    assert (folder / "f5").exists()
    assert [path.stat().st_size for path in fetch(folder, [f"f{n}" for n in range(2)])] == [300, 300]
    assert len(contents(folder)) == 6


def test_a_segment_is_read_on_another_machine_and_a_damaged_one_is_not(s3: S3Server, tmp_path: Path) -> None:
    url = s3.new_url()
    here, there, third = (
        SegmentFiles(ObjectFolder(tmp_path / name, url, CACHE_BYTES)) for name in ("here", "there", "third")
    )
    here.write("c.0.1.0", b"rows")
    with pytest.raises(CorruptSegment):
        there.read("c.0.1.0")  # not published yet
    here.publish(["c.0.1.0"])
    assert there.read("c.0.1.0").to_pybytes() == b"rows"
    assert there.sizes() == {"c.0.1.0": 4}
    s3.damage(url, "c.0.1.0", b"other rows")
    with pytest.raises(CorruptSegment):
        third.read("c.0.1.0")
    there.remove(["c.0.1.0", "rows.1.0.0.0"])
    assert s3.objects(url) == []


def test_a_store_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    folder = ObjectFolder(tmp_path, "s3://no-such-place/life", CACHE_BYTES)
    with pytest.raises(StorageDown, match="s3://no-such-place/life"):
        read(folder, "identity.json")


def test_what_a_directory_here_is(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path / "cache", "s3://bucket/x", CACHE_BYTES)
    assert directory_here(folder) == tmp_path / "cache"
    assert directory_here(tmp_path) == tmp_path
    assert dataclasses.replace(folder, url="s3://bucket/y") / "a" == tmp_path / "cache" / "a"
