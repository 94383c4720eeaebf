"""Opening of a data directory's catalog; a catalog that does not belong to the directory is refused.

If an empty catalog replaced a lost catalog, the new catalog would not know the existing files, and its first
sweep would delete all results. So no catalog is created where files of an earlier catalog remain, and a
catalog whose identity differs from the directory's is refused. If all data are stored elsewhere, a new
directory without identity is accepted, so that each machine of a cluster can have its own directory.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from sqlalchemy import exc, make_url

from catalog.errors import CatalogDown
from catalog.store.store import Store
from catalog.values.stream import HttpSource
from operators.storage.folder import create, names, read
from service.checkpoint.buckets import CHECKPOINT_SETTING
from service.checkpoint.spark_log import SparkLog
from service.config.data_dir import DataDir
from service.errors import CatalogMissing, DataDirMoved, OtherLife
from service.inputs.sources.posted.event_reader import shown
from service.inputs.sources.posted.http_log import EventLog
from service.recovery.identity import Identity, give_identity, identity_of, read_mark, settle, write_mark

#: Beginning of the names of result files and late-row files.
_STORED = re.compile(r"[bm]\d")
#: Name of the catalog's setting with the URL of the separate storage.
_APART_SETTING = "storage"
#: Name of the catalog's setting with the path of the new data directory after a move.
_MOVED_SETTING = "moved"
#: Name of the identity file in a separate storage.
_MARK = "identity.json"

#: Hint for a catalog that cannot be opened.
CATALOG_DOWN_HINT = "Check that SLUICE_CATALOG_URL is correct, and that the database can be reached."

_HINT = (
    "Restore the whole data directory from a backup, set SLUICE_CATALOG_URL to the catalog with which the "
    "directory was used, or start again in an empty directory."
)
_NOT_SHARED_HINT = (
    "All processes of a service need the same data directory: mount the directory with which the catalog was "
    "used. If this directory is lost, restore it and the catalog from one backup."
)


def open_catalog(
    data_dir: DataDir, catalog_url: str | None = None, *, moved_to: Path | None = None, moving: bool = False
) -> Store:
    """Open the catalog of a data directory; create the catalog if the directory has no data yet.

    A directory of an old version of Sluice has no identity. It gets one if its data agree with the catalog.

    Args:
        data_dir: The data directory.
        catalog_url: SQLAlchemy URL of the catalog. None means SQLite in the data directory.
        moved_to: Root of the only data directory to which this directory may have been moved already.
        moving: Whether the directory may be the target of an incomplete move.

    Raises:
        DataDirMoved: The directory was moved, or a move to it is not complete.
        CatalogMissing: There is no catalog, but files of an earlier one exist.
        OtherLife: The catalog does not belong to the directory.
        CatalogDown: The catalog cannot be opened.
        CatalogVersionMismatch: The catalog belongs to another version of Sluice.
    """
    url = catalog_url or data_dir.catalog_url
    if not moving:
        _refuse_unfinished(data_dir)
    refuse_missing(data_dir, url)
    try:
        store = Store.open(url)
    except CatalogDown as error:
        error.hint = error.hint or CATALOG_DOWN_HINT
        raise
    try:
        _refuse_moved(store, data_dir, moved_to)
        identity = identity_of(store)
        if identity is None:
            # The transaction ensures that only one of several starting processes assigns an identity.
            with store.transaction():
                identity = _identity(store, data_dir)
        # The catalog gets the identity before all parts. If an earlier process has crashed in between, this
        # call writes the missing identity files.
        _mark(store, data_dir, identity, data_dir.events_url(catalog_url))
    except BaseException:
        store.close()
        raise
    return store


def check_catalog(url: str) -> str:
    """Return the schema of a catalog without changing it; raises the errors of ``Store.check``."""
    return Store.check(url)


def upgrade_catalog(url: str) -> tuple[str | None, str]:
    """Migrate a catalog and check it; return its schema before and after. Raises as ``Store.upgrade``."""
    return Store.upgrade(url), Store.check(url)


def refuse_missing(data_dir: DataDir, url: str) -> None:
    """Refuse to make a catalog if files of an earlier catalog exist.

    Args:
        data_dir: The data directory.
        url: SQLAlchemy URL of the directory's catalog.

    Raises:
        CatalogMissing: There is no catalog, but files of an earlier one exist.
    """
    file = sqlite_file(url)
    if file is not None and not file.exists():
        found = list(_remains(data_dir))
        if found and not file.exists():  # the file may exist now, because another process has just made it
            raise _missing(data_dir, f'"{file}" does not exist', found)


def mark_moved(store: Store, root: Path) -> None:
    """Record in a data directory's catalog that the directory was moved to another one."""
    store.settings.set(_MOVED_SETTING, str(root))


