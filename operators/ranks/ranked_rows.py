"""Rows of a family with windows of rows, which wait until their ranks are final.

    new rows --> waiting --(watermarks of the counted streams pass)--> released with both clocks --> chains

Whether a pair is a result depends on the number of rows between its two rows. So rows wait until the
watermark of each counted stream has passed them. All rows of both sides before the lowest of these watermarks
are released together. After that, a row with an earlier event time can arrive only in a stream that is not
counted.

In a join of more than two streams, a side may be an intermediate. Rows of an intermediate already have ranks,
one for each of their streams with a window of rows, from the rankings of earlier families. Then rows of the
other side also wait for the intermediate's watermark, and are released with the numbers of rows of these
streams (``clocked_rows.counting``).

Source: State-Slice (VLDB 2006) says that windows of rows are sliced like windows of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from catalog.values.query import Clock
from operators.kernels.keys import Int64s
from operators.ranks.clocked_rows import clocked, counting
from operators.ranks.ranking import Ranking
from operators.segments.layout import SIDES
from operators.segments.segment import Segment
from operators.waiting.waiting_rows import WaitingRows


@dataclass(slots=True, eq=False)
class RankedRows:
    """Ranks of a family's rows, and the rows that wait for their ranks.

    Attributes:
        clocks: Clock that measures the windows on a side, by side.
        follows: Sides that are intermediates with ranks.
        rankings: Ranks of the sides with windows of rows.
        waiting: Rows that wait, per side.
        released_us: All rows before this event time have been released, except rows of uncounted streams that
            arrived afterwards; None if no row has been released.
    """

    clocks: Mapping[str, Clock]
    follows: frozenset[str] = frozenset()
    rankings: dict[str, Ranking] = field(init=False)
    waiting: dict[str, WaitingRows] = field(init=False)
    released_us: int | None = None

    def __post_init__(self) -> None:
        self.restart()

    def states(self) -> list[Ranking | WaitingRows]:
        """Return the objects that hold the segments of ranks and waiting rows, in a fixed order."""
        return [*self.rankings.values(), *self.waiting.values()]

    def take_over(self, former: RankedRows) -> None:
        """Continue with the rows and ranks kept under the previous plan version."""
        self.rankings, self.waiting = former.rankings, former.waiting
        self.released_us = former.released_us

    def restart(self) -> None:
        """Forget all rows, because a watermark is reset and new rows may precede rows already counted."""
        self.rankings = {s: Ranking(c == "key rows") for s, c in self.clocks.items() if c != "time"}
        self.waiting = {side: WaitingRows() for side in SIDES}
        self.released_us = None

    def release(
        self,
        fresh: Mapping[str, Segment | None],
        counted: Mapping[str, Sequence[pa.RecordBatch]],
        watermarks: Mapping[str, int | None],
        earlier: Mapping[str, Sequence[Ranking]],
    ) -> dict[str, list[Segment]]:
        """Add the rows of a batch; return, per side and with both clocks, the rows whose ranks are now final.

        Args:
            fresh: New rows per side that are not late.
            counted: All new rows of the counted sides that are not late (``rank_rows``).
            watermarks: Watermark per side at the end of the batch.
            earlier: Rankings of the earlier families in which the rows of a side got their ranks, by side.
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
            if of_other := earlier.get("b" if side == "a" else "a"):
                going[side] = [_counting(rows, of_other) for rows in going[side]]
            self.waiting[side].merge()
        return going

    def end_batch(
        self, watermarks: Mapping[str, int | None], following: Sequence[Mapping[str, int | None]] = ()
    ) -> None:
        """Record the event time up to which no later row needs ranks.

        Args:
            watermarks: Watermark per side at the end of the batch.
            following: Watermarks per side of each later family whose rows need ranks of this family.
        """
        before_us = self._release_before_us(watermarks)
        if before_us is not None:
            # This time never decreases, because ``restart`` is called when a watermark is reset.
            self.released_us = before_us
        for side, ranking in self.rankings.items():
            asked = [self._least_male_us(side, watermarks), *(t for of in following for t in of.values())]
            known = [time for time in asked if time is not None]
            if len(known) == len(asked):
                ranking.before_us = max(ranking.before_us, min(known))

    def reached(self, side: str, watermarks: Mapping[str, int | None]) -> int | None:
        """Return a lower bound, on the clock of a side, of all later rows of the other side.

        The result is None if no bound is known, or if each key has its own bound (``reached_by``).
        """
        least_us = self._least_male_us(side, watermarks)
        if least_us is None or self.clocks[side] == "key rows":
            return None
        if self.clocks[side] == "time":
            return least_us
        reached = self.rankings[side].up_to(np.zeros(1, np.int64), np.full(1, least_us - 1, np.int64))
        return int(reached[0])

    def reached_by(self, side: str, key: Int64s, watermarks: Mapping[str, int | None]) -> Int64s | None:
        """Return the bound of each key, int64[n], if rows count by key, or None if no bound is known."""
        least_us = self._least_male_us(side, watermarks)
        if least_us is None:
            return None
        return self.rankings[side].up_to(key, np.full(len(key), least_us - 1, dtype=np.int64))

    def _release_before_us(self, watermarks: Mapping[str, int | None]) -> int | None:
        """Return the event time before which all ranks are final."""
        passed = [watermarks[side] for side in SIDES if side in self.rankings or side in self.follows]
        known = [time for time in passed if time is not None]
        return min(known) if len(known) == len(passed) else None

    def _least_male_us(self, side: str, watermarks: Mapping[str, int | None]) -> int | None:
        """Return the least event time of the other side's rows that wait or have not arrived yet."""
        opposite, before_us = watermarks["b" if side == "a" else "a"], self._release_before_us(watermarks)
        return None if opposite is None or before_us is None else min(opposite, before_us)

    def _clocked(self, side: str, released: Sequence[Segment]) -> list[Segment]:
        own, other = self.rankings.get(side), self.rankings.get("b" if side == "a" else "a")
        return [
            clocked(
                rows,
                rows.ts if own is None else own.of(rows),
                rows.ts if other is None else other.up_to(rows.key, rows.ts),
            )
            for rows in released
        ]


def _counting(rows: Segment, earlier: Sequence[Ranking]) -> Segment:
    """Add to clocked rows the numbers of rows of the streams that are ranked by earlier families."""
    counts = [(of.up_to(rows.key, rows.times), of.up_to(rows.key, rows.times - 1)) for of in earlier]
    return counting(rows, counts)
