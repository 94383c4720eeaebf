"""Decoded segments of a worker process: the one module-level state of the operators.

Which worker serves a bucket changes from batch to batch, and a state read costs about 12 ms per megabyte. So
a worker keeps what it decoded, bounded in bytes, and writes every new segment to a file of the node besides,
from which the next worker maps it without a copy. Both are caches: the state store is the truth, a segment's
bytes never change under its id, and ids of another checkpoint never match.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from operators.lineage import RowClasses
from operators.segment import CorruptSegment, Segment, stored_id


@dataclass(slots=True, eq=False)
class CachedSegment:
    """A decoded segment and what one plan version made of its rows."""

    segment: Segment
    version: int = -1
    classes: RowClasses | None = None


@dataclass(slots=True, eq=False)
class SegmentCache:
    """Least recently used segments, up to a number of bytes.

    Attributes:
        limit_bytes: Bytes of decoded segments kept in this process.
        directory: Directory of the node's segment files; None keeps none.
    """

    limit_bytes: int
    directory: Path | None = None
    _entries: OrderedDict[str, CachedSegment] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def get(self, segment_id: str, read: Callable[[], bytes]) -> CachedSegment:
        """Return a segment: from memory, from the node's file, or from the state store.

        Args:
            segment_id: Its id.
            read: Reads the bytes under its stored id.
        """
        entry = self._entries.get(segment_id)
        if entry is not None:
            self._entries.move_to_end(segment_id)
            return entry
        segment = self._mapped(segment_id)
        if segment is None:
            segment = Segment.decode(read(), segment_id)
        return self.put(segment)

    def keep(self, segment: Segment) -> CachedSegment:
        """Return the entry of a segment that its holder has at hand."""
        entry = self._entries.get(segment.id)
        return self.put(segment) if entry is None else entry

    def put(self, segment: Segment) -> CachedSegment:
        """Keep a stored segment in memory and return its entry."""
        # A replayed batch writes the ids of its first run again.
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

    def publish(self, segment_id: str, data: bytes) -> None:
        """Write a segment's bytes to the node's file, whole or not at all."""
        if self.directory is None:
            return
        partial = self.directory / f".{segment_id}.{os.getpid()}"
        # A full or vanished scratch directory costs speed, not correctness: the state store has the bytes.
        with contextlib.suppress(OSError):
            partial.write_bytes(data)
            partial.replace(self.directory / segment_id)

    def retain(self, prefix: str, held: Collection[str]) -> None:
        """Forget what a bucket does not hold any more, also what it dropped in batches of other workers.

        Args:
            prefix: Beginning of the ids of all segments of the bucket.
            held: Stored ids of those that it holds.
        """
        for name in [n for n in self._entries if n.startswith(prefix) and stored_id(n) not in held]:
            self._bytes -= self._entries.pop(name).segment.stored_bytes

    def unpublish(self, segment_id: str) -> None:
        """Remove the node's file of a stored segment that no slice holds any more."""
        if self.directory is not None:
            with contextlib.suppress(OSError):
                (self.directory / segment_id).unlink()

    def _mapped(self, segment_id: str) -> Segment | None:
        if self.directory is None:
            return None
        try:
            with pa.memory_map(str(self.directory / stored_id(segment_id))) as file:
                return Segment.decode(file.read_buffer(), segment_id)
        except (FileNotFoundError, pa.ArrowInvalid, CorruptSegment):
            return None
