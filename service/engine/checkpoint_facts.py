"""Facts of a checkpoint that its first start fixes permanently."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from catalog.store.store import Store
from service.checkpoint.buckets import CHECKPOINT_SETTING, bucket_keys
from service.config.settings import Settings
from service.errors import BucketsFixed


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """Facts that the first start of a checkpoint fixes.

    Attributes:
        id: Part of every segment's name.
        keys: Key of each bucket in Spark.
        partitions: Number of shuffle partitions.
        sealed: Whether every segment file of the checkpoint has a checksum (a seal); files of older versions
            have none.
    """

    id: str
    keys: tuple[int, ...]
    partitions: int
    sealed: bool


def check_buckets(store: Store, settings: Settings) -> None:
    """Refuse settings with another number of buckets than the first start has fixed.

    Raises:
        BucketsFixed: The numbers differ.
    """
    facts, wanted = store.settings.get(CHECKPOINT_SETTING), settings.state.buckets
    if isinstance(facts, dict) and wanted is not None and wanted != int(str(facts["buckets"])):
        raise BucketsFixed(
            f"this data directory has {facts['buckets']} buckets, not {wanted}",
            detail="The number of buckets is fixed by the first batch.",
            hint=f"Set SLUICE_BUCKETS (--buckets) to {facts['buckets']}, leave it out, or hash the state "
            "again with sluice move --buckets.",
        )


def checkpoint_facts(store: Store, settings: Settings) -> CheckpointFacts:
    """Return the facts fixed by the first start; at the first start, fix them.

    Raises:
        BucketsFixed: The settings have another number of buckets.
    """
    check_buckets(store, settings)
    facts = store.settings.get(CHECKPOINT_SETTING)
    if not isinstance(facts, dict):
        facts = {"id": uuid.uuid4().hex[:12], "buckets": settings.bucket_count, "sealed": True}
    if "partitions" not in facts:  # after a move, the new machine sets them
        facts = facts | {"partitions": min(int(str(facts["buckets"])), max(settings.spark.cores, 1))}
        store.settings.set(CHECKPOINT_SETTING, facts)
    buckets, partitions = int(str(facts["buckets"])), int(str(facts["partitions"]))
    keys = bucket_keys(buckets, partitions)
    return CheckpointFacts(str(facts["id"]), keys, partitions, facts.get("sealed") is True)
