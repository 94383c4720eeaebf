"""State of a checkpoint, rehashed into the buckets of a new checkpoint (``operators.rehash.rehash``).

    old checkpoint   Spark's state after batch n: a manifest per bucket   -->  names segments
    new checkpoint   <id>.<bucket>.begin: a manifest per bucket, a file   -->  names new segments
                     begin.json: the offset at the end of batch n; Spark's logs and state are empty

In a checkpoint's first batch, Spark fixes the number of partitions and so the partition of each bucket. After
a move, Spark therefore begins with an empty checkpoint, whose first batch is n + 1. A bucket for which Spark
has no state yet begins with its ``.begin`` file (``service.job.chain_processor``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from catalog.store.store import Store
from operators.bucket.bucket import Bucket
from operators.bucket.state.load_bucket import load_bucket
from operators.bucket.state.manifest import (
    decode_plan,
    encode_manifest,
    encode_plan,
    exchange_ids,
    stored_plan_version,
)
from operators.bucket.state.store_segments import SegmentIds, store_segments
from operators.cache.segment_cache import SegmentCache
from operators.join.compiled_family import CompiledFamily
from operators.rehash.rehash import SlicePlace, rehashed, rows_by_slice
from operators.segments.files.segment_files import SegmentFiles
from operators.segments.segment import ArrivedFile, Segment
from operators.steps.exchange import ExchangedRows, decode_exchange, encode_exchange, rehashed_exchange
from operators.storage.object_folder import ObjectFolder
from service.checkpoint.buckets import CHECKPOINT_SETTING, bucket_keys
from service.checkpoint.spark_log import BEGIN, Offset, SparkLog
from service.commit.sync import sync_file
from service.config.data_dir import DataDir
from service.errors import CheckpointDamaged, MoveFailed
from service.recovery.checkpoint import Standing
from service.recovery.schema_paths import put_schema_paths_right

#: Function that takes a checkpoint and Spark's number of a batch, and returns the manifest of each bucket by
#: Spark's key of the bucket.
ReadManifests = Callable[[Path, int], dict[int, bytes]]

#: Maximum bytes of decoded segments that are cached while a bucket is read. Each old bucket is read once per
#: new bucket.
_CACHE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StoredState:
    """State of all buckets after a batch.

    Attributes:
        checkpoint_id: Id of the checkpoint.
        manifests: Manifest of each bucket, in order of bucket number.
        files: Files of the checkpoint's segments.
    """

    checkpoint_id: str
    manifests: Sequence[bytes]
    files: SegmentFiles

    def buckets(self) -> Iterator[Bucket]:
        """Yield the buckets, in order of their numbers; a bucket is read when it is requested.

        Raises:
            CorruptSegment: A segment is missing or damaged.
        """
        compiled: dict[str, CompiledFamily] = {}
        for number, manifest in enumerate(self.manifests):
            cache = SegmentCache(_CACHE_BYTES)

            def load(segment_id: str, cache: SegmentCache = cache) -> Segment:
                return cache.get(segment_id, self.files.read).segment

            version = stored_plan_version(manifest)
            stored = SegmentIds(self.checkpoint_id, number, 0).plan(version)
            plan = decode_plan(self.files.read(stored).to_pybytes()) if version else None
            yield load_bucket(manifest, plan, load, compiled)

    def exchanged(self) -> Iterator[tuple[str, list[ExchangedRows]]]:
        """Yield the stored id and the contents of each exchange file, which has pairs for other buckets.

        Raises:
            CorruptSegment: A file is missing or damaged.
        """
        for manifest in self.manifests:
            for stored_id in exchange_ids(manifest):
                yield stored_id, decode_exchange(self.files.read(stored_id))


def stored_state(
    store: Store, data_dir: DataDir, found: Standing, read_manifests: ReadManifests
) -> StoredState | None:
    """Return the state with which a checkpoint continues, or None before its first batch.

    Raises:
        CheckpointDamaged: The state cannot be read, or does not have exactly one manifest per bucket.
        CorruptSegment: A file with which a moved checkpoint begins is missing or damaged.
    """
    facts = store.settings.get(CHECKPOINT_SETTING)
    if found.done < 0 or not isinstance(facts, dict):
        return None
    checkpoint_id, buckets = str(facts["id"]), int(str(facts["buckets"]))
    files = SegmentFiles(data_dir.segments, sealed=facts.get("sealed") is True)
    if found.done < found.first:
        return begin_files(checkpoint_id, buckets, files)
    put_schema_paths_right(data_dir.checkpoint)
    stored = read_manifests(data_dir.checkpoint, found.done + SparkLog(data_dir.checkpoint).ahead())
    keys = bucket_keys(buckets, int(str(facts["partitions"])))
    if set(stored) != set(keys):
        raise CheckpointDamaged(
            f'Spark\'s state in "{data_dir.checkpoint}" does not belong to {buckets} buckets',
            detail=f"The state is of {len(stored)} buckets.",
            hint=f'"sluice repair {data_dir.root}" shows whether the state can be repaired.',
        )
    return StoredState(checkpoint_id, [stored[key] for key in keys], files)


def begin_files(checkpoint_id: str, buckets: int, files: SegmentFiles) -> StoredState:
    """Return the state with which a moved checkpoint begins.

    Raises:
        CorruptSegment: A file is missing or damaged.
    """
    ids = [SegmentIds(checkpoint_id, number, 0) for number in range(buckets)]
    return StoredState(checkpoint_id, [files.read(own.begin).to_pybytes() for own in ids], files)


def move_state(
    state: StoredState, target: DataDir, checkpoint_id: str, buckets: int, offset: Offset
) -> tuple[int, int]:
    """Write the state with which a new checkpoint begins, and check it by reading it back.

    Args:
        state: State after the last done batch.
        target: Data directory of the new checkpoint.
        checkpoint_id: Id of the new checkpoint.
        buckets: Number of buckets of the new checkpoint.
        offset: Offset at the end of the last done batch.

    Returns:
        Number of rows, each counted once for every join that stores it, and number of bytes written.

    Raises:
        CorruptSegment: A segment is missing or damaged.
        MoveFailed: Rows were lost or doubled.
        StorageDown: The object store does not accept a file.
    """
    files = SegmentFiles(target.segments)
    written_bytes = 0
    # The next batch finds an exchange file by the number of the bucket that wrote it, so the new name keeps
    # this number.
    sent = [
        (f"{checkpoint_id}{stored_id[stored_id.index('.') :]}", rehashed_exchange(parts, buckets))
        for stored_id, parts in state.exchanged()
    ]
    for number in range(buckets):
        ids = SegmentIds(checkpoint_id, number, offset["batch"] - 1)
        written: list[str] = []

        def put(
            stored_id: str,
            data: bytes | ArrivedFile,
            _segment: Segment | None = None,
            written: list[str] = written,
        ) -> None:
            nonlocal written_bytes
            assert isinstance(data, bytes), "rows that have just arrived are not part of a stored state"
            files.write(stored_id, data)
            written.append(stored_id)
            written_bytes += len(data)

        bucket = rehashed(state.buckets(), number, buckets)
        for stored_id, parts in sent[number::buckets]:
            put(stored_id, encode_exchange(parts))
            bucket.exchange_files += (stored_id,)
        store_segments(bucket, ids, put)
        if bucket.plan is not None:
            put(ids.plan(bucket.plan.version), encode_plan(bucket.plan))
        put(ids.begin, encode_manifest(bucket))
        files.publish(written)
        if isinstance(target.segments, ObjectFolder):  # so that the check reads them back
            for name in written:
                (target.segments / name).unlink(missing_ok=True)
    before, after = (_rows(each) for each in (state, begin_files(checkpoint_id, buckets, files)))
    if before != after:
        raise MoveFailed(
            "the written state does not have the rows of the state that was read",
            detail=f"{before.total()} rows were read, and {after.total()} rows were written.",
        )
    begin = target.checkpoint / BEGIN
    begin.write_text(json.dumps(offset), encoding="utf-8")
    sync_file(begin)
    return after.total(), written_bytes


def _rows(state: StoredState) -> Counter[SlicePlace]:
    """Count the rows of a state by slice, and the pairs in its exchange files by family."""
    rows = rows_by_slice(state.buckets())
    for _, parts in state.exchanged():
        for part in parts:
            rows[part.family, "exchange", "a", 0] += part.rows.num_rows
    return rows
