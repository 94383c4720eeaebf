"""Voided input: input that an operator leaves out of a batch that fails repeatedly.

    decision ── catalog, setting "voided_batches" ── source: no partition ── the batch is committed
                        dead_letters/batch-000000007-A.parquet, .json ──┘

The decision is in the catalog before the batch is repeated, and applies to every repetition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.documents.codec import decode, encode
from catalog.errors import SluiceError
from catalog.values.batch import BatchManifest
from catalog.values.stream import KafkaSource, Stream
from operators.storage.folder import Folder, directory_here, publish
from service.errors import BatchVoided
from service.inputs.inputs import Inputs
from service.inputs.partitions import InputPartition
from service.inputs.reading.read import read_partition
from service.inputs.sources.posted.http_log import EventLog

if TYPE_CHECKING:
    from catalog.store.store import Store  # not at run time: readers must not load SQLAlchemy

_SETTING: Final = "voided_batches"
#: Number of decisions that are kept; a decision matters only while its batch can be repeated.
_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class VoidedBatch:
    """A decision that a batch is processed without some of its input.

    Attributes:
        batch: Number of the batch.
        stream_ids: Ids of the streams whose rows are left out; empty for all streams.
        reason: Error with which the batch failed.
        actor: Name of the client that decided.
        at_us: Time of the decision, µs UTC.
    """

    batch: int
    stream_ids: tuple[int, ...]
    reason: str
    actor: str
    at_us: int

    def holds(self, stream_id: int) -> bool:
        """Return whether the rows of a stream are left out."""
        return not self.stream_ids or stream_id in self.stream_ids


def void_batch(store: Store, voided: VoidedBatch) -> None:
    """Record the decision that a batch leaves out input."""
    with store.transaction():
        texts = [encode(found).decode() for found in (*voided_batches(store), voided)]
        store.settings.set(_SETTING, [*texts[-_KEPT:]])


def voided_batches(store: Store) -> tuple[VoidedBatch, ...]:
    """Return the recorded decisions about batches that leave out input, oldest first."""
    known = store.settings.get(_SETTING)
    texts = known if isinstance(known, list) else []
    return tuple(decode(VoidedBatch, str(text).encode()) for text in texts)


def is_voided(voided: Sequence[VoidedBatch], batch: int, stream_id: int) -> VoidedBatch | None:
    """Return the decision to leave the rows of a stream out of a batch, or None if there is no decision."""
    return next((found for found in voided if found.batch == batch and found.holds(stream_id)), None)


def refuse_voided(store: Store, manifest: BatchManifest) -> None:
    """Refuse to commit a batch that has rows which a decision, made while the batch ran, leaves out.

    Raises:
        BatchVoided: The batch must be repeated without these rows.
    """
    decisions = voided_batches(store)
    for counters in manifest.streams:
        if counters.rows and is_voided(decisions, manifest.batch, counters.stream_id) is not None:
            raise BatchVoided(f"batch {manifest.batch} was voided while it ran; it is repeated")


@dataclass(frozen=True, slots=True)
class VoidedInput:
    """Writes to dead letters the rows that a voided batch leaves out, when the batch is committed.

    Attributes:
        store: Catalog with the decisions.
        folder: Folder of dead letters.
        events_url: SQLAlchemy URL of the event log.
    """

    store: Store
    folder: Folder
    events_url: str

    def __call__(self, batch: int, start: Mapping[str, int], end: Mapping[str, int]) -> tuple[Folder, ...]:
        """Write the rows that a batch leaves out of its input; a repeated batch writes the same files.

        Args:
            batch: Number of the batch.
            start: Offset at which the batch's input begins.
            end: Offset at which the batch's input ends.

        Returns:
            The folders that files were written to, so that the caller syncs them.
        """
        decisions = [found for found in voided_batches(self.store) if found.batch == batch]
        plan = self.store.control_log.plan_at(end["control"]) if decisions else None
        if plan is None:
            return ()
        written: list[Path] = []
        with (
            closing(EventLog(self.events_url)) as events,
            closing(Inputs(self.store, events, dead_letters=self.folder)) as inputs,
        ):
            for stream, pieces in inputs.between(plan.streams, start, end).items():
                voided = is_voided(decisions, batch, stream.id)
                if voided is not None and pieces:
                    written.append(write_dead_letters(self.folder, voided, stream, pieces))
        return (self.folder,) if written else ()


def write_dead_letters(
    folder: Folder, voided: VoidedBatch, stream: Stream, partitions: Sequence[InputPartition]
) -> Path:
    """Write the rows that are left out, and the reason; for unreadable rows, write the error instead.

    Args:
        folder: Folder of dead letters, made if it is missing.
        voided: The decision.
        stream: The stream.
        partitions: Its input in the batch.

    Returns:
        The file with the reason; the rows are in a file next to it.
    """
    directory = directory_here(folder)
    directory.mkdir(parents=True, exist_ok=True)
    if isinstance(stream.source, KafkaSource):  # a bad message must not prevent reading
        stream = replace(stream, source=replace(stream.source, on_bad="dead-letter"))
    name = f"batch-{voided.batch:09d}-{stream.name}"
    tables, unread = [], []
    for partition in partitions:
        try:
            tables.append(read_partition(stream, partition))
        except (SluiceError, OSError, pa.ArrowException) as error:
            unread.append(str(error))
    if tables:
        pq.write_table(pa.concat_tables(tables), directory / f"{name}.parquet.part")
        (directory / f"{name}.parquet.part").replace(directory / f"{name}.parquet")
    facts = {
        "batch": voided.batch,
        "stream": stream.name,
        "rows": sum(table.num_rows for table in tables),
        "reason": voided.reason,
        "actor": voided.actor,
        "at_us": voided.at_us,
        "unread": unread,
    }
    told = directory / f"{name}.json"
    told.write_text(json.dumps(facts, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    publish(folder, [told.name, *([f"{name}.parquet"] if tables else [])])
    return told
