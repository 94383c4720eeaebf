"""Search of a join's slices: males of one side probe the slices of the other side one after the other.

    males of b ->  [ a: slice 1 ] -> [ a: slice 2 ] -> ...      a male continues as long as it may serve a
                                                                query that reaches the next slice

Source: the probe step of State-Slice (VLDB 2006, §4.2, Figure 9).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from operators.join.compiled_family import CompiledJoin
from operators.join.pairs import PairTable
from operators.join.segment_classes import SegmentClasses
from operators.kernels.keys import Int64s
from operators.lineage.lineage import RowClasses
from operators.rings.rings import Arrivals, Rings, Scan
from operators.segments.segment import Segment
from operators.slices.candidates import Probing, Reach, find_candidates
from operators.slices.sliced_join import SliceState


@dataclass(frozen=True, slots=True, eq=False)
class OneWay:
    """One direction of a join whose sides have different clocks.

    Attributes:
        side: Side whose windows apply.
        reach: Largest distances between two rows, on the clock that the probe uses.
    """

    side: str
    reach: Reach


@dataclass(frozen=True, slots=True, eq=False)
class SliceSearch:
    """Search of the slices of both sides of a join.

    Attributes:
        join: The join, compiled under the plan version in force.
        slices: Slices per side.
        classes: Row classes of the family's segments.
        ends_us: Ends of the slices per side, µs.
        rings: Rings per side that index the rows of the last slice, or None if males find rows by merging.
    """

    join: CompiledJoin
    slices: Mapping[str, Sequence[SliceState]]
    classes: SegmentClasses
    ends_us: Mapping[str, tuple[int, ...]]
    rings: Mapping[str, Rings] | None

    def probe(
        self,
        side: str,
        males: Segment,
        pairs: PairTable,
        one_way: OneWay | None = None,
        reached: int | None = None,
        among: Sequence[Segment] | None = None,
    ) -> None:
        """Probe the slices of ``side``, one after the other, with males of the other side.

        Args:
            side: Side of the slices.
            males: Rows of the other side.
            pairs: Receives the joined pairs.
            one_way: Direction of the probe if the two sides have different clocks, otherwise None.
            reached: Watermark of the males at the end of the batch, used only with rings.
            among: Rows to probe instead of the slices. None: the slices are probed.
        """
        classes = self.classes.of("b" if side == "a" else "a", males)
        build = self.join.builder.build
        slices = self.slices[side]
        touched = np.zeros(len(slices), dtype=np.int64)
        reach = self.join.reach(side) if one_way is None else one_way.reach
        if among is None:
            probings = self._probings(side, males, classes, reach, reached)
        else:
            probings = [
                Probing(0, rows, self.classes.of(side, rows), males.key, males.ts, None) for rows in among
            ]
        band = self.join.band
        for found in find_candidates(probings, males, classes, reach, touched, side, band):
            a, b = (found.females, found.males) if side == "a" else (found.males, found.females)
            chunk = build(a, b, pairs.matches, None if one_way is None else one_way.side)
            if chunk is not None:
                for number, made in found.per_slice(chunk.chosen):
                    slices[number].counts.made += made
                self._count_results(chunk.apart)
                pairs.add(chunk)
        for number in np.flatnonzero(touched).tolist():
            slices[number].counts.touched += int(touched[number])
        if self.rings is not None:
            self.rings[side].counts.scanned += sum(p.scan.scanned for p in probings if p.scan is not None)

    def _count_results(self, apart: Int64s) -> None:
        """Count each pair in the slice whose interval contains the pair's distance in time.

        The row of the pair may be stored in another slice, because rows can stay behind in earlier slices.

        Args:
            apart: int64[classes], number of pairs in each distance class of the router. Pairs at distance 0
                are counted on side a.
        """
        bounds = self.join.builder.router
        first_b = len(bounds.bounds_a) + 1
        for side, own, bounds_us in (
            ("a", apart[:first_b], bounds.bounds_a),
            ("b", apart[first_b:], bounds.bounds_b),
        ):
            places = np.flatnonzero(own)
            starts_us = np.where(places > 0, bounds_us[places - 1], 0)
            slices = self.slices[side]
            for start_us, count in zip(starts_us.tolist(), own[places].tolist(), strict=True):
                number = min(bisect_right(self.ends_us[side], start_us), len(slices) - 1)
                slices[number].counts.results += count

    def _probings(
        self,
        side: str,
        males: Segment,
        classes: RowClasses,
        reach: Reach,
        reached: int | None,
    ) -> list[Probing]:
        """Return the segments of a side that males may match, each with the males that reach its slice."""
        probings = []
        reaching: Int64s | None = None
        keys, times, oldest, newest = males.key, males.ts, males.t_min, males.t_max
        arrivals = None if self.rings is None else self.rings[side].arrivals(males)
        slices = self.slices[side]
        # All males reach the first slice, because each admitted male may serve a query of the join. A male
        # that reaches a slice reaches the slices before it, so a binary search finds the first slice that
        # some males do not reach.
        all_come = bisect_left(
            slices[1:], True, key=lambda state: classes.serving(len(males), state.reach) is not None
        )
        for number, state in enumerate(slices):
            keep = classes.serving(len(males), state.reach) if number > all_come else None
            if keep is not None:
                if not keep.any():
                    break
                reaching = np.flatnonzero(keep)
                keys, times = males.key[reaching], males.ts[reaching]
                oldest, newest = int(times.min()), int(times.max())
            state.counts.males += len(keys)
            if not state.segments and (arrivals is None or number + 1 < len(slices)):
                continue
            state.counts.product += len(keys) * state.rows
            if arrivals is not None:
                scans = self._scans(side, number, arrivals if keep is None else arrivals.only(keep), reached)
                probings += [
                    Probing(number, segment, self.classes.of(side, segment), keys, times, reaching, scan)
                    for segment, scan in scans
                ]
                continue
            probed = (s.probed(keys) for s in state.segments if reach.can_meet(s, oldest, newest))
            probings += [
                Probing(number, rows, self.classes.of(side, rows), keys, times, reaching)
                for rows in probed
                if rows is not None
            ]
        return probings

    def _scans(
        self, side: str, number: int, males: Arrivals, reached: int | None
    ) -> list[tuple[Segment, Scan]]:
        """Scan the rings of a slice for males; only in the last slice do rows in rings expire."""
        assert self.rings is not None, "slices without rings are merged"
        segments, rings = self.slices[side][number].segments, self.rings[side]
        if number + 1 == len(self.slices[side]):
            return rings.probed(segments, males, reached)
        return [(segment, rings.whole(segment, males)) for segment in segments]
