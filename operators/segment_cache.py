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
from typing import TypeVar

import pyarrow as pa

from operators.lineage import RowClasses
from operators.patch import Patch
from operators.segment import CorruptSegment, Segment
from operators.views import opened

Value = TypeVar("Value", Segment, Patch)


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
    # What views of this batch were made of: many are of the same few values.
    _whole: dict[str, Segment] = field(default_factory=dict)
    _patches: dict[str, Patch] = field(default_factory=dict)

    def get(self, segment_id: str, read: Callable[[str], bytes]) -> CachedSegment:
        """Return a segment: from memory, from the node's files, or from the state store.

        Args:
            segment_id: Its id.
            read: Reads the bytes under a stored id.
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
                self._whole[name] = self._read(name, read, Segment.decode)
            return self._whole[name]

        def patch(name: str) -> Patch:
            if name not in self._patches:
                self._patches[name] = self._read(name, read, Patch.decode)
            return self._patches[name]

        segment = opened(segment_id, whole, patch)
        # What has an entry need not be kept twice.
        self._whole.pop(segment_id, None)
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
        """Write the bytes of a stored value to the node's file, whole or not at all."""
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
            held: Names of the segments in its slices.
        """
        self._whole.clear()
        self._patches.clear()
        for name in [n for n in self._entries if n.startswith(prefix)]:
            if name not in held:
                self._bytes -= self._entries.pop(name).segment.stored_bytes

    def unpublish(self, segment_id: str) -> None:
        """Remove the node's file of a stored value that no slice needs any more."""
        if self.directory is not None:
            with contextlib.suppress(OSError):
                (self.directory / segment_id).unlink()

    def _read(
        self, name: str, read: Callable[[str], bytes], decode: Callable[[bytes | pa.Buffer, str], Value]
    ) -> Value:
        """Return a stored value, mapped from the node's file if it is there and whole."""
        if self.directory is not None:
            # Whatever is wrong with the file, the state store has the bytes.
            with (
                contextlib.suppress(FileNotFoundError, pa.ArrowInvalid, CorruptSegment),
                pa.memory_map(str(self.directory / name)) as file,
            ):
                return decode(file.read_buffer(), name)
        return decode(read(name), name)
