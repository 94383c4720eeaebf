"""What must be true of a bucket and its stored form, whatever happened before."""

from __future__ import annotations

from collections.abc import Mapping

from operators.bucket.bucket import Bucket
from operators.bucket.counters import slice_table


def check_reloaded(bucket: Bucket, loaded: Bucket, values: Mapping[str, bytes]) -> None:
    """Check that a bucket made of stored bytes holds what the one in memory holds, and counts all bytes.

    Args:
        bucket: It has just been stored.
        loaded: Made of the stored bytes alone.
        values: The stored values of its segments.
    """
    for family_id, joins in bucket.families.items():
        for side, parked in joins.parked.items():
            assert parked.closed == loaded.families[family_id].parked[side].closed
            assert not parked.segments, "a stored segment is not closed"
        one, other = (list(joins.stored()), list(loaded.families[family_id].stored()))
        assert [s.id for s in one] == [s.id for s in other]
        for mine, its in zip(one, other, strict=True):
            assert mine.encode() == its.encode(), f"{mine.id} is something else on reading"
            assert (mine.values, mine.stored_bytes) == (its.values, its.stored_bytes)
            assert (mine.t_min, mine.t_max) == (its.t_min, its.t_max)
            assert (mine.epoch_min, mine.epoch_max) == (its.epoch_min, its.epoch_max)
            assert all(len(values[stored]) == length for stored, length in mine.values)
    counters = list(slice_table(bucket.families, bucket.clocks).counters())
    # Each slice rounds its share; other state rests in no slice.
    slices = {id(state) for joins in bucket.families.values() for _, _, _, state in joins.slices()}
    apart = {
        stored: length
        for joins in bucket.families.values()
        for state in joins.states()
        if id(state) not in slices
        for segment in state.segments
        for stored, length in segment.values
    }
    apart |= {
        stored: length
        for joins in bucket.families.values()
        for parked in joins.parked.values()
        for segment in parked.closed
        for stored, length in segment.values
    }
    # A stored value may have rows in slices and elsewhere: slices count all of it.
    for joins in bucket.families.values():
        for segment in joins.segments():
            for stored, _ in segment.values:
                apart.pop(stored, None)
    assert abs(sum(c.bytes for c in counters) + sum(apart.values()) - sum(map(len, values.values()))) <= len(
        counters
    )
