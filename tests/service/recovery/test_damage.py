"""Every kind of file of a data directory is damaged: results stay right, or a refusal names file and remedy.

The state's own files are Spark's to read; ``test_checkpoint.py`` and ``tests/crash/test_lost_parts.py``
damage them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from catalog.errors import SluiceError
from service.config.data_dir import open_data_dir
from service.inputs.sources.posted.http_log import EventLog
from service.maintenance.diagnosis.find_repair import find_repair
from service.recovery.checkpoint import check_checkpoint, check_state
from service.recovery.opening import open_catalog
from service.results.results import ResultReader
from tests.crash.old_data_dir import KEPT, QUERIES, expected
from tests.crash.test_old_data_dirs import unpack

ARCHIVE = sorted(path.name.partition(".")[0] for path in KEPT.glob("*.tar.xz"))[-1]

#: A file of each kind, by a pattern whose last match is taken.
KINDS = {
    "catalog": "catalog.db",
    "event log": "events.db",
    "identity": "identity.json",
    "identity of the checkpoint": "checkpoint/identity.json",
    "offsets of the last batch": "checkpoint/offsets/[0-9]*",
    "commit of the last batch": "checkpoint/commits/[0-9]*",
    "Spark's metadata": "checkpoint/metadata",
    "results": "results/*.parquet",
    "late rows": "late/*.parquet",
    "changes of the state": "checkpoint/state/0/0/*.changelog",
    "schema of the state": "checkpoint/state/0/_stateSchema/default/*",
    "metadata of the state": "checkpoint/state/0/_metadata/v2/*",
}


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _zero_a_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    place = min(4096, len(data) // 2)
    data[place : place + 4096] = bytes(len(data[place : place + 4096]))
    path.write_bytes(data)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": _cut,
    "zeroed": _zero,
    "with a page of zeros": _zero_a_page,
    "with a bit flipped": _flip,
}
#: What no file here can tell by itself: SQLite's pages and Spark's changes have no checksum that is ours.
UNTOLD = {
    ("catalog", "with a bit flipped"),
    ("event log", "with a bit flipped"),
    ("changes of the state", "with a bit flipped"),
    ("changes of the state", "with a page of zeros"),
    ("changes of the state", "zeroed"),
    ("changes of the state", "cut"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of the present schema."""
    directory, _ = unpack(ARCHIVE, tmp_path_factory.mktemp("sound"))
    with open_catalog(open_data_dir(directory)):
        pass
    return directory


def _look(directory: Path) -> str:
    """Check a directory as a start and ``sluice repair`` do, and read all; return what repair finds."""
    data_dir = open_data_dir(directory)
    with open_catalog(data_dir) as store, closing(ResultReader(store, data_dir.results)) as reader:
        repair = find_repair(store, data_dir, data_dir.events_url(None))
        if repair is not None:
            return f"{repair.found} {repair.does}"
        check_checkpoint(store, data_dir)
        check_state(store, data_dir)
        with closing(EventLog(data_dir.events_url(None))) as events:
            stream = store.streams.get("E")
            events.read(stream, events.begin(stream.id), events.end(stream.id))
        for name, wanted in _wanted().items():
            page = reader.page(store.queries.newest(name).series, None, 10_000)
            found = zip(page.table["a"].to_pylist(), page.table["b"].to_pylist(), strict=True)
            assert sorted(found) == wanted, name
    return ""


@cache
def _wanted() -> dict[str, list[tuple[int, int]]]:
    found = expected(2)
    assert set(found) == set(QUERIES)
    return found


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_or_does_no_harm(kind: str, damage: str, sound: Path, tmp_path: Path) -> None:
    if (kind, damage) in UNTOLD:
        return
    directory = tmp_path / "data"
    shutil.copytree(sound, directory)
    path = sorted(directory.glob(KINDS[kind]), key=lambda found: (len(found.name), found.name))[-1]
    DAMAGE[damage](path)

    try:
        told = _look(directory)
    except SluiceError as error:
        told = f"{error}" if error.hint else ""
        if not told:
            raise
    if told:
        assert path.name in told or path.stem in told, told
