"""Opening the catalog of a data directory: theirs, or none.

A catalog that is missing would start empty beside what another one describes, and its first sweep would
remove every result. So nothing is created where anything is left of a life before, and a catalog whose
identity is not that of the directory is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sqlalchemy import exc, make_url

from catalog.store.store import Store
from catalog.values.stream import HttpSource
from service.commit.spark_log import SparkLog
from service.config.buckets import CHECKPOINT_SETTING
from service.config.data_dir import DataDir
from service.errors import CatalogMissing, OtherLife
from service.inputs.sources.http_log import EventLog
from service.recovery.identity import Identity, give_identity, identity_of, read_mark, settle, write_mark

_HINT = (
    "Restore the data directory as a whole from a backup, give the SLUICE_CATALOG_URL that it was used with, "
    "or start anew in an empty directory."
)


def open_catalog(data_dir: DataDir, catalog_url: str | None = None) -> Store:
    """Open the catalog of a data directory; make it where there is nothing yet.

    A directory of a version that knew no identity gets one, if what can be compared agrees.

    Args:
        data_dir: The data directory.
        catalog_url: SQLAlchemy URL of the catalog; None: SQLite in the data directory.

    Raises:
        CatalogMissing: There is no catalog, but there are files that one has named.
        OtherLife: The catalog is not that of the directory.
        CatalogDown: It cannot be opened.
        CatalogVersionMismatch: It is of another version of Sluice.
    """
    url = catalog_url or data_dir.catalog_url
    file = _sqlite_file(url)
    if file is not None and not file.exists():
        _refuse_remains(data_dir, f'"{file}" does not exist')
    store = Store.open(url)
    try:
        identity = identity_of(store)
        if identity is None:
            if _is_empty(store):
                _refuse_remains(data_dir, "the catalog is empty")
            else:
                _check_unmarked(store, data_dir)
            identity = give_identity(store)
        _mark(store, data_dir, identity)
    except BaseException:
        store.close()
        raise
    return store


def _mark(store: Store, data_dir: DataDir, identity: Identity) -> None:
    """Check that the parts have the identity; give it to them until it is settled."""
    for path in (data_dir.identity, data_dir.checkpoint_identity):
        found = read_mark(path)
        if not found and path == data_dir.checkpoint_identity and identity.settled:
            continue  # the checkpoint is looked at by whoever wants to go on with it
        if not found and (not identity.settled or _has_checkpoint_of(data_dir, identity)):
            write_mark(path, {"id": identity.id})
        elif found.get("id") != identity.id:
            raise OtherLife(
                f'the catalog is not that of "{path.parent}"',
                detail=f"The catalog has identity {identity.id}, the directory {found.get('id', 'none')}.",
                hint=_HINT,
            )
    with closing(EventLog(data_dir.events_db)) as events:
        found_id = events.identity()
        if found_id is None and not identity.settled:
            events.set_identity(identity.id)
        elif found_id != identity.id:
            raise OtherLife(
                f'the catalog is not that of the event log "{data_dir.events_db}"',
                detail=f"The catalog has identity {identity.id}, the event log {found_id or 'none'}.",
                hint=_HINT,
            )
        _check_events(store, data_dir, events)
    if not identity.settled:
        settle(store, identity)


def _check_events(store: Store, data_dir: DataDir, events: EventLog) -> None:
    """Refuse an event log that lacks events which batches have read: new ones would count as those."""
    last = store.batches.last_manifest()
    read = dict(last.input_end) if last is not None else {}
    for stream in store.streams.all():
        position, head = read.get(str(stream.id), 0), events.end(stream.id)
        if isinstance(stream.source, HttpSource) and head < position:
            raise OtherLife(
                f'the event log "{data_dir.events_db}" is older than the catalog',
                detail=f'Batches have read {position} events of stream "{stream.name}", it has {head}.',
                hint=_HINT,
            )


def _has_checkpoint_of(data_dir: DataDir, identity: Identity) -> bool:
    """Tell whether the checkpoint proves that a directory without mark is the catalog's."""
    return read_mark(data_dir.checkpoint_identity).get("id") == identity.id


def _refuse_remains(data_dir: DataDir, why: str) -> None:
    found = list(_remains(data_dir))
    if found:
        raise CatalogMissing(
            f'the catalog of "{data_dir.root}" is missing',
            detail=f"While {why}, there are {', '.join(found)}.",
            hint=_HINT,
        )


def _remains(data_dir: DataDir) -> Iterator[str]:
    """Yield what only a catalog that was used can have brought about."""
    if read_mark(data_dir.identity):
        yield "the identity of another catalog"
    if SparkLog(data_dir.checkpoint).begun() or any(data_dir.segments.glob("[!.]*")):
        yield "a checkpoint"
    if _has_events(data_dir.events_db):
        yield "posted events"
    for directory, name in ((data_dir.results, "result files"), (data_dir.late, "late rows")):
        if next(directory.glob("b[0-9]*-*.parquet"), None) is not None:
            yield name


def _has_events(path: Path) -> bool:
    if not path.exists():
        return False
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute("SELECT 1 FROM blobs LIMIT 1").fetchone() is not None
        except sqlite3.OperationalError:  # no such table: it was never opened
            return False


def _is_empty(store: Store) -> bool:
    """Tell whether a catalog never was a service's or a run's."""
    return store.epochs.current() == 0 and not store.streams.all()


def _check_unmarked(store: Store, data_dir: DataDir) -> None:
    """Compare what a catalog without identity says with the directory, as far as it can be."""
    committed, log = store.batches.last(), SparkLog(data_dir.checkpoint)
    found = read_mark(data_dir.identity)
    checkpoint = _checkpoint_id(store)
    segments = {path.name.partition(".")[0] for path in data_dir.segments.glob("[!.]*")} - {"rows"}
    why = None
    if found:
        why = f"The directory has identity {found.get('id')}, the catalog none."
    elif committed is not None and not log.begun():
        why = f"The catalog has {committed + 1} batches, the checkpoint none."
    elif segments - {checkpoint}:
        why = f"Segments are of checkpoint {min(segments - {checkpoint})}, the catalog's is {checkpoint}."
    if why is not None:
        raise OtherLife(f'the catalog is not that of "{data_dir.root}"', detail=why, hint=_HINT)


def _checkpoint_id(store: Store) -> str:
    facts = store.settings.get(CHECKPOINT_SETTING)
    return str(facts["id"]) if isinstance(facts, dict) else ""


def _sqlite_file(url: str) -> Path | None:
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        return None  # the catalog says what is wrong with it
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        return None
    return Path(parsed.database)
