"""Classes of the rows of a side that a join admits: all rows, or one class of a split stream.

    all rows of the side ─┬─ pass a filter of the join's queries          state-slice chains, unshared joins
                          ├─ all                                          selection pull-up
                          └─ pass one of O, none of N                     stream partition, one class

All sizes are fractions of the side's rows; for the independence of filters, see ``planner.costs.rates``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from catalog.values.plan import FamilyPlan, JoinPlan, queries_of
from planner.costs.rates import FamilyRates, Floats, SideRates
from planner.families.families import Family, SideName, side_filter
from planner.families.filters import keep_bits

#: Lineage bits of the filters of queries; None for a query without a filter.
Bits = frozenset[int | None]


@dataclass(frozen=True, slots=True)
class RowClass:
    """Rows of one side that a join may admit: all rows, or one class of a split stream.

    Attributes:
        rates: Rates of the side.
        one_of: Filters; a row of the class passes at least one of them. Every row passes None.
        none_of: Filters; a row of the class passes none of them.
        whole: Whether the join also admits rows that no query can use (selection pull-up).
        split: Whether the rows are a class of a split stream.
    """

    rates: SideRates
    one_of: Bits = frozenset({None})
    none_of: Bits = frozenset()
    whole: bool = False
    split: bool = False

    @property
    def is_plain(self) -> bool:
        """Return whether the join admits the rows that pass a filter of its queries, and no other rows."""
        return not self.whole and not self.split

    def share(self, bits: Bits, *, whole: bool = True) -> float:
        """Return the fraction of the side's rows that are in the class and pass at least one of ``bits``.

        With O = one_of, N = none_of: P(O and F and not N) = P(O or N) - P(N) - P(O or N or F) + P(N or F).

        Args:
            bits: Filters, F in the formula; every row passes None.
            whole: Whether to count rows that pass none of ``bits``, if the join admits such rows.
        """
        if self.whole and whole:
            return 1.0
        any_of, without = self.rates.passing_any, self.none_of
        if not self.split:
            return any_of(bits)
        reached = any_of(self.one_of | without) - any_of(without)
        missed = any_of(self.one_of | without | bits) - any_of(without | bits)
        return max(0.0, reached - missed)

    def shares(self, reaching: Sequence[Bits]) -> Floats:
        """Return ``share`` for each set of a list; repeated sets are computed once."""
        known = {bits: self.share(bits) for bits in set(reaching)}
        return np.array([known[bits] for bits in reaching], dtype=np.float64)

    def single_shares(self) -> Callable[[int | None], float]:
        """Return a cached function that returns the fraction of rows that pass a filter."""
        return cache(lambda bit: self.share(frozenset({bit}), whole=False))

    def kept(self, reaching: Sequence[Bits]) -> list[Bits]:
        """Return, per slice, a set of filters; every row in the slice passes at least one of them.

        If the side is split, only rows of the class enter the join, and the filters of the class are stricter
        than the filters of the queries.

        Args:
            reaching: Per slice, the filters of the queries that reach it.
        """
        if self.whole:
            return [frozenset({None})] * len(reaching)
        return [self.one_of] * len(reaching) if self.split else list(reaching)

    def guaranteed_ends(
        self, keeps: Sequence[Bits], ends: Mapping[int | None, int]
    ) -> Iterator[tuple[int, ...]]:
        """Yield, per slice, the ends (``ends``) of the filters that every row kept in the slice passes."""
        known: dict[Bits, tuple[int, ...]] = {}
        for keep in keeps:
            if keep not in known:
                known[keep] = tuple(ends[bit] for bit in sorted(self._guaranteed(keep)) if bit in ends)
            yield known[keep]

    def _guaranteed(self, keep: Bits) -> frozenset[int]:
        kept = keep_bits(keep, self.rates.weaker)
        if not kept:
            return frozenset()
        return frozenset.intersection(*(frozenset({b}) | self.rates.weaker.get(b, frozenset()) for b in kept))


def row_classes_of(
    family: Family | FamilyPlan, join: JoinPlan, side: SideName, rates: FamilyRates
) -> RowClass:
    """Return the rows of one side that a join of the family may admit."""
    if join.partition is None or join.partition.side != side:
        return RowClass(rates.side(side), whole=join.pulled_up)
    split = join.partition
    of_class, above = (queries_of(family.queries, ids) for ids in (split.one_of, split.none_of))
    return RowClass(
        rates.side(side),
        one_of=frozenset(side_filter(q, side) for q in of_class),
        none_of=frozenset(side_filter(q, side) for q in above),
        split=True,
    )
