"""Properties of a checkpoint that the first start of the job fixes for good: id, buckets, partitions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from catalog.store.store import Store
from service.checkpoint.buckets import CHECKPOINT_SETTING, bucket_keys
from service.config.settings import Settings
from service.errors import BucketsFixed


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """Properties of a checkpoint that the first start of the job fixes.

    Attributes:
        id: Id of the checkpoint, part of every segment's name.
        keys: Spark's key of each bucket.
        partitions: Number of shuffle partitions.
        sealed: Whether every segment file of the checkpoint has a checksum (a seal). Files of older versions
            of Sluice have no seal.
    """

    id: str
    keys: tuple[int, ...]
    partitions: int
    sealed: bool


def check_buckets(store: Store, settings: Settings) -> None:
    """Refuse settings with another number of buckets than the first start has fixed.

    Raises:
        BucketsFixed: The settings ask for another number of buckets.
    """
    facts, wanted = store.settings.get(CHECKPOINT_SETTING), settings.state.buckets
    if isinstance(facts, dict) and wanted is not None and wanted != int(str(facts["buckets"])):
        raise BucketsFixed(
            f"this data directory has {facts['buckets']} buckets, not {wanted}",
            detail="The number of buckets is fixed by the first batch.",
            hint=f"Set SLUICE_BUCKETS (--buckets) to {facts['buckets']}, leave it out, or move the "
            "data directory to another number of buckets with sluice move --buckets.",
        )


def checkpoint_facts(store: Store, settings: Settings) -> CheckpointFacts:
    """Return the properties of the checkpoint; at the first start, choose and store them.

    Raises:
        BucketsFixed: The settings have another number of buckets.
    """
    check_buckets(store, settings)
    facts = store.settings.get(CHECKPOINT_SETTING)
    if not isinstance(facts, dict):
        facts = {"id": uuid.uuid4().hex[:12], "buckets": settings.bucket_count, "sealed": True}
    if "partitions" not in facts:  # after a move: partitions depend on the new machine
        facts = facts | {"partitions": min(int(str(facts["buckets"])), max(settings.spark.cores, 1))}
        store.settings.set(CHECKPOINT_SETTING, facts)
    buckets, partitions = int(str(facts["buckets"])), int(str(facts["partitions"]))
    keys = bucket_keys(buckets, partitions)
    return CheckpointFacts(str(facts["id"]), keys, partitions, facts.get("sealed") is True)
