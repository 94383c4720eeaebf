"""``sluice repair``: how a damaged data directory can be repaired from what is left of it.

    lost or damaged                           repair
    the checkpoint, or the end of its logs    rebuild the state: repeat all batches from their input
    a segment, or a file of Spark's state     rebuild the state
    a result file of one batch                rebuild the state: a repeated batch replaces damaged files
    a merged file of many batches             no repair is possible
    the newest batches of the catalog         remove them from the checkpoint, too: they run again

A repeated batch reads the input that the batch's manifest names. If the results differ, the job stops. So a
repair never changes visible results.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from catalog.store.results.result_files import NamedFiles
from catalog.store.store import Store
from catalog.values.stream import FilesSource, HttpSource, KafkaSource
from operators.errors import CorruptSegment
from service.checkpoint.buckets import CHECKPOINT_SETTING
from service.checkpoint.spark_log import SparkLog
from service.config.data_dir import DataDir
from service.errors import CheckpointDamaged, CorruptResults, NotRepairable, OtherLife
from service.inputs.sources.posted.http_log import EventLog
from service.recovery.checkpoint import (
    REPEATABLE,
    Standing,
    check_state,
    examine_checkpoint,
    mark_checkpoint,
    standing,
)
from service.recovery.moving.moved_state import ReadManifests, stored_state
from service.results.files.result_check import check_files


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair that is possible.

    Attributes:
        found: Description of the fault.
        does: Description of the repair.
        apply: Performs the repair.
    """

    found: str
    does: str
    apply: Callable[[], None]


def find_repair(
    store: Store, data_dir: DataDir, events_url: str, read_manifests: ReadManifests | None = None
) -> Repair | None:
    """Return the repair that a data directory needs, or None if there is no fault.

    Args:
        store: The catalog; no engine runs on it.
        data_dir: The data directory.
        events_url: URL of the event log.
        read_manifests: Reads Spark's state, so that the state and its segments are checked, too. With None,
            they are not checked.

    Raises:
        NotRepairable: There is a fault that cannot be repaired.
        CatalogDamaged: The catalog's file is damaged.
    """
    store.check_integrity()
    wrong = _wrong(store, data_dir)
    if wrong is None and read_manifests is not None:
        wrong = _wrong_state(store, data_dir, read_manifests)
    if wrong is None:
        return None
    found = standing(store, data_dir.checkpoint)
    spark = SparkLog(data_dir.checkpoint)
    ahead = max((*spark.done(), *(batch - 1 for batch in spark.begun())), default=-1)
    if ahead > found.committed >= 0 and ahead - found.committed <= REPEATABLE:
        return Repair(
            wrong,
            f"Forget batches {found.committed + 1} to {ahead} in the checkpoint. They run again, "
            "with the input that is then available.",
            lambda: spark.forget_after(found.committed),
        )
    reason = _cannot_repeat(store, events_url, found)
    if reason is not None:
        raise NotRepairable(
            wrong,
            detail=f"The state cannot be built again: {reason}.",
            hint="Restore the whole data directory from one backup, or start again in an empty directory.",
        )
    aside = data_dir.checkpoint.with_name(f"checkpoint.before-{uuid.uuid4().hex[:8]}")
    return Repair(
        wrong,
        f'Move "{data_dir.checkpoint}" to "{aside}", and build the state again: the next start repeats '
        f"batches 0 to {found.committed} from their input, which must be unchanged. Visible results stay "
        "the same; damaged files of batches that are not merged yet are replaced.",
        lambda: _begin_anew(store, data_dir, aside),
    )


def _wrong(store: Store, data_dir: DataDir) -> str | None:
    """Check checkpoint and result files; return the fault, or None if there is none.

    Raises:
        NotRepairable: Only merged files, which cannot be made again, are damaged.
    """
    try:
        examine_checkpoint(store, data_dir)
        check_state(store, data_dir)
        files = store.result_files.all()
        merged = next(files)
        for named in files:
            _check(data_dir, named)
    except (OtherLife, CorruptResults) as error:
        return error.primary
    try:
        _check(data_dir, merged)
    except CorruptResults as error:
        raise NotRepairable(
            error.primary,
            detail=f"{error.detail} The file has rows of many batches, so repeating one does not restore it.",
            hint="Restore the file or the whole data directory from a backup.",
        ) from error
    return None


def _wrong_state(store: Store, data_dir: DataDir, read_manifests: ReadManifests) -> str | None:
    """Read the whole state; return its fault, or None if there is none."""
    try:
        state = stored_state(store, data_dir, standing(store, data_dir.checkpoint), read_manifests)
        for _ in state.buckets() if state is not None else ():
            pass
        for _ in state.exchanged() if state is not None else ():
            pass
    except (CheckpointDamaged, CorruptSegment) as error:
        return error.primary
    return None


def _check(data_dir: DataDir, named: NamedFiles) -> None:
    check_files(data_dir.results, named.files)
    check_files(data_dir.late, named.late_files)


def _cannot_repeat(store: Store, events_url: str, found: Standing) -> str | None:
    """Return the reason why a batch cannot be repeated, or None if all batches can be repeated."""
    read: set[int] = set()
    for batch in range(found.committed + 1):
        manifest = store.batches.manifest(batch)
        if manifest is None:
            return f"the catalog has dropped the manifest of batch {batch}"
        if not manifest.input_end:
            return f"the catalog does not know the input of batch {batch}, which an older version ran"
        read |= {int(key.partition("/")[0]) for key, _ in manifest.input_end if key[0].isdigit()}
    first = next(iter(store.control_log.records(0, limit=1)), None)
    if first is not None and first.seq != 1:
        return f"the catalog has dropped the changes of plan before record {first.seq}"
    return _dropped_input(store, events_url, read)


def _dropped_input(store: Store, events_url: str, stream_ids: Iterable[int]) -> str | None:
    """Describe a stream whose oldest input was dropped (``input_retention``), or return None."""
    for stream in map(store.streams.by_id, sorted(stream_ids)):
        if isinstance(stream.source, FilesSource):
            first = store.source_files.page(stream.id, stream.initial_position, 1)
            if not first or first[0].position > stream.initial_position:
                return f'the oldest files of stream "{stream.name}" were removed, and so were their records'
        elif isinstance(stream.source, HttpSource):
            with closing(EventLog(events_url)) as events:
                if events.begin(stream.id) > stream.initial_position:
                    return f'the oldest events of stream "{stream.name}" were dropped after batches read them'
        elif isinstance(stream.source, KafkaSource):
            # Brokers may have dropped or compacted messages, so a repeated batch might read other rows.
            return f'stream "{stream.name}" is read from a topic, which may have dropped its oldest messages'
    return None


def _begin_anew(store: Store, data_dir: DataDir, aside: Path) -> None:
    """Rename the checkpoint to ``aside``, and give the catalog an empty checkpoint with a new id."""
    facts = store.settings.get(CHECKPOINT_SETTING)
    checkpoint_id = uuid.uuid4().hex[:12]
    with store.transaction():
        kept = dict(facts) if isinstance(facts, dict) else {}
        if kept:
            store.settings.set(CHECKPOINT_SETTING, kept | {"id": checkpoint_id, "sealed": True})
    if data_dir.checkpoint.exists():
        data_dir.checkpoint.rename(aside)
    data_dir.create()
    mark_checkpoint(store, data_dir, checkpoint_id, rebuilt=True)