def goes_on_in(store: Store) -> Path | None:
    """Return the directory to which a catalog's data directory was moved, or None if it was not moved."""
    found = store.settings.get(_MOVED_SETTING)
    return None if found is None else Path(str(found))


def place_stored(store: Store, data_dir: DataDir) -> None:
    """Record in the catalog where its files are stored: the storage's URL, or None for the data directory."""
    store.settings.set(_APART_SETTING, None if data_dir.storage is None else data_dir.storage.url)


def claim_storage(data_dir: DataDir, identity: Identity) -> bool:
    """Mark a separate storage with a catalog's identity; return False if it has another identity."""
    folder = data_dir.stored_identity
    if folder is None:
        return True
    create(folder, _MARK, json.dumps({"id": identity.id}).encode())
    return bool(json.loads(read(folder, _MARK) or b"{}").get("id") == identity.id)


def _refuse_moved(store: Store, data_dir: DataDir, allowed: Path | None) -> None:
    root = goes_on_in(store)
    if root is not None and root != allowed:
        raise DataDirMoved(
            f'data directory "{data_dir.root}" was moved to "{root}"',
            detail="The service continues there. If the same streams and sinks also ran here, results would "
            "be delivered twice.",
            hint="Start the service on the new directory, with the catalog and the storage that sluice move "
            "named. To move the service back, move the new directory to another new directory here.",
        )


def _refuse_unfinished(data_dir: DataDir) -> None:
    if data_dir.move.exists():
        raise DataDirMoved(
            f'the move to "{data_dir.root}" is not complete',
            hint="Run the same sluice move command again.",
        )


def _identity(store: Store, data_dir: DataDir) -> Identity:
    """Return the catalog's identity. If it has none and agrees with the directory, assign one."""
    identity = identity_of(store)
    if identity is not None:
        return identity
    if is_unused(store):
        _refuse_remains(data_dir, "the catalog is empty")
    else:
        _check_unmarked(store, data_dir)
    return give_identity(store)


def _mark(store: Store, data_dir: DataDir, identity: Identity, events_url: str) -> None:
    """Check that all parts have the identity; if it is not settled, write it to parts without identity."""
    for path in (data_dir.identity, data_dir.checkpoint_identity):
        found = read_mark(path)
        if not found and path == data_dir.checkpoint_identity and identity.settled:
            continue  # ``check_checkpoint`` examines the checkpoint before its use
        if not found and (
            not identity.settled
            or _has_checkpoint_of(data_dir, identity)
            or _keeps_nothing(data_dir, events_url)
        ):
            write_mark(path, {"id": identity.id})
        elif found.get("id") != identity.id:
            raise OtherLife(
                f'the catalog does not belong to "{path.parent}"',
                detail=f"The catalog has identity {identity.id}, the directory {found.get('id', 'none')}.",
                hint=_HINT if found else _NOT_SHARED_HINT,
            )
    _mark_storage(store, data_dir, identity)
    with closing(EventLog(events_url)) as events:
        found_id = events.identity()
        if found_id is None and not identity.settled:
            events.set_identity(identity.id)
        elif found_id != identity.id:
            raise OtherLife(
                f'the catalog does not belong to the event log "{shown(events_url)}"',
                detail=f"The catalog has identity {identity.id}, the event log {found_id or 'none'}.",
                hint=_HINT,
            )
        _check_events(store, events)
    if not identity.settled:
        settle(store, identity)


def _mark_storage(store: Store, data_dir: DataDir, identity: Identity) -> None:
    """Check that the separate storage belongs to the catalog; if the identity is not settled, claim it."""
    folder = data_dir.stored_identity
    known = store.settings.get(_APART_SETTING)
    if identity.settled and (known is not None) != (folder is not None):
        raise OtherLife(
            "the storage is not the storage that the catalog has recorded",
            detail=f"The catalog's files are in {known or 'the data directory'}, "
            f"SLUICE_STORAGE_URL is {'not set' if data_dir.storage is None else data_dir.storage.url}.",
            hint="Set SLUICE_STORAGE_URL to the place of the catalog's files.",
        )
    if folder is None or data_dir.storage is None:
        return
    if not identity.settled:
        claim_storage(data_dir, identity)
        place_stored(store, data_dir)
    mark = json.loads(read(folder, _MARK) or b"{}")
    if mark.get("id") != identity.id:
        raise OtherLife(
            f'the catalog does not belong to storage "{data_dir.storage.url}"',
            detail=f"The catalog has identity {identity.id}, the storage {mark.get('id', 'none')}.",
            hint="Set SLUICE_STORAGE_URL to the storage that was used with this catalog, or use an empty "
            "storage with a new catalog.",
        )


