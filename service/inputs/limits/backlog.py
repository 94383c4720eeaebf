"""The backlog of an event log: posted events that no committed batch has read.

    stream 7   read x x x x | [3 rows, 900 bytes] [1, 620] [6, 1100] | head
                        position          backlog: 10 rows, 2620 bytes

A process scans the log once per stream, at the first request. Later it scans only the events that the
position or the head has passed since. Other processes append and drop events, too. If the known range begins
before the oldest remaining event, the log is scanned again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Backlog:
    """Posted events of a stream that no committed batch has read.

    Attributes:
        rows: Number of events.
        bytes: Size of the events in the event log.
    """

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Known:
    """Events between two offsets, and their size."""

    position: int
    head: int
    bytes: int


@dataclass(slots=True)
class RunningBacklogs:
    """Backlogs of all streams of one event log. The caller must hold the lock of the event log.

    Attributes:
        begin: Looks up the offset of a stream's oldest remaining event, or None if it has no event.
        size: Looks up the bytes of a stream's requests that begin between two offsets.
    """

    begin: Callable[[int], int | None]
    size: Callable[[int, int, int], int]
    _known: dict[int, _Known] = field(default_factory=dict, init=False)

    def at(self, stream_id: int, position: int, head: int) -> Backlog:
        """Return the backlog after a position, or after the position of an earlier call if that is later."""
        before = self._known.get(stream_id)
        if before is None or self._begin(stream_id, head) > before.position:
            size = self._bytes(stream_id, position, head)
        else:
            position = max(position, before.position)
            size = before.bytes - self._bytes(stream_id, before.position, position)
            size += self._bytes(stream_id, before.head, head)
        self._known[stream_id] = _Known(position, head, size)
        return Backlog(head - position, size)

    def _begin(self, stream_id: int, head: int) -> int:
        first = self.begin(stream_id)
        return head if first is None else first

    def _bytes(self, stream_id: int, start: int, end: int) -> int:
        return self.size(stream_id, start, end) if start < end else 0
