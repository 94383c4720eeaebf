"""A bucket's stored form: a manifest of what it holds, beside segments that are written once.

    manifest   watermarks, next batch, held terms, and for every slice of every join the ids of its segments
               (JSON, small)
    plan       the plan in force (JSON; written only when it changes)
    segments   stored id -> bytes (see ``operators.segment``), never rewritten; slices may hold cuts of them

Ids contain the checkpoint's id, so that no cache outlives its checkpoint, and the batch, so that a replayed
batch writes the same ids again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from catalog.codec import decode, encode
from catalog.errors import InternalError
from catalog.values.plan import Plan
from operators.bucket import Bucket, StreamState
from operators.compiled_family import CompiledFamily
from operators.entitlement import Term
from operators.family_joins import FamilyJoins
from operators.layout import SIDES
from operators.segment import Segment, stored_id
from operators.watermark import Watermark

#: 1 had one chain per family; plans were encoded differently, too. In 2 a segment's lineage words had their
#: bits where the numbers of the filters said, and terms had no end.
FORMAT = 3


class UnknownStateFormat(InternalError):
    """The stored state was written by another version."""

    code = "unknown-state-format"


@dataclass(frozen=True, slots=True)
class SegmentIds:
    """Names the segments that a bucket writes in one batch."""

    checkpoint_id: str
    bucket: int
    batch: int

    def __iter__(self) -> Iterator[str]:
        serial = 0
        while True:
            yield f"{self.checkpoint_id}.{self.bucket}.{self.batch}.{serial}"
            serial += 1


def store_segments(bucket: Bucket, ids: SegmentIds, put: Callable[[str, bytes, Segment], None]) -> set[str]:
    """Name and write the segments that are not stored yet.

    Args:
        bucket: Its joins' segments are replaced by their stored form.
        ids: Names to give, in a set order of families, joins, sides and slices.
        put: Called with id, bytes and segment of every new one.

    Returns:
        Stored ids of all segments that the bucket holds now.
    """
    names = iter(ids)
    held: set[str] = set()
    for family_id in sorted(bucket.families):
        joins = bucket.families[family_id]
        for _, _, _, state in joins.slices():
            for index, segment in enumerate(state.segments):
                if not segment.id:
                    data = segment.encode()
                    stored = segment.stored_as(next(names), len(data))
                    joins.replace(state, index, stored)
                    put(stored.id, data, stored)
                held.add(stored_id(state.segments[index].id))
    return held


def encode_manifest(bucket: Bucket) -> bytes:
    """Return the manifest of a bucket whose segments are all stored."""
    document = {
        "format": FORMAT,
        "next_batch": bucket.next_batch,
        "plan_version": bucket.plan.version if bucket.plan is not None else 0,
        "streams": {
            str(stream_id): [
                s.watermark.lateness_us,
                s.watermark.max_event_time_us,
                s.watermark.heartbeat_us,
            ]
            for stream_id, s in bucket.streams.items()
        },
        "terms": {
            family_id: {
                side: {
                    str(query_id): [
                        [sorted(t.bits), t.epoch_min, t.t_min_us, sorted(t.columns), t.t_max_us]
                        for t in terms
                    ]
                    for query_id, terms in sides[side].items()
                }
                for side in SIDES
            }
            for family_id, sides in bucket.terms.items()
        },
        "families": {
            family_id: {
                join_id: {
                    side: [[segment.id for segment in state.segments] for state in chain.slices[side]]
                    for side in SIDES
                }
                for join_id, chain in joins.chains.items()
            }
            for family_id, joins in bucket.families.items()
        },
    }
    return json.dumps(document, separators=(",", ":")).encode()


def stored_plan_version(manifest: bytes) -> int:
    """Return the plan version in force when a manifest was stored; 0 before the first.

    Raises:
        UnknownStateFormat: The manifest is of another version; so would be the plan beside it.
    """
    version: int = _document(manifest)["plan_version"]
    return version


def segment_ids(manifest: bytes) -> set[str]:
    """Return the stored ids of all segments that a manifest names."""
    families = _document(manifest)["families"]
    return {
        stored_id(segment_id)
        for joins in families.values()
        for sides in joins.values()
        for slices in sides.values()
        for ids in slices
        for segment_id in ids
    }


def load_bucket(
    manifest: bytes | None,
    plan: Plan | None,
    load: Callable[[str], Segment],
    compiled: dict[str, CompiledFamily],
) -> Bucket:
    """Rebuild a bucket from its stored form.

    Args:
        manifest: What ``encode_manifest`` gave; None for a bucket that is new.
        plan: Plan in force when it was stored.
        load: Returns a segment by id.
        compiled: Compiled families of that plan by id; missing ones are compiled and added.

    Raises:
        UnknownStateFormat: The manifest is of another version.
    """
    bucket = Bucket()
    if manifest is None:
        return bucket
    document = _document(manifest)
    bucket.plan = plan
    bucket.next_batch = document["next_batch"]
    bucket.streams = {
        int(stream_id): StreamState(Watermark(*facts)) for stream_id, facts in document["streams"].items()
    }
    bucket.terms = {
        family_id: {
            side: {
                int(query_id): tuple(
                    Term(frozenset(bits), epoch, oldest, frozenset(columns), newest)
                    for bits, epoch, oldest, columns, newest in terms
                )
                for query_id, terms in sides[side].items()
            }
            for side in SIDES
        }
        for family_id, sides in document["terms"].items()
    }
    if plan is None:
        return bucket
    for family in plan.families:
        if family.id not in compiled:
            compiled[family.id] = bucket.compile(family, plan)
        joins = FamilyJoins.empty(compiled[family.id])
        stored = document["families"][family.id]
        for join_id, chain in joins.chains.items():
            for side in SIDES:
                for state, ids in zip(chain.slices[side], stored[join_id][side], strict=True):
                    state.segments = [load(segment_id) for segment_id in ids]
        bucket.families[family.id] = joins
    return bucket


def _document(manifest: bytes) -> dict[str, Any]:
    # JSON as encode_manifest wrote it; what is in it depends on the format, which is checked first.
    document: dict[str, Any] = json.loads(manifest)
    if document["format"] != FORMAT:
        raise UnknownStateFormat(
            f"the stored state has format {document['format']}, this version reads {FORMAT}",
            hint="Go on with the version of Sluice that wrote it, or start anew from a fresh checkpoint.",
        )
    return document


def encode_plan(plan: Plan) -> bytes:
    """Return the stored form of a plan."""
    return encode(plan)


def decode_plan(data: bytes) -> Plan:
    """Read the stored form of a plan."""
    return decode(Plan, data)
