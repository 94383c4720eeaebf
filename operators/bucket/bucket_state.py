"""A bucket's stored form: a manifest of what it holds, beside segments that are written once.

    manifest   watermarks, next batch, held terms, for every slice of every join the ids of its segments, and
               what this batch and the one before dropped (JSON, small)
    values     stored id -> bytes, never rewritten (``segments.segment_files``): the plan in force (JSON),
               segments (``segments.segment``), of which slices may hold views (``segments.view_names``),
               and the patches of views (``operators.segments.patch``)

Rows that a migration hands to other joins, or whose lineage it adds to, are mostly stored already: they
become views, and what they need besides is one patch for the whole bucket, where writing them again would
take longer than the rest of the batch. Other batches write what they make: of a segment that moves on
filtered nothing stays behind.

Ids contain the checkpoint's id, so that no cache outlives its checkpoint, and the batch, so that a replayed
batch writes the same ids again.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.store.codec import decode, encode
from catalog.values.plan import Plan
from operators.bucket.bucket import Bucket, StreamState
from operators.errors import UnknownStateFormat
from operators.join.compiled_family import CompiledFamily
from operators.join.family_joins import FamilyJoins, Holder
from operators.kernels.keys import Int64s
from operators.kernels.watermark import Watermark
from operators.lineage.entitlement import Term
from operators.orders.order_progress import OrderProgress
from operators.parking.parked_rows import ClosedSegment
from operators.segments.layout import SIDES
from operators.segments.patch import PatchWriter
from operators.segments.row_codec import decode_rows, encode_rows
from operators.segments.segment import ArrivedFile, Origin, Segment
from operators.segments.view_names import KEPT, part_name, patched_name, steps, stored_id, stored_ids

#: 1 had one chain per family; plans were encoded differently, too. In 2 a segment's lineage words had their
#: bits where the numbers of the filters said, and terms had no end. In 3 the only views were cuts. Up to 4
#: values were in the state store, where no later version looks for them.
FORMAT = 5
#: The same format with closed keys; written only if a stream has a contract.
FORMAT_WITH_CLOSINGS = 6
#: The same, with ranks of rows, the progress of ordered streams or open groups, and with closed keys if there
#: are any.
FORMAT_WITH_MORE = 7

#: The same, with exchanged intermediates, and with all that the others have.
FORMAT_WITH_EXCHANGES = 8
#: The same, with closed segments of rows that wait on disk, and with all that the others have.
FORMAT_WITH_PARKED = 9
#: The same, with rows that wait for their place in the order, and with all that the others have.
FORMAT_WITH_SORTING = 10

#: A view of so many steps is not viewed again but written again: names stay short, views quick to open.
MOST_STEPS = 4
#: Rows are written again if more rows than so many would stay stored for each one that is needed.
MOST_ROWS_PER_NEEDED = 2


@dataclass(frozen=True, slots=True)
class SegmentIds:
    """Names what a bucket writes in one batch: segments and patches in their order, and a plan."""

    checkpoint_id: str
    bucket: int
    batch: int

    def __iter__(self) -> Iterator[str]:
        serial = 0
        while True:
            yield f"{self.prefix}{self.batch}.{serial}"
            serial += 1

    @property
    def prefix(self) -> str:
        """Beginning of the ids of all segments of the bucket."""
        return f"{self.checkpoint_id}.{self.bucket}."

    def plan(self, version: int) -> str:
        """Return the stored id of a plan version."""
        return f"{self.prefix}plan.{version}"

    @property
    def exchange(self) -> str:
        """Stored id of the pairs that the bucket sends to others in the batch."""
        return f"{self.prefix}{self.batch}.exchange"

    @property
    def begin(self) -> str:
        """Stored id of the manifest that the bucket of a moved checkpoint begins with."""
        return f"{self.prefix}begin"


#: Place of a segment: joins, slice (or closed keys, or groups), and its number there.
Place = tuple[FamilyJoins, Holder, int]


def store_segments(
    bucket: Bucket, ids: SegmentIds, put: Callable[[str, bytes | ArrivedFile, Segment | None], None]
) -> set[str]:
    """Name the segments that are not stored yet, and write what of them is not.

    Args:
        bucket: Its joins' segments are replaced by their stored form.
        ids: Names to give, in a set order of families, joins, sides and slices.
        put: Called with id, bytes and segment of every new one, and without a segment for a patch; instead of
            bytes with the file that has them, where there is one.

    Returns:
        Stored ids of all values that the bucket's segments are made of now.
    """
    names = iter(ids)
    known: dict[str, Segment] = {}
    worth_viewing = _worth_viewing(bucket) if bucket.plan_changed else frozenset()
    held: set[str] = set()
    views: dict[int, tuple[Segment, Origin, list[Place]]] = {}
    # By name, or by identity: then the segment is kept, so that its identity is not given to another one.
    written: dict[str | int, tuple[Segment, Segment]] = {}
    for place in _places(bucket):
        joins, state, index = place
        segment = state.segments[index]
        origin = segment.origin
        if origin is not None and _viewable(segment, origin, worth_viewing):
            # Joins whose queries ask for the same rows of it have them in common.
            views.setdefault(id(segment), (segment, origin, []))[2].append(place)
            continue
        if not segment.id or (bucket.plan_changed and _left_over(segment, worth_viewing)):
            # What joins have in common by a migration they keep in common. Rows that just came each join
            # stores for itself, as the cost models say (``planner.costs``).
            which = segment.id or id(segment)
            if which not in written or (not segment.id and origin is None):
                data = segment.arrived or segment.encode()
                size = data.bytes if isinstance(data, ArrivedFile) else len(data)
                written[which] = segment, segment.stored_as(next(names), size)
                put(written[which][1].id, data, written[which][1])
            segment = written[which][1]
            joins.replace(state, index, segment)
        elif known.setdefault(segment.id, segment) is not segment:
            # Several joins cut the same rows: read back they are one, and a replay must go the same way.
            joins.replace(state, index, known[segment.id])
        held.update(stored for stored, _ in segment.values)
    if views:
        patch_id, writer = next(names), PatchWriter()
        named = {
            number: _view_name(segment, origin, patch_id, writer)
            for number, (segment, origin, _) in views.items()
        }
        patch = writer.encode()
        put(patch_id, patch, None)
        for number, (segment, _, places) in views.items():
            stored = segment.stored_as_view(named[number], (patch_id, len(patch)))
            stored = known.setdefault(stored.id, stored)
            held.update(value for value, _ in stored.values)
            for joins, state, index in places:
                joins.replace(state, index, stored)
    for parked in (parked for joins in bucket.families.values() for parked in joins.parked.values()):
        parked.close()
        held.update(stored for segment in parked.closed for stored, _ in segment.values)
    return held


def _places(bucket: Bucket) -> Iterator[Place]:
    for family_id in sorted(bucket.families):
        joins = bucket.families[family_id]
        for state in joins.states():
            for index in range(len(state.segments)):
                yield joins, state, index


def _worth_viewing(bucket: Bucket) -> frozenset[str]:
    """Return the ids of stored segments that new views may be made of: enough of their rows are needed."""
    needed: Counter[str] = Counter()
    whole: dict[str, int] = {}
    seen: dict[int, Segment] = {}
    for _, state, index in _places(bucket):
        segment = state.segments[index]
        source = segment if segment.id else segment.origin.segment if segment.origin is not None else None
        if source is None or id(segment) in seen:
            continue
        seen[id(segment)] = segment
        base = stored_id(source.id)
        whole[base] = source.stored_rows
        needed[base] += len(segment)
    return frozenset(base for base, rows in whole.items() if rows <= MOST_ROWS_PER_NEEDED * needed[base])


def _viewable(segment: Segment, origin: Origin, worth_viewing: frozenset[str]) -> bool:
    """Return whether a segment is to be stored as a view of its origin."""
    name = origin.segment.id
    if stored_id(name) not in worth_viewing or len(steps(name)) >= MOST_STEPS:
        return False
    return bool(segment.filters) or not origin.relabelled


def _left_over(segment: Segment, worth_viewing: frozenset[str]) -> bool:
    """Return whether a selection keeps rows stored that were chosen for queries that have gone since."""
    return KEPT in segment.id and stored_id(segment.id) not in worth_viewing


def _view_name(segment: Segment, origin: Origin, patch_id: str, writer: PatchWriter) -> str:
    """Name a segment as a view of its origin; what it needs besides becomes part of a patch."""
    kept = lineage = None
    if origin.index is not None:
        kept = part_name(patch_id, writer.keep(origin.index, len(origin.segment)))
    if origin.relabelled:
        words = [segment.lineage_word(number) for number in range(segment.words)]
        lineage = part_name(patch_id, writer.relabel(segment.filters, words))
    return patched_name(origin.segment.id, kept, lineage)


def encode_manifest(bucket: Bucket, dropped: Iterable[str] = (), dropped_before: Iterable[str] = ()) -> bytes:
    """Return the manifest of a bucket whose segments are all stored.

    Args:
        bucket: The bucket.
        dropped: Stored ids of what the bucket had before its batch and has no longer.
        dropped_before: The same of the batch before.
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
        # Versions without closings must refuse such a state: rows of closed keys are missing from it.
        document |= {"format": FORMAT_WITH_CLOSINGS, "closed": closed}
    # Not ``astuple``: it copies each number of each block by itself, which takes longer than all the rest.
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
        # Versions without groups would lose them.
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
    if bucket.arrived:
        # Versions without exchanges would lose the pairs on their way.
        document |= {"format": FORMAT_WITH_EXCHANGES, "arrived": bucket.arrived}
    if bucket.exchange_files:
        document |= {"format": FORMAT_WITH_EXCHANGES, "exchange": bucket.exchange_files}
    if parked:
        # Versions without parked rows would lose them.
        document |= {"format": FORMAT_WITH_PARKED, "parked": parked}
    sorting = {
        family_id: {side: [s.id for s in rows.segments] for side, rows in joins.sorting.items()}
        for family_id, joins in bucket.families.items()
        if any(rows.segments for rows in joins.sorting.values())
    }
    if sorting:
        # Versions without such rows would lose them.
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
    """Return numbers as text that JSON can hold."""
    return b64encode(zlib.compress(numbers.astype("<i8").tobytes())).decode()


