"""Pairs of an earlier step that the next step does not store, recomputed for its new rows (MJoin).

    new rows of C ── rows of A that they may match ── rows of B that match those of A ── rows of (A, B)

A new row of A or B is joined immediately, and its pairs probe the stored rows of C. A new row of C is joined
with the pairs of all rows of A and B, including new rows. So each combination of A, B and C is made once.
Rows of A and B leave their slices only when the slowest watermark of all streams that may need them has
passed them (``held_back``).

Source: MJoin (Viglas, Naughton, Burger, VLDB 2003). In MJoin, a row of A is joined with B again for each new
row of C that matches it. Here it is joined with B once per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from catalog.steps import makers_again
from catalog.values.plan import FamilyPlan
from operators.bucket.progress import least
from operators.join.family_joins import FamilyJoins
from operators.lineage.lineage import RowClasses
from operators.segments.segment import Segment
from operators.slices.candidates import Probing, Reach, find_candidates
from operators.steps.handed_pairs import HandedChunk, HandedPairs

#: Row classes for probes that ignore which queries may use a row.
_ALIKE = RowClasses(None, (0,))


@dataclass(slots=True, eq=False)
class PairsAgain:
    """Recomputation of the pairs of a bucket that are not stored.

    Attributes:
        families: Joins per family id.
        makers: By the id of a family that does not store its side a: the family whose pairs are that side.
        version: Plan version in force.
        partials: Number of pairs of rows with equal keys that the last call of ``rows`` examined.
    """

    families: Mapping[str, FamilyJoins]
    makers: Mapping[str, FamilyPlan]
    version: int
    partials: int = field(default=0, init=False)

    @classmethod
    def of(cls, families: Mapping[str, FamilyJoins], plans: Sequence[FamilyPlan], version: int) -> PairsAgain:
        """Return an object that recomputes pairs under a plan.

        Args:
            families: Joins per family id.
            plans: Families of the plan.
            version: Version of the plan.
        """
        return cls(families, makers_again(plans), version)

    def rows(self, taker: FamilyPlan, males: Segment) -> Segment | None:
        """Recompute the rows of side a that new rows of side b may match, or return None if there are none.

        Args:
            taker: The family whose side a is not stored.
            males: New rows of the family's side b, sorted by key.
        """
        behind_us = max(query.w_b_us for query in taker.queries)
        self.partials = 0
        return self._rows(taker, self.makers[taker.id], males, behind_us)

    def all_rows(self, taker: FamilyPlan, maker: FamilyPlan) -> Segment | None:
        """Recompute all rows of side a of a family, or return None if there are none.

        Args:
            taker: The family whose side a is recomputed.
            maker: The family whose pairs are these rows.
        """
        return self._rows(taker, maker, None, 0)

    def _rows(
        self, taker: FamilyPlan, maker: FamilyPlan, males: Segment | None, behind_us: int
    ) -> Segment | None:
        joins = self.families[maker.id]
        below = self.makers.get(maker.id)
        given = None
        if below is not None:
            given = self._rows(maker, below, males, behind_us)
            if given is None:
                return None
        handed = HandedPairs(maker, list(self._pairs(joins, given, males, behind_us)))
        return handed.rows(taker, self.families[taker.id].family.layouts["a"], self.version)

    def _pairs(
        self, joins: FamilyJoins, given: Segment | None, males: Segment | None, behind_us: int
    ) -> Iterator[HandedChunk]:
        """Yield the pairs that a family passes to the next step.

        Args:
            joins: Joins of the family.
            given: Recomputed rows of the family's side a, or None if side a is stored.
            males: New rows of a later step: only pairs whose row of side a may match one of these rows are
                yielded. None: all pairs are yielded.
            behind_us: Largest window of the males' side, µs.
        """
        for chain in joins.chains.values():
            build = chain.join.again
            if build is None:
                continue
            rows: list[tuple[Segment, RowClasses]] = []
            if given is not None:
                admitted = chain.admitted("a", given)
                rows = [] if admitted is None else [(admitted, chain.classes.of("a", admitted))]
            else:
                resting = [segment for state in chain.slices["a"] for segment in state.segments]
                rows = [(segment, chain.classes.of("a", segment)) for segment in resting]
                if males is not None:
                    rows = self._met(rows, males, Reach(chain.join.reach("a").behind_us, behind_us))
            resting = [segment for state in chain.slices["b"] for segment in state.segments]
            others = [(segment, chain.classes.of("b", segment)) for segment in resting]
            reach, touched = chain.join.reach("b"), np.zeros(1, dtype=np.int64)
            for some, classes in rows:
                probed = _probed(others, some, reach)
                for found in find_candidates(probed, some, classes, reach, touched, "b"):
                    chunk = build.build(found.males, found.females)
                    if chunk is not None and chunk.handed is not None:
                        yield chunk.handed
            self.partials += int(touched[0])

    def _met(
        self, resting: Sequence[tuple[Segment, RowClasses]], males: Segment, reach: Reach
    ) -> list[tuple[Segment, RowClasses]]:
        """Return the stored rows that at least one male may match, with their classes."""
        touched = np.zeros(1, dtype=np.int64)
        probed = _probed(resting, males, reach)
        met = {id(each.rows): np.zeros(len(each.rows), dtype=np.bool_) for each in probed}
        for found in find_candidates(probed, males, _ALIKE, reach, touched):
            for run in found.females.runs:
                met[id(run.rows)][run.index] = True
        self.partials += int(touched[0])
        kept = [(each, met[id(each.rows)]) for each in probed]
        return [(each.rows.filter(keep), each.classes.select(keep)) for each, keep in kept if keep.any()]


def _probed(resting: Sequence[tuple[Segment, RowClasses]], males: Segment, reach: Reach) -> list[Probing]:
    """Return a probing by the males for each stored segment that they may match."""
    oldest, newest = males.t_min, males.t_max
    return [
        Probing(0, rows, classes, males.key, males.ts, None)
        for rows, classes in resting
        if reach.can_meet(rows, oldest, newest)
    ]


def held_back(
    families: Sequence[FamilyPlan], before: Callable[[FamilyPlan], Mapping[str, int | None]]
) -> dict[str, int | None]:
    """Return, by family id, the highest watermark by which a family may purge the rows of its two sides.

    The pairs of such a family are recomputed for new rows of later streams. The limit is the slowest of these
    streams' watermarks at the start of the batch. Families whose pairs are not recomputed have no entry.

    Args:
        families: Families of the plan, in the order of their steps.
        before: Returns the watermark of each side of a family at the start of the batch.
    """
    found: dict[str, int | None] = {}
    makers = makers_again(families)
    for family in reversed(families):
        maker = makers.get(family.id)
        if maker is not None:
            slowest = before(family)["b"]
            for each in (family.id, maker.id):
                slowest = least(slowest, found[each]) if each in found else slowest
            found[maker.id] = slowest
    return found
