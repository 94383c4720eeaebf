"""The manifest of a bucket: its state, and the ids of the values that contain its segments.

A manifest is a small JSON document. It holds the watermarks, the number of the next batch, the terms by which
queries may use rows from before their activation (``operators.lineage.entitlement``), the ids of the segments
of every slice, and the ids of the values that this batch and the previous batch dropped.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from catalog.documents.codec import decode, encode
from catalog.values.plan import Plan
from operators.bucket.bucket import Bucket
from operators.errors import UnknownStateFormat
from operators.kernels.keys import Int64s
from operators.lazy.lazy_segment import SegmentFacts, encode_facts
from operators.segments.encoding.row_codec import encode_rows
from operators.segments.encoding.view_names import bloom_id, stored_ids
from operators.segments.layout import SIDES

#: Lowest manifest format that is read. Formats 1 to 4 are refused. In 1, a family had one chain, and plans
#: had another encoding. In 2, a filter's number was the place of its bit in a lineage, and terms had no upper
#: bound of event times. In 3, views could only cut segments by time. Up to 4, Spark's state store held them.
FORMAT = 5
#: Format 5 with closed keys. Written only if a stream has a contract.
FORMAT_WITH_CLOSINGS = 6
#: Format 6 with ranks of rows, the progress of ordered streams or open groups. Closed keys are optional.
FORMAT_WITH_MORE = 7

#: Format 7 with exchanged intermediates. Everything that formats 6 and 7 added is optional.
FORMAT_WITH_EXCHANGES = 8
#: Format 8 with parked segments, whose rows wait on disk. Everything that formats 6 to 8 added is optional.
FORMAT_WITH_PARKED = 9
#: Format 9 with rows that wait for their place in the order. Everything that formats 6 to 9 add is optional.
FORMAT_WITH_SORTING = 10


def encode_manifest(bucket: Bucket, dropped: Iterable[str] = (), dropped_before: Iterable[str] = ()) -> bytes:
    """Return the manifest of a bucket whose segments are all stored.

    Args:
        bucket: The bucket.
        dropped: Stored ids of the values that the bucket used before its batch and no longer uses.
        dropped_before: Stored ids of the values that the previous batch dropped.
    """
    document = {
        "format": FORMAT,
        "next_batch": bucket.next_batch,
        "plan_version": bucket.plan.version if bucket.plan is not None else 0,
        "dropped": list(dropped),
        "dropped_before": list(dropped_before),
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
    undecided = {
        family_id: [[segment.id for segment in state.segments] for state in joins.absence.states()]
        for family_id, joins in bucket.families.items()
        if joins.absence is not None
    }
    if undecided:
        document["absence"] = undecided
        document["unsearched"] = {
            family_id: joins.absence.unsearched
            for family_id, joins in bucket.families.items()
            if joins.absence is not None
        }
    closed = {
        family_id: {
            side: [
                keys.floor_us,
                keys.newest_us,
                keys.unpurged,
                keys.dead,
                None if keys.last is None else b64encode(encode_rows(keys.last)).decode(),
                keys.dead_per_slice,
                [keys.males, keys.killed, keys.kept],
                [segment.id for segment in keys.segments],
            ]
            for side, keys in joins.closed.items()
        }
        for family_id, joins in bucket.families.items()
        if joins.closed
    }
    if closed:
        # Versions of Sluice without closings must refuse this state, because it lacks the purged rows of
        # closed keys.
        document |= {"format": FORMAT_WITH_CLOSINGS, "closed": closed}
    # ``astuple`` would copy each number of each block, which takes longer than all other steps of encoding.
    orders = {
        str(stream_id): [getattr(s.order, field.name) for field in fields(s.order)]
        for stream_id, s in bucket.streams.items()
        if s.order is not None
    }
    if orders:
        # Versions of Sluice without orders would read the clocks of ordered families as event times.
        document |= {"format": FORMAT_WITH_MORE, "orders": orders}
    ranked = {
        family_id: [
            [joins.ranked.released_us, *((r.before_us, r.added) for r in joins.ranked.rankings.values())],
            *([segment.id for segment in state.segments] for state in joins.ranked.states()),
        ]
        for family_id, joins in bucket.families.items()
        if joins.ranked is not None
    }
    if ranked:
        document |= {"format": FORMAT_WITH_MORE, "ranked": ranked}
    groups = {
        family_id: [
            joins.groups.facts(),
            [segment.id for segment in joins.groups.segments],
        ]
        for family_id, joins in bucket.families.items()
        if joins.groups is not None
    }
    if groups:
        # Versions of Sluice without groups would lose the groups.
        document |= {"format": FORMAT_WITH_MORE, "groups": groups}
    waiting = {
        family_id: [segment.id for segment in joins.waiting.segments]
        for family_id, joins in bucket.families.items()
        if joins.waiting is not None
    }
    if waiting:
        document |= {"format": FORMAT_WITH_MORE, "waiting": waiting}
    untold = {
        family_id: joins.waiting.closings
        for family_id, joins in bucket.families.items()
        if joins.waiting is not None and joins.waiting.closings
    }
    if untold:
        document["untold"] = untold
    horizons = {str(i): s.horizon_us for i, s in bucket.streams.items() if s.horizon_us is not None}
    if horizons:
        document["horizons"] = horizons
    parked = {
        family_id: {
            side: [
                [[s.id, s.rows, s.t_min, s.t_max, s.values] for s in rows.closed],
                [segment.id for segment in rows.tail.segments],
            ]
            for side, rows in joins.parked.items()
        }
        for family_id, joins in bucket.families.items()
        if joins.parked
    }
    facts = {
        segment.id: SegmentFacts.of(segment)
        for joins in bucket.families.values()
        for segment in joins.stored()
        if segment.bloom is not None
    }
    if facts:
        # Versions of Sluice without lazy segments decode these segments, and never delete their key filters.
        document["lazy"] = encode_facts(facts)
    if bucket.arrived:
        # Versions of Sluice without exchanges would lose the pairs in transit.
        document |= {"format": FORMAT_WITH_EXCHANGES, "arrived": bucket.arrived}
    if bucket.exchange_files:
        document |= {"format": FORMAT_WITH_EXCHANGES, "exchange": bucket.exchange_files}
    if parked:
        # Versions of Sluice without parked rows would lose these rows.
        document |= {"format": FORMAT_WITH_PARKED, "parked": parked}
    sorting = {
        family_id: {side: [s.id for s in rows.segments] for side, rows in joins.sorting.items()}
        for family_id, joins in bucket.families.items()
        if any(rows.segments for rows in joins.sorting.values())
    }
    if sorting:
        # Versions of Sluice without sorting would lose the waiting rows.
        document |= {"format": FORMAT_WITH_SORTING, "sorting": sorting}
    rings = {
        family_id: {
            join_id: {side: _packed(rings.gone) for side, rings in chain.rings.items()}
            for join_id, chain in joins.chains.items()
            if chain.rings is not None
        }
        for family_id, joins in bucket.families.items()
        if joins.family.plan.probe.has_rings
    }
    if rings:
        document["rings"] = rings
    return json.dumps(document, separators=(",", ":")).encode()


def _packed(numbers: Int64s) -> str:
    """Return numbers as compact text, which JSON can hold."""
    return b64encode(zlib.compress(numbers.astype("<i8").tobytes())).decode()


def stored_plan_version(manifest: bytes) -> int:
    """Return the plan version in force when a manifest was stored, or 0 before the first plan.

    Raises:
        UnknownStateFormat: This version of Sluice cannot read the format of the manifest or of its plan.
    """
    version: int = manifest_document(manifest)["plan_version"]
    return version


def dropped_ids(manifest: bytes) -> tuple[str, ...]:
    """Return the stored ids of the values that a manifest's batch dropped."""
    return tuple(manifest_document(manifest)["dropped"])


