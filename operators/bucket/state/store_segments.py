"""Values that a bucket stores, their ids and their bytes: each value is written once under its id.

The values (``segments.files``) are: the plan in force as JSON; segments (``segments.segment``);
patches (``encoding.patch``) for the views (``encoding.view_names``) that slices may hold; and key filters of
large segments (``operators.lazy``). A segment with a key filter is also summarized in the manifest.

A migration moves rows to other joins, or adds bits to their lineage. Most of these rows are stored already,
and writing them again would take longer than the whole batch does without it. So their segments become views,
and one patch for the whole bucket stores the selections and lineages of the views. In all other batches, a
bucket writes every segment that it makes. If a segment is filtered while it moves to the next slice, the
filtered segment is stored, and the value of the unfiltered segment is dropped.

An id contains the checkpoint's id, so that a value cached for one checkpoint is never used for another. It
also contains the batch number, so that a replayed batch writes the same ids again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from operators.bucket.bucket import Bucket
from operators.join.family_joins import FamilyJoins, Holder
from operators.lazy.lazy_segment import with_filter
from operators.segments.encoding.patch import PatchWriter
from operators.segments.encoding.view_names import KEPT, part_name, patched_name, steps, stored_id
from operators.segments.segment import ArrivedFile, Origin, Segment

#: Maximum number of steps of a view (``encoding.view_names``). If one more step would be needed, the rows are
#: written again instead, so that names stay short and views open quickly.
MOST_STEPS = 4
#: Maximum number of stored rows per row that is still needed. Above this, the needed rows are written again.
MOST_ROWS_PER_NEEDED = 2


@dataclass(frozen=True, slots=True)
class SegmentIds:
    """Ids of the values that a bucket writes in a batch; iteration yields the ids of segments and patches."""

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
        """Stored id of the pairs that the bucket sends to other buckets in the batch."""
        return f"{self.prefix}{self.batch}.exchange"

    @property
    def begin(self) -> str:
        """Stored id of the first manifest of a bucket in a moved checkpoint."""
        return f"{self.prefix}begin"


#: Place of a segment: its joins, its holder (slice, closed keys or groups), and its index in the holder.
Place = tuple[FamilyJoins, Holder, int]


def store_segments(
    bucket: Bucket, ids: SegmentIds, put: Callable[[str, bytes | ArrivedFile, Segment | None], None]
) -> set[str]:
    """Assign ids to the segments of a bucket that are not stored yet, and write them.

    Args:
        bucket: The bucket; the segments of its joins are replaced by their stored form.
        ids: Ids to assign, in a fixed order of families, joins, sides and slices.
        put: Stores a new value. Arguments: the value's id, its bytes or the file that contains them, and its
            segment (None for patches and key filters, which have no segment).

    Returns:
        Stored ids of all values that the bucket's segments now use.
    """
    names = iter(ids)
    known: dict[str, Segment] = {}
    worth_viewing = _worth_viewing(bucket) if bucket.plan_changed else frozenset()
    held: set[str] = set()
    views: dict[int, tuple[Segment, Origin, list[Place]]] = {}
    # Written segments by name, or by ``id()`` if they had no name. Each original segment is kept alive here,
    # so that no other segment gets the same ``id()``.
    written: dict[str | int, tuple[Segment, Segment]] = {}
    for place in _places(bucket):
        joins, state, index = place
        segment = state.segments[index]
        origin = segment.origin
        if origin is not None and _viewable(segment, origin, worth_viewing):
            # Joins whose queries need the same rows of a segment share one view.
            views.setdefault(id(segment), (segment, origin, []))[2].append(place)
            continue
        if not segment.id or (bucket.plan_changed and _left_over(segment, worth_viewing)):
            # Joins that share a segment after a migration continue to share it. Each join stores its own copy
            # of new rows, as the cost models assume (``planner.costs``).
            which = segment.id or id(segment)
            if which not in written or (not segment.id and origin is None):
                data = segment.arrived or segment.encode()
                size = data.bytes if isinstance(data, ArrivedFile) else len(data)
                written[which] = segment, segment.stored_as(next(names), size)
                put(written[which][1].id, data, written[which][1])
            segment = written[which][1]
            joins.replace(state, index, segment)
        elif known.setdefault(segment.id, segment) is not segment:
            # Several joins have cut the same rows out of a segment. A loaded bucket shares these segments,
            # and a replay must have the same state, so they are shared here, too.
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
    held |= _store_filters(bucket, put)
    for parked in (parked for joins in bucket.families.values() for parked in joins.parked.values()):
        parked.close()
        held.update(stored for segment in parked.closed for stored, _ in segment.values)
    return held


def _store_filters(bucket: Bucket, put: Callable[[str, bytes, Segment | None], None]) -> set[str]:
    """Store the key filters of large segments in long windows; return the ids of all key filters."""
    slices = [state for joins in bucket.families.values() for state in joins.lazy_slices()]
    lazy = {segment.id for state in slices for segment in state.segments}
    found: dict[str, Segment] = {}
    for joins, state, index in _places(bucket) if lazy else ():
        segment = state.segments[index]
        if segment.id not in lazy:
            continue
        # Several joins may share the segment, but its filter is stored only once.
        if segment.id not in found:
            found[segment.id] = with_filter(segment, put)
        if found[segment.id] is not segment:
            joins.replace(state, index, found[segment.id])
    return {segment.bloom[0] for segment in found.values() if segment.bloom is not None}


def _places(bucket: Bucket) -> Iterator[Place]:
    for family_id in sorted(bucket.families):
        joins = bucket.families[family_id]
        for state in joins.states():
            for index in range(len(state.segments)):
                yield joins, state, index


def _worth_viewing(bucket: Bucket) -> frozenset[str]:
    """Return the ids of stored segments of which enough rows are still needed to justify views of them."""
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
    """Return whether to store a segment as a view of the stored segment from which it was made."""
    name = origin.segment.id
    if stored_id(name) not in worth_viewing or len(steps(name)) >= MOST_STEPS:
        return False
    return bool(segment.filters) or not origin.relabelled


def _left_over(segment: Segment, worth_viewing: frozenset[str]) -> bool:
    """Return whether a view's stored segment has too many rows that no remaining query needs."""
    return KEPT in segment.id and stored_id(segment.id) not in worth_viewing


def _view_name(segment: Segment, origin: Origin, patch_id: str, writer: PatchWriter) -> str:
    """Name a segment as a view of its origin; add its selection and lineage to a patch."""
    kept = lineage = None
    if origin.index is not None:
        kept = part_name(patch_id, writer.keep(origin.index, len(origin.segment)))
    if origin.relabelled:
        words = [segment.lineage_word(number) for number in range(segment.words)]
        lineage = part_name(patch_id, writer.relabel(segment.filters, words))
    return patched_name(origin.segment.id, kept, lineage)
