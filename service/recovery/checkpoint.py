"""Checkpoint and catalog: checks that Spark can continue from its logs without losing or repeating results.

    Spark's offset log    5   6   7  [8]           the batch is begun
    catalog               5   6   7                the batch's results are visible
    Spark's commit log    5   6  [7]               the batch is done; entries in brackets may exist

Spark repeats a batch that it has begun but not finished. A batch that is committed in the catalog but
missing in Spark's logs is repeated, too: ``service.job.source`` feeds the batch the input that its manifest
names. Repeating a batch needs the state from which the batch began, so segments of this state are
kept for ``REPEATABLE`` batches. In all other cases the start is refused with a specific error, before a file
is removed or a batch is begun.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.store import Store
from service.checkpoint.buckets import CHECKPOINT_SETTING
from service.checkpoint.spark_log import SparkLog
from service.config.data_dir import DataDir
from service.errors import CheckpointAhead, CheckpointDamaged, CheckpointLost, CorruptResults, OtherLife
from service.recovery.identity import identity_of, read_mark, write_mark
from service.recovery.schema_paths import put_schema_paths_right
from service.recovery.state_files import check_state_files
from service.results.files.result_check import check_files

log = logging.getLogger(__name__)

#: Number of latest batches that can be repeated. A segment that a batch drops is therefore deleted two
#: batches later.
REPEATABLE = 2
#: Spark's files and directories in a checkpoint.
SPARK_PARTS = ("offsets", "commits", "state", "metadata", "sources")

#: Key in the identity file of a checkpoint whose state is being rebuilt from the first batch
#: (``sluice repair``). Identity files of earlier versions contain the key, so its name must not change.
_REBUILT = "anew"


@dataclass(frozen=True, slots=True)
class Standing:
    """Progress of catalog and checkpoint, as batch numbers; -1 means no batch.

    In a moved checkpoint, all batches before ``first`` were done in the old checkpoint.

    Attributes:
        first: First batch that was begun in this checkpoint; 0 unless the checkpoint was moved.
        committed: Last batch that the catalog has committed.
        begun: Batches with a complete entry in Spark's offset log, ascending.
        done: Last batch in Spark's commit log such that the offset log has this batch and the batch before.
        torn: Batches at the end of the logs whose entries are incomplete.
    """

    first: int
    committed: int
    begun: tuple[int, ...]
    done: int
    torn: tuple[int, ...]

    @property
    def repeated(self) -> range:
        """Batches that Spark repeats: they are committed in the catalog, but not done in Spark."""
        return range(self.done + 1, self.committed + 1)


def standing(store: Store, checkpoint: Path) -> Standing:
    """Return the progress of the catalog and of Spark's logs."""
    spark = SparkLog(checkpoint)
    begun, done = list(spark.begun()), list(spark.done())
    torn: set[int] = set()
    while begun and spark.input_end(begun[-1]) is None:
        torn.add(begun.pop())
    while done and not spark.is_whole(done[-1]):
        torn.add(done.pop())
    committed, first = store.batches.last(), spark.first()
    return Standing(
        first=first,
        committed=-1 if committed is None else committed,
        begun=tuple(begun),
        # To continue after a batch, Spark also reads the offset entry of the batch before.
        done=max((n for n in done if n in begun and (n <= first or n - 1 in begun)), default=first - 1),
        torn=tuple(sorted(torn)),
    )


def check_checkpoint(store: Store, data_dir: DataDir, *, unsynced: bool = False) -> None:
    """Refuse to continue if a batch would be lost; remove what a crash has left in Spark's logs.

    In a moved checkpoint, also correct the absolute paths in Spark's metadata.

    Args:
        store: The catalog.
        data_dir: The data directory; no other process writes to it.
        unsynced: Whether power may have failed since the last batch, so that writes that were not synced may
            be incomplete.

    Raises:
        OtherLife: As in `examine_checkpoint`, which also describes the error's subclasses.
    """
    found = examine_checkpoint(store, data_dir, unsynced=unsynced)
    _clear(data_dir, SparkLog(data_dir.checkpoint), found)
    if unsynced:
        _forget_young_snapshots(store, data_dir, found)
    put_schema_paths_right(data_dir.checkpoint)
    mark = read_mark(data_dir.checkpoint_identity)
    if _REBUILT in mark and len(found.repeated) <= REPEATABLE:
        del mark[_REBUILT]
        write_mark(data_dir.checkpoint_identity, mark)


