"""A bucket loaded from its manifest and its stored segments."""

from __future__ import annotations

import zlib
from base64 import b64decode
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from catalog.values.plan import Plan
from operators.bucket.bucket import Bucket, StreamState
from operators.bucket.state.manifest import manifest_document
from operators.bucket.watermark import Watermark
from operators.join.compiled_family import CompiledFamily
from operators.join.family_joins import FamilyJoins
from operators.kernels.keys import Int64s
from operators.lazy.lazy_segment import LazySegment, SegmentReader, decode_facts
from operators.lineage.entitlement import Term
from operators.orders.order_progress import OrderProgress
from operators.parking.parked_rows import ClosedSegment
from operators.segments.encoding.row_codec import decode_rows
from operators.segments.layout import SIDES
from operators.segments.segment import Segment


def load_bucket(
    manifest: bytes | None,
    plan: Plan | None,
    load: Callable[[str], Segment],
    compiled: dict[str, CompiledFamily],
    reader: SegmentReader | None = None,
) -> Bucket:
    """Rebuild a bucket from its stored form.

    Args:
        manifest: Result of ``encode_manifest``, or None for a new bucket.
        plan: Plan in force when the bucket was stored, or None before the first plan.
        load: Returns a segment by id. It is called once for each segment; for a parked segment, it is called
            only when the segment is opened.
        compiled: Compiled families of this plan by id. Families that are missing are compiled and added.
        reader: Reads the rows of lazy segments when they are needed. None: all segments are loaded now.

    Raises:
        UnknownStateFormat: This version does not read the format of the manifest.
    """
    bucket = Bucket()
    if manifest is None:
        return bucket
    document = manifest_document(manifest)
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
    if reader is not None and "lazy" in document:
        segments |= {
            name: LazySegment(name, facts, reader) for name, facts in decode_facts(document["lazy"]).items()
        }

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
            # Versions of Sluice that evicted no rows early did not store this count.
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
                continue  # stored by a version of Sluice whose outer, semi and anti joins ignored contracts
            closed.floor_us, closed.newest_us, closed.unpurged, closed.dead, *last, ids = facts
            # Earlier versions of Sluice stored fewer of these values.
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


def _unpacked(text: str) -> Int64s:
    return np.frombuffer(zlib.decompress(b64decode(text)), dtype="<i8").astype(np.int64)
