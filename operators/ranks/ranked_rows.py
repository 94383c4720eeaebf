"""Rows of a family with windows of rows, until their ranks are final.

    new rows --> waiting --(watermarks of the counted streams pass)--> released with both clocks --> chains

A pair is decided by the rows that come between its rows, so rows wait until the watermark of each counted
stream has passed them. All rows before that time are released together, those of both sides. A later one can
come only from a stream that is not counted.

Source: State-Slice (VLDB 2006) says that windows of rows are sliced in the same way as those of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from catalog.values.query import Clock
from operators.kernels.keys import Int64s
from operators.ranks.clocked_rows import clocked
from operators.ranks.ranking import Ranking
from operators.segments.layout import SIDES
from operators.segments.merge import concat, mergeable
from operators.segments.segment import Segment

#: So many waiting segments of a side are merged, but for those with most of the rows.
_MOST_WAITING = 8


@dataclass(slots=True, eq=False)
class WaitingRows:
    """Rows of a side whose ranks are not final.

    Attributes:
        segments: The rows.
    """

    segments: list[Segment] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(len(segment) for segment in self.segments)

    def released(self, before_us: int | None) -> list[Segment]:
        """Take out the rows before an event time; none without one."""
        if before_us is None:
            return []
        going = [s for s in self.segments if s.t_max < before_us]
        staying = []
        for segment in self.segments:
            if segment.t_max < before_us:
                continue
            if segment.t_min < before_us:
                going.append(segment.cut(segment.t_min, before_us))
                segment = segment.cut(before_us, segment.t_max + 1)
            staying.append(segment)
        self.segments = staying
        return going

    def merge(self) -> None:
        """Merge small segments where there are many."""
        if len(self.segments) < _MOST_WAITING:
            return
        half = self.rows // 2
        small = [s for s in self.segments if len(s) <= half]
        alike = [s for s in small if mergeable(small[0], s)]
        chosen = set(map(id, alike))
        self.segments = [s for s in self.segments if id(s) not in chosen]
        self.segments.append(concat(sorted(alike, key=lambda s: int(s.pos[0]))))


@dataclass(slots=True, eq=False)
class RankedRows:
    """Ranks of a family's rows, and the rows that wait for theirs.

    Attributes:
        clocks: What the windows of each side are measured in.
        rankings: Ranks of the sides with windows of rows.
        waiting: Rows that wait, per side.
        released_us: All rows before this event time have been released but late ones of streams that are not
            counted; None: no row has.
    """

    clocks: Mapping[str, Clock]
    rankings: dict[str, Ranking] = field(init=False)
    waiting: dict[str, WaitingRows] = field(init=False)
    released_us: int | None = None

    def __post_init__(self) -> None:
        self.start_anew()

    def states(self) -> list[Ranking | WaitingRows]:
        """Return what holds its segments, in a set order."""
        return [*self.rankings.values(), *self.waiting.values()]

    def take_over(self, former: RankedRows) -> None:
        """Go on with what was kept under the plan version before."""
        self.rankings, self.waiting = former.rankings, former.waiting
        self.released_us = former.released_us

    def start_anew(self) -> None:
        """Forget all rows: a watermark goes back, and rows may come before those that were counted."""
        self.rankings = {s: Ranking(c == "key rows") for s, c in self.clocks.items() if c != "time"}
        self.waiting = {side: WaitingRows() for side in SIDES}
        self.released_us = None

    def release(
        self,
        fresh: Mapping[str, Segment | None],
        counted: Mapping[str, Sequence[pa.RecordBatch]],
        watermarks: Mapping[str, int | None],
    ) -> dict[str, list[Segment]]:
        """Take in the rows of a batch, and return those whose ranks are final now, per side and clocked.

        Args:
            fresh: New rows per side that are not late.
            counted: All new rows of the counted sides that are not late (``rank_rows``).
            watermarks: Watermark per side at the end of the batch.
        """
        for side, ranking in self.rankings.items():
            ranking.add(counted[side])
        before_us = self._release_before_us(watermarks)
        going: dict[str, list[Segment]] = {}
        for side in SIDES:
            rows = fresh[side]
            if rows is not None:
                self.waiting[side].segments.append(rows)
            going[side] = self._clocked(side, self.waiting[side].released(before_us))
            self.waiting[side].merge()
        return going

    def end_batch(self, watermarks: Mapping[str, int | None]) -> None:
        """Forget ranks that no later row asks about."""
        before_us = self._release_before_us(watermarks)
        if before_us is not None:
            # A stream's watermark does not go back but by ``start_anew``.
            self.released_us = before_us
        for side, ranking in self.rankings.items():
            least_us = self._least_male_us(side, watermarks)
            if least_us is not None:
                ranking.forget(least_us)

    def reached(self, side: str, watermarks: Mapping[str, int | None]) -> int | None:
        """Return the own clock of a side that all later males of the other side have reached.

        None if it is unknown, or differs from key to key (``reached_by``).
        """
        least_us = self._least_male_us(side, watermarks)
        if least_us is None or self.clocks[side] == "key rows":
            return None
        if self.clocks[side] == "time":
            return least_us
        reached = self.rankings[side].up_to(np.zeros(1, np.int64), np.full(1, least_us - 1, np.int64))
        return int(reached[0])

    def reached_by(self, side: str, key: Int64s, watermarks: Mapping[str, int | None]) -> Int64s | None:
        """Return the same for the rows of some keys, int64[n], where rows count by key; None if unknown."""
        least_us = self._least_male_us(side, watermarks)
        if least_us is None:
            return None
        return self.rankings[side].up_to(key, np.full(len(key), least_us - 1, dtype=np.int64))

    def _release_before_us(self, watermarks: Mapping[str, int | None]) -> int | None:
        """Return the event time before which all ranks are final."""
        passed = [watermarks[side] for side in self.rankings]
        known = [time for time in passed if time is not None]
        return min(known) if len(known) == len(passed) else None

    def _least_male_us(self, side: str, watermarks: Mapping[str, int | None]) -> int | None:
        """Return the least event time of a row of the other side that is not released yet, or comes later."""
        opposite, before_us = watermarks["b" if side == "a" else "a"], self._release_before_us(watermarks)
        return None if opposite is None or before_us is None else min(opposite, before_us)

    def _clocked(self, side: str, released: Sequence[Segment]) -> list[Segment]:
        own, other = self.rankings.get(side), self.rankings.get("b" if side == "a" else "a")
        ranks = [s.ts for s in released] if own is None else own.of([s.pos for s in released])
        return [
            clocked(rows, rank, rows.ts if other is None else other.up_to(rows.key, rows.ts))
            for rows, rank in zip(released, ranks, strict=True)
        ]