def examine_checkpoint(store: Store, data_dir: DataDir, *, unsynced: bool = False) -> Standing:
    """Return the progress from which Spark can continue without losing a batch; change nothing.

    Args:
        store: The catalog.
        data_dir: The data directory.
        unsynced: As in `check_checkpoint`.

    Raises:
        OtherLife: The checkpoint belongs to another catalog.
        CheckpointLost: The catalog has batches that the checkpoint cannot repeat.
        CheckpointAhead: The checkpoint has batches that the catalog does not have.
        CheckpointDamaged: A required entry is incomplete.
    """
    rebuilt = _check_mark(store, data_dir)
    spark = SparkLog(data_dir.checkpoint)
    found = standing(store, data_dir.checkpoint)
    ahead = max((*spark.done(), *(batch - 1 for batch in found.begun)), default=-1)
    if ahead > found.committed:
        raise _ahead(data_dir, ahead, found.committed)
    # If files of the last batch are damaged, the batch is repeated, which replaces them.
    distrusted = unsynced or (not rebuilt and _damaged(store, data_dir))
    if distrusted and found.done >= found.first and (rebuilt or not found.repeated):
        # The state after the last done batch may be incomplete, so the batch is repeated. The state before
        # the batch is complete, because it was synced before the batch was committed.
        found = replace(found, done=found.done - 1)
    none = found.first - 1
    if unsynced and found.committed == none:
        found = replace(found, done=none, begun=())  # start anew, because no result is visible
    elif found.done not in found.begun or (found.done > found.first and found.done - 1 not in found.begun):
        found = replace(found, done=none)
    if not _can_repeat(store, found, rebuilt):
        raise _lost(data_dir, found)
    _compare(store, spark, found)
    return found


def check_state(store: Store, data_dir: DataDir) -> None:
    """Check that the files of Spark's state that a start needs exist and are complete.

    Raises:
        CheckpointDamaged: A file is missing or truncated.
    """
    found = standing(store, data_dir.checkpoint)
    if found.done >= found.first:
        version = found.done + 1 + SparkLog(data_dir.checkpoint).ahead()
        check_state_files(data_dir.checkpoint, version, _hint(data_dir))


def mark_checkpoint(store: Store, data_dir: DataDir, checkpoint_id: str, *, rebuilt: bool = False) -> None:
    """Record in a checkpoint the identities of the checkpoint and of its catalog.

    Args:
        store: The catalog.
        data_dir: The data directory.
        checkpoint_id: Id of the checkpoint.
        rebuilt: Whether the checkpoint is empty and all batches of the catalog must be repeated.
    """
    identity = identity_of(store)
    wanted = {"id": "" if identity is None else identity.id, "checkpoint": checkpoint_id}
    if not wanted.items() <= read_mark(data_dir.checkpoint_identity).items():
        write_mark(data_dir.checkpoint_identity, wanted | ({_REBUILT: "yes"} if rebuilt else {}))


def _check_mark(store: Store, data_dir: DataDir) -> bool:
    """Refuse a checkpoint of another catalog, or a checkpoint that this catalog has replaced.

    Returns:
        Whether all batches may be repeated because the state is being rebuilt.
    """
    mark, facts = read_mark(data_dir.checkpoint_identity), store.settings.get(CHECKPOINT_SETTING)
    identity = identity_of(store)
    if not mark or identity is None:
        return False  # then only the comparison of batches can reveal another catalog
    wanted = str(facts["id"]) if isinstance(facts, dict) else ""
    if mark.get("id") != identity.id or (wanted and mark.get("checkpoint", wanted) != wanted):
        raise OtherLife(
            f'the catalog does not belong to checkpoint "{data_dir.checkpoint}"',
            detail=f"The catalog has identity {identity.id} and checkpoint {wanted or 'none'}. The directory "
            f"has identity {mark.get('id', 'none')} and checkpoint {mark.get('checkpoint', 'none')}.",
            hint=_hint(data_dir),
        )
    return _REBUILT in mark


def _damaged(store: Store, data_dir: DataDir) -> bool:
    """Return whether result files or late files of the last batch are damaged.

    Raises:
        CorruptResults: Results of an earlier batch are damaged.
    """
    last = store.batches.last()
    if last is None:
        return False
    manifests = store.batches.manifests(last - REPLAYED_BATCHES, last)
    for manifest in manifests:
        try:
            check_files(data_dir.results, manifest.files)
            check_files(data_dir.late, manifest.late_files)
        except CorruptResults:
            if manifest.batch < last or not manifest.input_end:
                raise
            return True
    return False


