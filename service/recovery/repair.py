"""``sluice repair``: make a data directory whole again where what is left of it is enough.

    lost                                      repair
    the checkpoint, or the end of its logs    build the state anew: repeat all batches from their input
    a result file                             the same; a repeated batch replaces files that are damaged
    the newest batches of the catalog         forget them in the checkpoint, too: they are made again

A batch is repeated with the input that its manifest names, and stops the job where other rows come of it.
So a repair never changes results that were visible.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from catalog.store.store import Store
from service.commit.spark_log import SparkLog
from service.config.buckets import CHECKPOINT_SETTING
from service.config.data_dir import DataDir
from service.errors import CorruptResults, NotRepairable, OtherLife
from service.recovery.checkpoint import (
    REPEATABLE,
    Standing,
    examine_checkpoint,
    mark_checkpoint,
    standing,
)
from service.results.result_check import check_files


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair that is possible.

    Attributes:
        found: What is wrong.
        does: What the repair does.
        apply: Does it.
    """

    found: str
    does: str
    apply: Callable[[], None]


def find_repair(store: Store, data_dir: DataDir) -> Repair | None:
    """Return the repair that a data directory needs, None if nothing is wrong.

    Args:
        store: The catalog; no engine runs on it.
        data_dir: The data directory.

    Raises:
        NotRepairable: Something is wrong and cannot be repaired.
    """
    wrong = _wrong(store, data_dir)
    if wrong is None:
        return None
    found = standing(store, data_dir.checkpoint)
    spark = SparkLog(data_dir.checkpoint)
    ahead = max((*spark.done(), *(batch - 1 for batch in spark.begun())), default=-1)
    if ahead > found.committed >= 0 and ahead - found.committed <= REPEATABLE:
        return Repair(
            wrong,
            f"Forget batches {found.committed + 1} to {ahead} in the checkpoint. They are made again, "
            "with the input that is there then.",
            lambda: _forget_after(spark, found.committed),
        )
    reason = _cannot_repeat(store, found)
    if reason is not None:
        raise NotRepairable(
            wrong,
            detail=f"The state cannot be built anew: {reason}.",
            hint="Restore all of the data directory from one backup, or start anew in an empty one.",
        )
    aside = data_dir.root / f"checkpoint.before-{uuid.uuid4().hex[:8]}"
    return Repair(
        wrong,
        f'Move "{data_dir.checkpoint}" to "{aside}", and build the state anew: the next start repeats '
        f"batches 0 to {found.committed} from their input, which must be as it was. Visible results stay "
        "as they are; files of them that are damaged are replaced.",
        lambda: _begin_anew(store, data_dir, aside.name),
    )


def _wrong(store: Store, data_dir: DataDir) -> str | None:
    """Return what is wrong, None if nothing is."""
    try:
        examine_checkpoint(store, data_dir)
        last = store.batches.last()
        for batch in range(0 if last is None else last + 1):
            if (manifest := store.batches.manifest(batch)) is not None:
                check_files(data_dir.results, manifest.files)
                check_files(data_dir.late, manifest.late_files)
    except (OtherLife, CorruptResults) as error:
        return error.primary
    return None


def _forget_after(spark: SparkLog, committed: int) -> None:
    spark.cut(committed, [batch for batch in spark.begun() if batch <= committed])


def _cannot_repeat(store: Store, found: Standing) -> str | None:
    """Return why not all batches can be repeated, None if they can."""
    for batch in range(found.committed + 1):
        manifest = store.batches.manifest(batch)
        if manifest is None:
            return f"the catalog has dropped the manifest of batch {batch}"
        if not manifest.input_end:
            return f"the catalog does not know the input of batch {batch}, which an older version made"
    first = next(iter(store.control_log.records(0, limit=1)), None)
    if first is not None and first.seq != 1:
        return f"the catalog has dropped the changes of plan before record {first.seq}"
    return None


def _begin_anew(store: Store, data_dir: DataDir, aside: str) -> None:
    """Set the checkpoint aside and give the catalog an empty one of another id."""
    facts = store.settings.get(CHECKPOINT_SETTING)
    checkpoint_id = uuid.uuid4().hex[:12]
    with store.transaction():
        kept = dict(facts) if isinstance(facts, dict) else {}
        if kept:
            store.settings.set(CHECKPOINT_SETTING, kept | {"id": checkpoint_id, "sealed": True})
    if data_dir.checkpoint.exists():
        data_dir.checkpoint.rename(data_dir.root / aside)
    data_dir.create()
    mark_checkpoint(store, data_dir, checkpoint_id, anew=True)
