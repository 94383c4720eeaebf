from __future__ import annotations

from operators.cache.segment_cache import SegmentCache
from operators.segments.segment import Segment
from tests.operators.segment_builders import a_segment

DATA = a_segment([(1, 10), (2, 20)]).encode()
SIZE = len(DATA)


class Store:
    """Counts how often a segment is read."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self, _: str) -> bytes:
        self.reads += 1
        return DATA


def test_a_segment_is_read_once_while_it_is_cached() -> None:
    store, cache = Store(), SegmentCache(10 * SIZE)
    first = cache.get("x", store.read)
    assert cache.get("x", store.read) is first
    assert store.reads == 1
    assert (first.segment.id, len(first.segment)) == ("x", 2)


def test_the_least_recently_used_segment_leaves_first() -> None:
    store, cache = Store(), SegmentCache(2 * SIZE)
    for segment_id in ("x", "y", "x", "z"):
        cache.get(segment_id, store.read)
    assert store.reads == 3
    cache.get("x", store.read)
    assert store.reads == 3
    cache.get("y", store.read)
    assert store.reads == 4


def test_one_segment_larger_than_the_cache_is_kept() -> None:
    store, cache = Store(), SegmentCache(1)
    cache.get("x", store.read)
    cache.get("x", store.read)
    assert store.reads == 1


def test_a_segment_put_again_counts_once() -> None:
    """A replayed batch writes the same ids; the others must not be pushed out by its bytes."""
    store, cache = Store(), SegmentCache(2 * SIZE)
    cache.get("x", store.read)
    for _ in range(5):
        cache.put(Segment.decode(DATA, "y"))
    cache.get("x", store.read)
    assert store.reads == 1


def test_what_a_bucket_dropped_is_read_again_if_asked_for() -> None:
    store, cache = Store(), SegmentCache(10 * SIZE)
    cache.get("c.0.1.0", store.read)
    view = cache.get("c.0.1.0@0:15", store.read)
    assert store.reads == 1
    for _ in range(2):
        cache.retain("c.0.", (), ())
    assert cache.get("c.0.1.0@0:15", store.read) is not view
    assert store.reads == 2


def test_a_bucket_forgets_only_what_it_dropped_itself() -> None:
    store, cache = Store(), SegmentCache(10 * SIZE)
    names = ("c.0.1.0", "c.0.2.0@0:15", "c.0.3.0", "c.1.1.0", "c.10.1.0")
    for name in names:
        cache.get(name, store.read)
    cache.retain("c.0.", {"c.0.2.0@0:15", "c.0.9.0"}, ())
    before = store.reads
    for name in names:
        cache.get(name, store.read)
    assert store.reads - before == 2
