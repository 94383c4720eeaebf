"""An object store that refuses, is slow or breaks off: files come whole, or the error names the store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from operators.errors import StorageDown
from operators.storage import object_folder
from operators.storage.folder import create, fetch, names, publish, read, remove, stored
from operators.storage.object_folder import ObjectFolder
from tests.operators.storage.test_folder import CACHE_BYTES, put
from tests.s3_front import Front, front


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    with front(monkeypatch) as found:
        object_folder._store.cache_clear()
        yield found
    object_folder._store.cache_clear()


@pytest.fixture
def machines(store: Front, tmp_path: Path) -> tuple[ObjectFolder, ObjectFolder]:
    here, there = (ObjectFolder(tmp_path / name, store.url, CACHE_BYTES) for name in ("one", "other"))
    return here, there


def test_a_store_that_refuses_for_a_moment_is_asked_again(
    store: Front, machines: tuple[ObjectFolder, ObjectFolder]
) -> None:
    here, there = machines
    store.refuses = 2
    put(here, "a", b"rows")
    store.refuses = 2
    assert [path.read_bytes() for path in fetch(there, ["a"])] == [b"rows"]
    store.refuses = 2
    assert stored(there, ["a"])["a"].bytes == 4
    store.refuses = 2
    assert names(there) == ["a"]
    store.refuses = 2
    # An answer that was lost looks as if somebody else had created the file: nothing was written here.
    assert create(here, "identity.json", b"one")
    store.refuses = 2
    remove(here, ["a"])
    assert names(there) == ["identity.json"]


def test_a_store_that_refuses_for_long_is_named_with_its_answer(
    store: Front, machines: tuple[ObjectFolder, ObjectFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_folder, "_MOST_RETRIES", 1)
    here, there = machines
    put(here, "a", b"rows")
    store.refuses = 1000
    with pytest.raises(StorageDown, match=f"{store.url}/b") as refused:
        put(here, "b", b"rows")
    assert "503" in str(refused.value)
    assert "SLUICE" not in str(refused.value)
    with pytest.raises(StorageDown, match=f"{store.url}/a"):
        fetch(there, ["a"])
    with pytest.raises(StorageDown):
        read(there, "a")
    assert not [path for path in there.directory.iterdir() if path.name != "a"], "no half of a file"
    store.refuses = 0
    assert read(there, "a") == b"rows"


def test_a_store_that_is_slow_is_waited_for_and_asked_again(
    store: Front, machines: tuple[ObjectFolder, ObjectFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "500ms")
    here, there = machines
    store.hangs = 1
    put(here, "a", bytes(100_000))
    store.hangs = 1
    assert stored(there, ["a"])["a"].bytes == 100_000
    store.hangs = 1
    assert names(there) == ["a"]
    # What has come of an object is kept, and the rest is asked for.
    store.stalls = 2
    assert fetch(there, ["a"])[0].read_bytes() == bytes(100_000)
    assert store.asked["GET"] >= 3


def test_a_store_that_does_not_answer_is_named(
    store: Front, machines: tuple[ObjectFolder, ObjectFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", "200ms")
    monkeypatch.setattr(object_folder, "_MOST_RETRIES", 1)
    here, there = machines
    store.hangs = 1000
    with pytest.raises(StorageDown, match=f"{store.url}/a"):
        put(here, "a", b"rows")
    with pytest.raises(StorageDown, match=f"{store.url}/a"):
        fetch(there, ["a"])
    assert not list(there.directory.iterdir())


def test_an_object_that_breaks_off_is_no_file(
    store: Front, machines: tuple[ObjectFolder, ObjectFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_folder, "_MOST_RETRIES", 1)
    here, there = machines
    put(here, "a", bytes(100_000))
    store.breaks_off = True
    with pytest.raises(StorageDown, match=f"{store.url}/a"):
        fetch(there, ["a"])
    assert not list(there.directory.iterdir())
    store.breaks_off = False
    assert fetch(there, ["a"])[0].read_bytes() == bytes(100_000)


def test_files_are_uploaded_side_by_side(store: Front, machines: tuple[ObjectFolder, ObjectFolder]) -> None:
    here, there = machines
    here.prepare()
    files = [f"f{n}" for n in range(8)]
    for name in files:
        (here / name).write_bytes(name.encode())
    # No upload ends before eight have begun.
    store.together = threading.Barrier(len(files), timeout=60)
    publish(here, files)
    assert not store.together.broken
    assert [path.read_bytes().decode() for path in fetch(there, files)] == files
    assert store.asked == {"PUT": 8, "GET": 8}
    assert store.signed == 8