def _check_events(store: Store, events: EventLog) -> None:
    """Refuse an event log that has lost events that batches have read: new events would get their offsets."""
    last = store.batches.last_manifest()
    read = dict(last.input_end) if last is not None else {}
    for stream in store.streams.all():
        position, head = read.get(str(stream.id), 0), events.end(stream.id)
        if isinstance(stream.source, HttpSource) and head < position:
            raise OtherLife(
                f'the event log "{shown(events.url)}" is older than the catalog',
                detail=f'Batches have read {position} events of stream "{stream.name}"; the log has {head}.',
                hint=_HINT,
            )


def _keeps_nothing(data_dir: DataDir, events_url: str) -> bool:
    """Return whether all data are stored elsewhere, and the directory has no checkpoint.

    If so, no data are lost by accepting the directory. A checkpoint elsewhere is examined before its use.
    """
    elsewhere = data_dir.storage is not None and sqlite_file(events_url) is None
    return elsewhere and not SparkLog(data_dir.root / "checkpoint").begun()


def _has_checkpoint_of(data_dir: DataDir, identity: Identity) -> bool:
    """Return whether the checkpoint shows that a directory without identity file belongs to the catalog."""
    return read_mark(data_dir.checkpoint_identity).get("id") == identity.id


def _refuse_remains(data_dir: DataDir, why: str) -> None:
    found = list(_remains(data_dir))
    if found:
        raise _missing(data_dir, why, found)


def _missing(data_dir: DataDir, why: str, found: Sequence[str]) -> CatalogMissing:
    return CatalogMissing(
        f'the catalog of "{data_dir.root}" is missing',
        detail=f"Although {why}, the directory contains {', '.join(found)}.",
        hint=_HINT,
    )


def _remains(data_dir: DataDir) -> Iterator[str]:
    """Yield descriptions of data that only a used catalog can have produced."""
    if read_mark(data_dir.identity):
        yield "the identity of another catalog"
    if SparkLog(data_dir.checkpoint).begun() or names(data_dir.segments):
        yield "a checkpoint"
    if _has_events(data_dir.events_db):
        yield "posted events"
    for folder, what in ((data_dir.results, "result files"), (data_dir.late, "late rows")):
        if any(_STORED.match(name) for name in names(folder)):
            yield what


def _has_events(path: Path) -> bool:
    if not path.exists():
        return False
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute("SELECT 1 FROM blobs LIMIT 1").fetchone() is not None
        except sqlite3.OperationalError:  # there is no such table, because the event log was never opened
            return False


def is_unused(store: Store) -> bool:
    """Return whether a catalog was never used by a service or a run."""
    return store.lease.epoch() == 0 and not store.streams.all()


def _check_unmarked(store: Store, data_dir: DataDir) -> None:
    """Refuse a catalog without identity if its data contradict the data directory."""
    committed, log = store.batches.last(), SparkLog(data_dir.checkpoint)
    found = read_mark(data_dir.identity)
    checkpoint = _checkpoint_id(store)
    segments = {name.partition(".")[0] for name in names(data_dir.segments)} - {"rows"}
    why = None
    if found:
        why = f"The directory has identity {found.get('id')}, but the catalog has none."
    elif committed is not None and not log.begun():
        why = f"The catalog has {committed + 1} batches, but the checkpoint has none."
    elif segments - {checkpoint}:
        why = f"Segments belong to checkpoint {min(segments - {checkpoint})}, the catalog to {checkpoint}."
    if why is not None:
        raise OtherLife(f'the catalog does not belong to "{data_dir.root}"', detail=why, hint=_HINT)


def _checkpoint_id(store: Store) -> str:
    facts = store.settings.get(CHECKPOINT_SETTING)
    return str(facts["id"]) if isinstance(facts, dict) else ""


def sqlite_file(url: str) -> Path | None:
    """Return the file of an SQLite catalog, or None for other URLs."""
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        return None  # the error is reported when the catalog is opened
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        return None
    return Path(parsed.database)
