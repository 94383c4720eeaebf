"""Rehash of the rows of all buckets into a different number of buckets.

    2 buckets    | 0: keys 3 8 | 1: keys 1 5 |
    3 buckets    | 0: keys 8 | 1: keys 3 5 | 2: keys 1 |

Buckets differ only in their rows: plan, watermarks and held terms are the same in all of them. A row stays in
its join and slice. Only stored rows (females) are rehashed. Each row of a heavy key goes to one of the key's
new fragments. It can be any of them, because probing rows (males) of later batches are sent to all fragments.

If the next step has the same key, pairs (side a) stay in the bucket that made them, so rows of side b are
stored in every fragment of their key. Rows whose match is checked (outer, semi and anti joins) are stored in
one bucket, and rows of the other side in every fragment. A row that was stored in every old fragment of its
key is stored once in every new fragment. A pair, or a row whose match is checked, goes to one new fragment.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from catalog.errors import InvariantBroken
from catalog.steps import copied_side
from operators.bucket.bucket import Bucket, StreamState
from operators.closings.closing_rows import ends
from operators.join.compiled_family import CompiledFamily
from operators.join.family_joins import FamilyJoins
from operators.kernels.keys import Bools
from operators.ranks.ranked_rows import RankedRows
from operators.segments.encoding.row_codec import KEY
from operators.segments.layout import SIDES
from operators.segments.segment import Segment
from operators.slices.sliced_join import SliceState, compact
from operators.waiting.waiting_rows import WaitingRows

#: Family, join, side and number of a slice.
SlicePlace = tuple[str, str, str, int]


def rehashed(old: Iterable[Bucket], number: int, buckets: int) -> Bucket:
    """Return one of the new buckets, whose segments are not stored yet.

    Args:
        old: All old buckets after the same batch; each is read once, so only one must be in memory.
        number: Number of the new bucket.
        buckets: Number of all new buckets.

    Raises:
        InvariantBroken: There is no old bucket, or the old buckets differ in more than their rows.
    """
    new: Bucket | None = None
    for bucket in old:
        if new is None:
            new = _without_rows(bucket)
        elif _alike(new) != _alike(bucket):
            raise InvariantBroken("the old buckets differ in plan, streams or next batch")
        for family_id, joins in bucket.families.items():
            _take(joins, new.families[family_id], number, buckets)
    if new is None:
        raise InvariantBroken("there is no old bucket whose rows can be hashed again")
    for joins in new.families.values():
        copied = copied_side(joins.family.plan)
        if copied is not None:
            for chain in joins.chains.values():
                _keep_one_copy(chain.slices[copied])
        if joins.ranked is not None and joins.family.plan.replication.replicates:
            for side in SIDES if copied is None else (copied,):
                _keep_one_copy([joins.ranked.waiting[side]])
        for waiting in joins.sorting.values():
            _keep_one_copy([waiting])
        for closed in joins.closed.values():
            closed.rehash(closed.segments)
        for chain in joins.chains.values():
            for side, slices in chain.slices.items():
                for state in slices:
                    compact(state, chain.join.slacks[side], joins.family.lineages[side].live)
    return new


def rows_by_slice(buckets: Iterable[Bucket]) -> Counter[SlicePlace]:
    """Count the rows of buckets by slice; count copies of a row once, in the first slice."""
    rows: Counter[SlicePlace] = Counter()
    copies: dict[SlicePlace, set[int]] = defaultdict(set)
    for bucket in buckets:
        for family_id, joins in bucket.families.items():
            copied = copied_side(joins.family.plan)
            for join_id, side, index, state in joins.slices():
                if side == copied:
                    for segment in state.segments:
                        copies[family_id, join_id, side, 0].update(segment.pos.tolist())
                else:
                    rows[family_id, join_id, side, index] += state.rows
    rows.update({place: len(positions) for place, positions in copies.items()})
    return rows


def _here(family: CompiledFamily, side: str, segment: Segment, number: int, buckets: int) -> Bools:
    """Return which rows of an old bucket are stored in a new bucket, bool[n]."""
    if side == copied_side(family.plan):
        return family.fragments.comes_to(segment.key, number, buckets)
    here: Bools = family.fragments.rest(segment.key, segment.pos, buckets) == number
    return here


def _keep_one_copy(slices: Sequence[SliceState | WaitingRows]) -> None:
    """Keep one copy of each row that several old buckets stored, in the first slice that has it."""
    seen = np.zeros(0, dtype=np.int64)
    for state in slices:
        kept = []
        for segment in state.segments:
            own = segment.filter(~np.isin(segment.pos, seen))
            seen = np.concatenate([seen, own.pos])
            if len(own):
                kept.append(own)
        state.segments = kept


def _take_ranked(family: CompiledFamily, old: RankedRows, new: RankedRows, number: int, buckets: int) -> None:
    """Move rows that wait for ranks, and the ranks, from an old bucket to a family of a new bucket."""
    new.released_us = old.released_us
    for side, ranking in old.rankings.items():
        target = new.rankings[side]
        target.before_us, target.added = ranking.before_us, max(ranking.added, target.added)
        rows = ranking.whole()
        if rows is None:
            continue
        if ranking.by_key:
            key = rows.column(KEY).to_numpy()
            comes_here = family.fragments.comes_to(key, number, buckets)
            if copied_side(family.plan) is not None and (known := target.whole()) is not None:
                comes_here &= ~np.isin(key, known.column(KEY).to_numpy())
            target.take_over(rows.filter(pa.array(comes_here)))
        elif not target.segments:
            target.take_over(rows)  # all buckets have the same ranks
    for side, waiting in old.waiting.items():
        for segment in waiting.segments:
            if copied_side(family.plan) is None:
                # A row waits in all buckets of its key. Only after it has been joined is it stored in one of
                # them.
                here = family.fragments.comes_to(segment.key, number, buckets)
            else:
                here = _here(family, side, segment, number, buckets)
            own = segment.take(np.flatnonzero(here))
            if len(own):
                new.waiting[side].segments.append(own)


def _without_rows(bucket: Bucket) -> Bucket:
    return Bucket(
        plan=bucket.plan,
        streams={
            stream_id: StreamState(stream.watermark, order=stream.order, horizon_us=stream.horizon_us)
            for stream_id, stream in bucket.streams.items()
        },
        families={family_id: FamilyJoins.empty(joins.family) for family_id, joins in bucket.families.items()},
        terms=bucket.terms,
        next_batch=bucket.next_batch,
        slack_us=bucket.slack_us,
        arrived=bucket.arrived,
    )


def _alike(bucket: Bucket) -> object:
    version = bucket.plan.version if bucket.plan is not None else 0
    streams = {i: (s.watermark, s.order, s.horizon_us) for i, s in bucket.streams.items()}
    return version, bucket.next_batch, streams, bucket.terms, bucket.arrived


def _take(old: FamilyJoins, new: FamilyJoins, number: int, buckets: int) -> None:
    """Give a family of a new bucket its rows from an old bucket."""
    everywhere = copied_side(old.family.plan)

    def resting(side: str, segment: Segment) -> Segment:
        return segment.take(np.flatnonzero(_here(old.family, side, segment, number, buckets)))

    # A segment that several joins share is filtered once, so that the joins still share it.
    taken: dict[int, Segment] = {}
    for (_, side, _, state), (_, _, _, target) in zip(old.slices(), new.slices(), strict=True):
        for segment in state.segments:
            if id(segment) not in taken:
                taken[id(segment)] = resting(side, segment)
            if len(taken[id(segment)]):
                target.segments.append(taken[id(segment)])
    for side, parked in old.parked.items():
        waiting = [rows for rows in (resting(side, segment) for segment in parked.opened()) if len(rows)]
        if side != everywhere:
            new.parked[side].tail.segments += waiting
            continue
        # All old buckets had these rows, but one may have opened segments that are closed in another. So all
        # rows are put into the slices, where duplicates are removed (``_keep_one_copy``).
        for chain in new.chains.values():
            admitted = (chain.admitted(side, rows) for rows in waiting)
            chain.slices[side][0].segments += [rows for rows in admitted if rows is not None]
    for side, sorting in old.sorting.items():
        # A row waits in all buckets of its key. Only after it has been joined is it stored in one of them.
        coming = (
            segment.take(np.flatnonzero(old.family.fragments.comes_to(segment.key, number, buckets)))
            for segment in sorting.segments
        )
        new.sorting[side].segments += [rows for rows in coming if len(rows)]
    for side, closed in old.closed.items():
        # All buckets of a key have the same closings of the key. Duplicates are merged once the closings of
        # all old buckets are here (``ClosedKeys.rehash``).
        target_keys = new.closed[side]
        target_keys.last = closed.last
        target_keys.floor_us, target_keys.newest_us = closed.floor_us, closed.newest_us
        target_keys.unpurged = max(closed.unpurged, target_keys.unpurged)
        target_keys.males = max(closed.males, target_keys.males)
        target_keys.killed, target_keys.kept = closed.killed, closed.kept
        for segment in closed.segments:
            comes_here = old.family.fragments.comes_to(segment.key, number, buckets)
            comes_here |= ends(segment.rows) != segment.key
            target_keys.segments.append(segment.filter(comes_here))
    if old.ranked is not None and new.ranked is not None:
        _take_ranked(old.family, old.ranked, new.ranked, number, buckets)
    if old.groups is not None and new.groups is not None:
        new.groups.take_rows(old.groups, number, buckets)
    if old.waiting is not None and new.waiting is not None:
        new.waiting.take_rows(old.waiting, number, buckets)
    if old.absence is None or new.absence is None:
        return
    for side in SIDES:
        # A mark has the position of a row but not its key, so all marks are copied to every bucket. Marks of
        # rows that are in other buckets have no effect until they expire.
        for segment in old.absence.marks[side].segments:
            new.absence.marks[side].segments.append(segment.take(np.arange(len(segment))))
        for segment in old.absence.keyless[side].segments:
            own = segment.take(np.flatnonzero(segment.pos % buckets == number))
            if len(own):
                new.absence.keyless[side].segments.append(own)
