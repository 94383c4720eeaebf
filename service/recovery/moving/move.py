"""``sluice move``: move a stopped data directory to a new one, with another storage, catalog or buckets.

    old, untouched              new                                        can start
    ----------------------------------------------------------------------------------
    all data                    move.json                                  old
                                results, state, events, exports            old
                                the catalog, in one transaction            old
    setting "moved"                                                        neither
                                move.json is removed                       new

All files are read back and compared before the catalog is written. Running the same command again restarts an
interrupted move, or finishes it if only the last two steps are missing. The new directory keeps the identity,
by which sinks recognize the service, so that no batch is delivered a second time. An identity must not be in
use twice, so at most one of the old and the new directory can start.

The target gets a new checkpoint (``moved_state``), which continues after the last batch done in the old
checkpoint. Later batches in the catalog are repeated with the input that their manifests name, as after a
crash. For a batch that was begun but not committed, the input is chosen again.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import JsonValue

from catalog.store.store import Store
from operators.storage.folder import Folder, directory_here, fetch, names, place_of, prepare, publish, remove
from operators.storage.object_folder import ObjectFolder
from service.checkpoint.buckets import CHECKPOINT_SETTING, stored_buckets
from service.checkpoint.spark_log import Offset, SparkLog
from service.commit.sync import sync_file, sync_file_systems
from service.config.data_dir import DataDir
from service.errors import CheckpointDamaged, MoveFailed, MoveRefused
from service.inputs.reading.voided import voided_batches
from service.inputs.sources.posted.event_reader import shown
from service.inputs.sources.posted.http_log import EventLog
from service.recovery.backups.backup_files import copy_file, files_below, is_taken
from service.recovery.checkpoint import REPEATABLE, Standing, examine_checkpoint
from service.recovery.identity import Identity, identity_of, read_mark, write_mark
from service.recovery.moving.moved_state import ReadManifests, StoredState, move_state, stored_state
from service.recovery.opening import (
    claim_storage,
    goes_on_in,
    is_unused,
    mark_moved,
    open_catalog,
    place_stored,
)
from service.results.files.result_check import check_files, length_and_checksum

#: Number of files that are fetched, uploaded and read back together.
_AT_ONCE = 32
_START_IT = "Start the service on that directory, stop it, then move the directory."


@dataclass(frozen=True, slots=True)
class Place:
    """Where the data of a service are.

    Attributes:
        data_dir: The data directory, with its storage.
        catalog_url: SQLAlchemy URL of the catalog. None means SQLite in the data directory.
    """

    data_dir: DataDir
    catalog_url: str | None

    @property
    def events_url(self) -> str:
        """SQLAlchemy URL of the event log."""
        return self.data_dir.events_url(self.catalog_url)


@dataclass(frozen=True, slots=True)
class FinishedMove:
    """A completed move.

    Attributes:
        batch: Last batch whose results were moved, or -1 if there is none.
        buckets: Number of buckets, or None if it is not fixed yet.
        files: Number of moved files of results, late rows, dead letters and exports.
        state_rows: Number of rows of the state. A row counts once for every join that stores it.
    """

    batch: int
    buckets: int | None
    files: int
    state_rows: int


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """State from which a checkpoint continues.

    Attributes:
        offset: Offset at the end of the last done batch, or None before the first batch.
        state: State after the last done batch, or None before the first batch.
    """

    offset: Offset | None
    state: StoredState | None


def move(
    store: Store, source: Place, target: Place, buckets: int | None, read_manifests: ReadManifests
) -> FinishedMove | None:
    """Move a data directory on which no process runs.

    Args:
        store: The catalog of the source, opened with ``moved_to``.
        source: Where the data are now.
        target: Where the data are moved to: missing, empty, or left by an interrupted move.
        buckets: Number of buckets in the target. None keeps the number.
        read_manifests: Reads the state that Spark has stored.

    Returns:
        The completed move, or None if an earlier move only had to be finished.

    Raises:
        MoveRefused: The target is not empty or overlaps the source, or the source cannot be moved in its
            present state.
        OtherLife: Parts of the source do not belong together.
        CorruptResults: A result file is damaged.
        CorruptSegment: A segment is damaged.
        MoveFailed: The written data differ from the data that were read.
    """
    identity = identity_of(store)
    assert identity is not None, "open_catalog gives the catalog an identity"
    root = target.data_dir.root
    if goes_on_in(store) == root:
        if not root.is_dir():
            raise MoveRefused(
                f'data directory "{source.data_dir.root}" was moved to "{root}", which is not there',
                hint="Bring the new directory back, or restore a backup of it.",
            )
        _finish(root)
        return None
    _check_apart(source.data_dir.root, root)
    with _taken_target(target, identity) as into:
        checkpoint = _checkpoint(store, source.data_dir, read_manifests)
        facts, state_rows = _move_checkpoint(store, checkpoint, target.data_dir, buckets, identity)
        files = _move_files(store, source.data_dir, target.data_dir)
        with closing(EventLog(source.events_url)) as events, closing(EventLog(target.events_url)) as log:
            heads = {stream_id: events.end(stream_id) for stream_id in events.stream_ids()}
            if log.identity() not in (None, identity.id):
                raise _not_empty(f'event log "{shown(target.events_url)}"')
            events.copy_to(log)
        write_mark(target.data_dir.identity, {"id": identity.id})
        sync_file_systems([root, target.data_dir.results, target.data_dir.late, target.data_dir.segments])
        standing = (store.control_log.head(), store.batches.last())

        def settle() -> None:
            place_stored(into, target.data_dir)
            into.settings.set(CHECKPOINT_SETTING, facts)
            if (lease := into.lease.current()) is not None:
                into.lease.release(lease)

        store.copy_to(into, settle)
    with open_catalog(target.data_dir, target.catalog_url, moving=True) as opened:
        examine_checkpoint(opened, target.data_dir)
        fixed = stored_buckets(opened)
    with closing(EventLog(source.events_url)) as events:
        after = {stream_id: events.end(stream_id) for stream_id in events.stream_ids()}
    if (store.control_log.head(), store.batches.last(), after) != (*standing, heads):
        raise MoveRefused(
            f'data directory "{source.data_dir.root}" changed while it was moved',
            detail="A process that serves the API still accepts events or changes of queries.",
            hint="Stop all processes of the service, then run the command again.",
        )
    mark_moved(store, root)
    _finish(root)
    batch = -1 if standing[1] is None else standing[1]
    return FinishedMove(batch, fixed, files, state_rows)


@contextmanager
def _taken_target(target: Place, identity: Identity) -> Iterator[Store]:
    """Clear the target of an interrupted attempt's files, then open the target's empty catalog."""
    data_dir, storage = target.data_dir, target.data_dir.storage
    root, mark = data_dir.root, read_mark(data_dir.move)
    catalog = target.catalog_url or data_dir.catalog_url
    # Storage and catalog that this attempt found empty. Only these may be cleared later, never the source's.
    found_empty = {
        "identity": identity.id,
        "storage": "" if storage is None else storage.url,
        "catalog": hashlib.sha256(catalog.encode()).hexdigest(),
    }
    again = mark.get("identity") == identity.id
    if not again and is_taken(root) and not _begun(data_dir):
        raise _not_empty(f'data directory "{root}"')
    if storage is not None and not (again and mark.get("storage") == storage.url):
        for folder in (*_folders(data_dir), data_dir.stored_identity):
            if folder is not None and names(folder):
                raise _not_empty(f'storage "{storage.url}"')
    if target.catalog_url is not None and not (again and mark.get("catalog") == found_empty["catalog"]):
        with Store.open(catalog) as found:
            if not is_unused(found) or identity_of(found) is not None:
                raise _not_empty(f'catalog "{shown(catalog)}"')
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _clear(data_dir)
    write_mark(data_dir.move, found_empty)
    if not claim_storage(data_dir, identity):
        raise _not_empty(f'storage "{storage.url if storage is not None else root}"')
    for folder in _folders(data_dir) if storage is not None else ():
        remove(folder, names(folder))
    data_dir.create()
    with Store.open(catalog) as into:
        yield into


def _begun(data_dir: DataDir) -> bool:
    """Return whether a data directory contains only an incomplete ``move.json`` of a crashed attempt."""
    root, mark = data_dir.root, data_dir.move.name
    return root.is_dir() and all(
        path.name.startswith(f".{mark}.") and path.is_file() for path in root.iterdir()
    )


def _clear(data_dir: DataDir) -> None:
    """Remove all files of an interrupted attempt from a data directory, except ``move.json``."""
    for path in data_dir.root.iterdir():
        if path == data_dir.move:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _checkpoint(store: Store, data_dir: DataDir, read_manifests: ReadManifests) -> _Checkpoint:
    """Return the offset and the state from which the checkpoint of a data directory continues."""
    found, log = examine_checkpoint(store, data_dir), SparkLog(data_dir.checkpoint)
    _refuse_unfinished(store, found)
    state = stored_state(store, data_dir, found, read_manifests)
    if state is None:
        return _Checkpoint(None, None)
    offset = log.input_end(found.done)
    if offset is None:
        raise CheckpointDamaged(f"Spark's log entry {found.done} is not complete", hint=_START_IT)
    return _Checkpoint(offset, state)


def _refuse_unfinished(store: Store, found: Standing) -> None:
    """Refuse to move batches that only the old checkpoint can finish."""
    manifests = [store.batches.manifest(batch) for batch in found.repeated]
    if len(manifests) > REPEATABLE or not all(manifest and manifest.input_end for manifest in manifests):
        raise MoveRefused(
            f"batches {found.done + 1} to {found.committed} are not finished in the checkpoint",
            hint=_START_IT,
        )
    for voided in voided_batches(store):
        if voided.batch > found.committed and voided.batch in found.begun:
            raise MoveRefused(
                f"batch {voided.batch} was begun, and some of its input was voided",
                detail="The decision to void applies only to the input with which the batch was begun.",
                hint=_START_IT,
            )


def _move_checkpoint(
    store: Store, checkpoint: _Checkpoint, target: DataDir, buckets: int | None, identity: Identity
) -> tuple[dict[str, JsonValue] | None, int]:
    """Make the target's checkpoint; return its settings (None if buckets are not fixed) and its row count."""
    facts = store.settings.get(CHECKPOINT_SETTING)
    if buckets is None and isinstance(facts, dict):
        buckets = int(str(facts["buckets"]))
    if buckets is None:
        return None, 0
    checkpoint_id = uuid.uuid4().hex[:12]
    write_mark(target.checkpoint_identity, {"id": identity.id, "checkpoint": checkpoint_id})
    rows = 0
    if checkpoint.state is not None and checkpoint.offset is not None:
        rows, _ = move_state(checkpoint.state, target, checkpoint_id, buckets, checkpoint.offset)
    return {"id": checkpoint_id, "buckets": buckets, "sealed": True}, rows