def _unpacked(text: str) -> Int64s:
    return np.frombuffer(zlib.decompress(b64decode(text)), dtype="<i8").astype(np.int64)


def stored_plan_version(manifest: bytes) -> int:
    """Return the plan version in force when a manifest was stored; 0 before the first.

    Raises:
        UnknownStateFormat: The manifest is of another version; so would be the plan beside it.
    """
    version: int = _document(manifest)["plan_version"]
    return version


def dropped_ids(manifest: bytes) -> tuple[str, ...]:
    """Return the stored ids of what the batch that stored a manifest dropped."""
    return tuple(_document(manifest)["dropped"])


def dropped_before_ids(manifest: bytes) -> tuple[str, ...]:
    """Return the stored ids that the batch before it dropped; none where an older version removed them."""
    return tuple(_document(manifest).get("dropped_before", ()))


def exchange_ids(manifest: bytes) -> tuple[str, ...]:
    """Return the stored ids of the pairs that the batch has sent to other buckets."""
    return tuple(_document(manifest).get("exchange", ()))


def segment_ids(manifest: bytes) -> set[str]:
    """Return the stored ids of all values that the segments named by a manifest are made of."""
    document = _document(manifest)
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
    return set(document.get("exchange", ())) | {
        stored for slices in held for ids in slices for segment_id in ids for stored in stored_ids(segment_id)
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
        load: Returns a segment by id; asked once for each, and later for those that are opened.
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
    for stream_id, (scramble, monitored, blocks, passed, newest, factors) in document.get(
        "orders", {}
    ).items():
        bucket.streams[int(stream_id)].order = OrderProgress(
            scramble, monitored, tuple(map(tuple, blocks)), passed, newest, tuple(map(tuple, factors))
        )
    for stream_id, horizon_us in document.get("horizons", {}).items():
        bucket.streams[int(stream_id)].horizon_us = horizon_us
    bucket.arrived = {
        int(stream_id): (reached, newest)
        for stream_id, (reached, newest) in document.get("arrived", {}).items()
    }
    bucket.exchange_files = tuple(document.get("exchange", ()))
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
    segments: dict[str, Segment] = {}

    def segment(segment_id: str) -> Segment:
        if segment_id not in segments:
            segments[segment_id] = load(segment_id)
        return segments[segment_id]

    for family in plan.families:
        if family.id not in compiled:
            compiled[family.id] = bucket.compile(family, plan)
        joins = FamilyJoins.empty(compiled[family.id])
        stored = document["families"][family.id]
        for join_id, chain in joins.chains.items():
            for side in SIDES:
                for state, ids in zip(chain.slices[side], stored[join_id][side], strict=True):
                    state.segments = [segment(segment_id) for segment_id in ids]
            for side, rings in {} if chain.rings is None else chain.rings.items():
                rings.gone = _unpacked(document["rings"][family.id][join_id][side])
        if joins.absence is not None:
            kept = document["absence"][family.id]
            for state, ids in zip(joins.absence.states(), kept, strict=True):
                state.segments = [segment(segment_id) for segment_id in ids]
            # Not counted by the versions that let no row leave early.
            joins.absence.unsearched |= document.get("unsearched", {}).get(family.id, {})
        if joins.ranked is not None:
            (joins.ranked.released_us, *facts), *kept = document["ranked"][family.id]
            for ranking, of_ranking in zip(joins.ranked.rankings.values(), facts, strict=True):
                ranking.before_us, ranking.added = of_ranking
            for holder, ids in zip(joins.ranked.states(), kept, strict=True):
                holder.segments = [segment(segment_id) for segment_id in ids]
        for side, closed in joins.closed.items():
            facts = document.get("closed", {}).get(family.id, {}).get(side)
            if facts is None:
                continue  # stored by a version whose outer, semi and anti joins used no contract
            closed.floor_us, closed.newest_us, closed.unpurged, closed.dead, *last, ids = facts
            # Earlier versions stored fewer facts.
            if last and last[0] is not None:
                closed.last = decode_rows(pa.py_buffer(b64decode(last[0])))
            if len(last) > 1:
                closed.dead_per_slice = list(last[1])
            if len(last) > 2:
                closed.males, closed.killed, *kept = last[2]
                closed.kept = kept[0] if kept else 0
            closed.segments = [segment(segment_id) for segment_id in ids]
        if joins.groups is not None:
            facts, ids = document["groups"][family.id]
            joins.groups.restore(facts)
            joins.groups.segments = [segment(segment_id) for segment_id in ids]
        if joins.waiting is not None:
            joins.waiting.segments = [segment(segment_id) for segment_id in document["waiting"][family.id]]
            joins.waiting.closings = document.get("untold", {}).get(family.id, 0)
        for side, parked in joins.parked.items():
            closed_segments, tail = document["parked"][family.id][side]
            parked.closed = [
                ClosedSegment(name, rows, t_min, t_max, tuple(map(tuple, values)))
                for name, rows, t_min, t_max, values in closed_segments
            ]
            parked.tail.segments = [segment(segment_id) for segment_id in tail]
            parked.load = load
        for side, ids in document.get("sorting", {}).get(family.id, {}).items():
            joins.sorting[side].segments = [segment(segment_id) for segment_id in ids]
        bucket.families[family.id] = joins
    return bucket


def _document(manifest: bytes) -> dict[str, Any]:
    # JSON as encode_manifest wrote it; what is in it depends on the format, which is checked first.
    document: dict[str, Any] = json.loads(manifest)
    known = range(FORMAT, FORMAT_WITH_SORTING + 1)
    # The first version with groups kept their finished keys beside them.
    if document["format"] not in known or any(len(kept) != 2 for kept in document.get("groups", {}).values()):
        raise UnknownStateFormat(
            f"the stored state has format {document['format']}, "
            f"this version reads {FORMAT} to {FORMAT_WITH_SORTING}",
            hint="Go on with the version of Sluice that wrote it, or start again from a fresh checkpoint.",
        )
    return document


def encode_plan(plan: Plan) -> bytes:
    """Return the stored form of a plan."""
    return encode(plan)


def decode_plan(data: bytes) -> Plan:
    """Read the stored form of a plan."""
    return decode(Plan, data)
