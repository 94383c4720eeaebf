"""Decoded segments of a worker process: the only module-level state of the operators.

A worker keeps decoded segments in memory, up to a limit in bytes, because a bucket needs most of its segments
again in the next batch. If the bucket then runs on another worker, this worker must decode the segments
again. A cached segment never becomes outdated: the bytes under a segment id never change, and ids of
different checkpoints are different.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pyarrow as pa

from operators.cache.views import opened
from operators.kernels.keys import Words
from operators.lazy.lazy_segment import read_bloom
from operators.lineage.lineage import RowClasses
from operators.segments.encoding.patch import Patch
from operators.segments.encoding.row_codec import narrow_rows
from operators.segments.segment import Segment


@dataclass(slots=True, eq=False)
class CachedSegment:
    """A decoded segment and the classes of its rows under one plan version."""

    segment: Segment
    version: int = -1
    classes: RowClasses | None = None


@dataclass(slots=True, eq=False)
class SegmentCache:
    """Cache that drops the least recently used segments when it exceeds a number of bytes.

    Attributes:
        limit_bytes: Maximum number of bytes of the segments that are kept.
    """

    limit_bytes: int
    _entries: OrderedDict[str, CachedSegment] = field(default_factory=OrderedDict)
    _bytes: int = 0
    # Stored segments that views of this batch are made from. Many views are made from a few stored segments.
    _whole: dict[str, Segment] = field(default_factory=dict)
    _patches: dict[str, Patch] = field(default_factory=dict)
    # Memory-mapped files of lazy segments, which do not count as memory of the process.
    _stored: dict[str, pa.RecordBatch] = field(default_factory=dict)
    _blooms: dict[str, Words] = field(default_factory=dict)

    def get(self, segment_id: str, read: Callable[[str], bytes | pa.Buffer]) -> CachedSegment:
        """Return a segment from memory, or read and decode it.

        Args:
            segment_id: Id of the segment.
            read: Returns the bytes stored under an id.
        """
        entry = self._entries.get(segment_id)
        if entry is not None:
            self._entries.move_to_end(segment_id)
            return entry

        def whole(name: str) -> Segment:
            cached = self._entries.get(name)
            if cached is not None:
                return cached.segment
            if name not in self._whole:
                self._whole[name] = Segment.decode(read(name), name)
            return self._whole[name]

        def patch(name: str) -> Patch:
            if name not in self._patches:
                self._patches[name] = Patch.decode(read(name), name)
            return self._patches[name]

        segment = opened(segment_id, whole, patch)
        # The segment gets an entry of its own now, so it need not be kept for views, too.
        self._whole.pop(segment_id, None)
        return self.put(segment)

    def stored(self, stored_id: str, read: Callable[[str], pa.Buffer]) -> pa.RecordBatch:
        """Return the rows of a stored segment in their stored form."""
        if stored_id not in self._stored:
            self._stored[stored_id] = narrow_rows(read(stored_id))
        return self._stored[stored_id]

    def bloom(self, stored_id: str, read: Callable[[str], pa.Buffer]) -> Words:
        """Return a stored Bloom filter of keys."""
        if stored_id not in self._blooms:
            self._blooms[stored_id] = read_bloom(read(stored_id))
        return self._blooms[stored_id]

    def keep(self, segment: Segment) -> CachedSegment:
        """Return the cache entry of a segment object; add the segment if it has no entry."""
        entry = self._entries.get(segment.id)
        return self.put(segment) if entry is None else entry

    def put(self, segment: Segment) -> CachedSegment:
        """Keep a stored segment in memory and return its entry."""
        # A replayed batch writes the same ids as its first run, so an entry may exist already.
        replaced = self._entries.pop(segment.id, None)
        if replaced is not None:
            self._bytes -= replaced.segment.stored_bytes
        entry = CachedSegment(segment)
        self._entries[segment.id] = entry
        self._bytes += segment.stored_bytes
        while self._bytes > self.limit_bytes and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.segment.stored_bytes
        return entry

    def retain(self, prefix: str, held: Collection[str], stored: Collection[str]) -> None:
        """Forget the segments that a bucket no longer holds.

        The bucket may have dropped some of them in batches that ran on other workers.

        Args:
            prefix: Beginning of the ids of all segments of the bucket.
            held: Names of the segments in its slices.
            stored: Ids of all stored values that the segments in its slices use.
        """
        self._whole.clear()
        self._patches.clear()
        for mapped in (self._stored, self._blooms):
            for name in [n for n in mapped if n.startswith(prefix) and n not in stored]:
                del mapped[name]
        for name in [n for n in self._entries if n.startswith(prefix)]:
            if name not in held:
                self._bytes -= self._entries.pop(name).segment.stored_bytes