def _move_files(store: Store, source: DataDir, target: DataDir) -> int:
    """Copy results, late rows, dead letters and exports; return the number of files."""
    count = 0
    for named in store.result_files.all():
        check_files(source.results, named.files)
        check_files(source.late, named.late_files)
        count += _copy_files(source.results, target.results, [file.path for file in named.files])
        count += _copy_files(source.late, target.late, [file.path for file in named.late_files])
    count += _copy_files(source.dead_letters, target.dead_letters, names(source.dead_letters))
    for path in files_below(source.exports):
        _copy_checked(path, target.exports / path.relative_to(source.exports))
        count += 1
    return count


def _copy_files(source: Folder, target: Folder, wanted: Sequence[str]) -> int:
    """Copy the files of a folder, then verify the copies by reading them back."""
    directory_here(target).mkdir(mode=0o700, parents=True, exist_ok=True)
    todo = iter(wanted)
    while part := list(islice(todo, _AT_ONCE)):
        if not isinstance(target, ObjectFolder):
            for name, path in zip(part, fetch(source, part), strict=True):
                _copy_checked(path, target / name)
            continue
        prepare(target)
        copied = {n: copy_file(path, target / n) for n, path in zip(part, fetch(source, part), strict=True)}
        publish(target, part)
        for name in part:
            (target / name).unlink(missing_ok=True)  # so that the check reads the file back from the store
        for name, path in zip(part, fetch(target, part), strict=True):
            _check_copy(path, copied[name], place_of(target))
    return len(wanted)


def _copy_checked(path: Path, copy: Path) -> None:
    _check_copy(copy, copy_file(path, copy), str(copy.parent))


def _check_copy(copy: Path, wanted: tuple[int, int], place: str) -> None:
    if not copy.exists() or length_and_checksum(copy) != wanted:
        raise MoveFailed(f'file "{copy.name}" in "{place}" is not what was copied to it')


def _check_apart(root: Path, target: Path) -> None:
    one, other = root.resolve(), target.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise MoveRefused(
            f'"{target}" is the data directory that is moved, or inside of it, or contains it',
            hint="Name a new directory elsewhere.",
        )


def _not_empty(what: str) -> MoveRefused:
    return MoveRefused(f"{what} is not empty", hint="Name an empty one that only this service will use.")


def _folders(data_dir: DataDir) -> tuple[Folder, ...]:
    return data_dir.results, data_dir.late, data_dir.dead_letters, data_dir.segments


def _finish(root: Path) -> None:
    """Allow the new data directory to start, now that it is complete and the old one cannot start."""
    DataDir(root).move.unlink(missing_ok=True)
    sync_file(root)
