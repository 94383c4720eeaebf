"""Rows of one side of a family that are joined only after a clock has passed them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from operators.segments.merge import concat, mergeable
from operators.segments.segment import Segment

#: Waiting segments are merged once there are this many, but not a segment with more than half of all rows.
_MOST_WAITING: Final = 8


@dataclass(slots=True, eq=False)
class WaitingRows:
    """Rows that wait until a clock has passed them.

    Attributes:
        segments: The waiting rows.
        taken: Number of rows that stopped waiting and were removed in this batch.
    """

    segments: list[Segment] = field(default_factory=list)
    taken: int = 0

    @property
    def rows(self) -> int:
        """Number of waiting rows."""
        return sum(len(segment) for segment in self.segments)

    def released(self, before: int | None) -> list[Segment]:
        """Remove and return the rows whose clock value is below ``before``, or no rows if that is None."""
        if before is None:
            return []
        going = [s for s in self.segments if s.t_max < before]
        staying = []
        for segment in self.segments:
            if segment.t_max < before:
                continue
            if segment.t_min < before:
                going.append(segment.cut(segment.t_min, before))
                segment = segment.cut(before, segment.t_max + 1)
            staying.append(segment)
        self.segments = staying
        return going

    def merge(self) -> None:
        """Merge small segments if there are many."""
        if len(self.segments) < _MOST_WAITING:
            return
        half = self.rows // 2
        small = [s for s in self.segments if len(s) <= half]
        alike = [s for s in small if mergeable(small[0], s)]
        chosen = set(map(id, alike))
        self.segments = [s for s in self.segments if id(s) not in chosen]
        self.segments.append(concat(sorted(alike, key=lambda s: int(s.pos[0]))))