def _can_repeat(store: Store, found: Standing, rebuilt: bool) -> bool:
    """Return whether the state and input that Spark needs to repeat batches are available."""
    if len(found.repeated) > REPEATABLE and not rebuilt:
        return False
    if rebuilt:
        return True  # sluice repair has checked that all input is available
    # If Spark's log does not have the input of a batch that is repeated, the catalog must have it.
    unknown = [batch for batch in found.repeated if batch > found.done + 1 or batch not in found.begun]
    manifests = [store.batches.manifest(batch) for batch in unknown]
    return all(manifest is not None and manifest.input_end for manifest in manifests)


def _compare(store: Store, spark: SparkLog, found: Standing) -> None:
    """Refuse an offset log that disagrees with the catalog about the input of a batch."""
    for batch in found.begun:
        manifest = store.batches.manifest(batch) if batch <= found.committed else None
        if manifest is None or not manifest.input_end:
            continue
        end = spark.input_end(batch)
        if end is None:
            raise CheckpointDamaged(
                f"Spark's log entry {batch} is not complete",
                detail=f"{spark.offsets / str(batch)} cannot be read.",
                hint="Remove the file; Spark does not need entries before the last.",
            )
        if tuple(sorted(end.items())) != manifest.input_end:
            raise OtherLife(
                f"checkpoint and catalog disagree about the input of batch {batch}",
                detail=f"Spark's log says {end}, the catalog {dict(manifest.input_end)}.",
                hint="Restore the whole data directory from one backup.",
            )


def _clear(data_dir: DataDir, spark: SparkLog, found: Standing) -> None:
    """Remove incomplete and surplus entries from Spark's logs, after all checks have passed."""
    for path in spark.leftovers():
        path.unlink(missing_ok=True)
        log.warning("temporary file of Spark's log removed", extra={"path": str(path)})
    # Spark repeats only the batch of its last log entry, so entries of later batches are removed. The input
    # of these batches is in the catalog, or is chosen again.
    kept = {batch for batch in found.begun if batch <= found.done + 1}
    for batch in spark.cut(found.done, kept)[0]:
        log.warning("batch will be repeated", extra={"batch": batch})
    if found.done == found.first - 1 and not kept:
        clear_spark(data_dir.checkpoint)


def _forget_young_snapshots(store: Store, data_dir: DataDir, found: Standing) -> None:
    """Remove snapshots of Spark's state that may be incomplete and are not needed.

    Spark takes snapshots in the background. To load a version of the state, Spark begins with the newest
    snapshot up to this version, so an incomplete snapshot would make loading fail. From an older snapshot,
    Spark reaches the version by applying the changes in between.
    """
    last = store.batches.last_manifest()
    synced_us = 0 if last is None else last.committed_at_us
    version = found.done + 1 + SparkLog(data_dir.checkpoint).ahead()
    for path in data_dir.checkpoint.glob("state/*/*/*.zip"):
        changes = path.with_suffix(".changelog")
        young = path.stat().st_mtime_ns // 1000 >= synced_us
        if path.stem.isdigit() and young and (changes.exists() or int(path.stem) > version):
            path.unlink()
            log.warning("snapshot of the state removed", extra={"path": str(path)})


def clear_spark(checkpoint: Path) -> None:
    """Remove Spark's files from a checkpoint that has no valid batch, so that Spark starts anew."""
    for name in SPARK_PARTS:
        path = checkpoint / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _ahead(data_dir: DataDir, done: int, committed: int) -> CheckpointAhead:
    return CheckpointAhead(
        f"the checkpoint has batch {done}, the catalog {_up_to(committed)}",
        detail=f"The catalog is older than {data_dir.checkpoint}, or does not belong to it.",
        hint=_hint(data_dir),
    )


def _lost(data_dir: DataDir, found: Standing) -> CheckpointLost:
    return CheckpointLost(
        f"the catalog has batches up to {found.committed}, the checkpoint {_up_to(found.done)}",
        detail=f"Files in {data_dir.checkpoint} were lost, so new input would be counted as input of old "
        "batches.",
        hint=_hint(data_dir),
    )


def _up_to(batch: int) -> str:
    return f"only up to {batch}" if batch >= 0 else "none"


def _hint(data_dir: DataDir) -> str:
    return (
        f'"sluice repair {data_dir.root}" shows whether the directory can be repaired. Otherwise restore the '
        "whole data directory from one backup, or start again in an empty directory."
    )