def dropped_before_ids(manifest: bytes) -> tuple[str, ...]:
    """Return the stored ids of the values that the batch before a manifest's batch dropped."""
    return tuple(manifest_document(manifest).get("dropped_before", ()))


def exchange_ids(manifest: bytes) -> tuple[str, ...]:
    """Return the stored ids of the pairs that a manifest's batch sent to other buckets."""
    return tuple(manifest_document(manifest).get("exchange", ()))


def segment_ids(manifest: bytes) -> set[str]:
    """Return the stored ids of a manifest's values that contain segments, key filters or exchanged pairs."""
    document = manifest_document(manifest)
    held = [
        ids for joins in document["families"].values() for sides in joins.values() for ids in sides.values()
    ]
    held += document.get("absence", {}).values()
    held += [[keys[-1] for keys in sides.values()] for sides in document.get("closed", {}).values()]
    held += [kept[1:] for kept in document.get("ranked", {}).values()]
    held += [[ids] for _, ids in document.get("groups", {}).values()]
    held += [[ids] for ids in document.get("waiting", {}).values()]
    for closed, tail in (kept for sides in document.get("parked", {}).values() for kept in sides.values()):
        held.append([[segment[0] for segment in closed], tail])
    held += [sides.values() for sides in document.get("sorting", {}).values()]
    found = {
        stored for slices in held for ids in slices for segment_id in ids for stored in stored_ids(segment_id)
    }
    blooms = (bloom_id(segment_id) for segment_id in document.get("lazy", {}).get("segments", {}))
    return found.union(document.get("exchange", ()), blooms)


def manifest_document(manifest: bytes) -> dict[str, Any]:
    """Read a manifest as JSON; the fields depend on the manifest's format.

    Raises:
        UnknownStateFormat: The manifest has a format that this version of Sluice does not read.
    """
    document: dict[str, Any] = json.loads(manifest)
    known = range(FORMAT, FORMAT_WITH_SORTING + 1)
    # The first version of Sluice with groups stored a third value per family here: its finished keys.
    if document["format"] not in known or any(len(kept) != 2 for kept in document.get("groups", {}).values()):
        raise UnknownStateFormat(
            f"the stored state has format {document['format']}, "
            f"this version reads {FORMAT} to {FORMAT_WITH_SORTING}",
            hint="Continue with the version of Sluice that wrote it, or start again from a fresh checkpoint.",
        )
    return document


def encode_plan(plan: Plan) -> bytes:
    """Return the stored form of a plan."""
    return encode(plan)


def decode_plan(data: bytes) -> Plan:
    """Read the stored form of a plan."""
    return decode(Plan, data)
