from __future__ import annotations

from pathlib import Path

from operators.segment import Segment
from operators.segment_cache import SegmentCache
from tests.operators.segments import a_segment

DATA = a_segment([(1, 10), (2, 20)]).encode()
SIZE = len(DATA)


class Store:
    """Counts how often a segment is read from the state store."""

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


def test_another_worker_maps_the_published_file(tmp_path: Path) -> None:
    store = Store()
    SegmentCache(SIZE, tmp_path).publish("x", DATA)
    found = SegmentCache(SIZE, tmp_path).get("x", store.read)
    assert store.reads == 0
    assert found.segment.key.tolist() == [1, 2]


def test_a_broken_or_missing_file_falls_back_to_the_state_store(tmp_path: Path) -> None:
    store = Store()
    (tmp_path / "cut").write_bytes(DATA[: SIZE // 2])
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "other").write_bytes(b"not a segment")
    cache = SegmentCache(10 * SIZE, tmp_path)
    for reads, segment_id in enumerate(("cut", "empty", "other", "missing"), 1):
        assert len(cache.get(segment_id, store.read).segment) == 2
        assert store.reads == reads


def test_a_dropped_segment_is_gone_everywhere(tmp_path: Path) -> None:
    store, cache = Store(), SegmentCache(10 * SIZE, tmp_path)
    cache.publish("c.0.1.0", DATA)
    cache.get("c.0.1.0", store.read)
    view = cache.get("c.0.1.0@0:15", store.read)
    for _ in range(2):
        cache.retain("c.0.", ())
        cache.unpublish("c.0.1.0")
    assert list(tmp_path.iterdir()) == []
    assert cache.get("c.0.1.0@0:15", store.read) is not view
    assert store.reads == 1


def test_a_bucket_forgets_only_what_it_dropped_itself() -> None:
    store, cache = Store(), SegmentCache(10 * SIZE)
    names = ("c.0.1.0", "c.0.2.0@0:15", "c.0.3.0", "c.1.1.0", "c.10.1.0")
    for name in names:
        cache.get(name, store.read)
    cache.retain("c.0.", {"c.0.2.0@0:15", "c.0.9.0"})
    before = store.reads
    for name in names:
        cache.get(name, store.read)
    assert store.reads - before == 2


def test_a_vanished_directory_costs_only_speed(tmp_path: Path) -> None:
    cache = SegmentCache(SIZE, tmp_path / "gone")
    cache.publish("x", DATA)
    assert len(cache.get("x", Store().read).segment) == 2
