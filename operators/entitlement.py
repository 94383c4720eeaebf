"""Which rows from before its activation a query may use (design: Activation).

A query with ``backfill: none`` is entitled to the rows processed since its activation. With ``backfill:
state`` it is entitled besides to rows *held* then: rows that some query of the plan before, itself entitled
to them, passes through its filter and whose window still reaches the opposite watermark. Unfolding the
recursion gives an OR of terms over facts that every row carries (lineage, event time, plan version), so
nothing is written per row, and slack in the state (rows kept a little too long) cannot leak into answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operators.keys import Bools
from operators.segment import Segment

NO_TIME_BOUND = -(2**62)


@dataclass(frozen=True, slots=True)
class Term:
    """One reason why a row was held: all of its conditions hold.

    Attributes:
        bits: Lineage bits that the row needs, all of them.
        epoch_min: Plan version from which the row was processed.
        t_min_us: Event time from which the row still mattered, µs.
        columns: Columns that must have been kept for the row.
    """

    bits: frozenset[int]
    epoch_min: int
    t_min_us: int
    columns: frozenset[str]

    def implies(self, other: Term) -> bool:
        """Tell whether every row of this term is also one of ``other``."""
        return (
            other.bits <= self.bits
            and other.epoch_min <= self.epoch_min
            and other.t_min_us <= self.t_min_us
            and other.columns <= self.columns
        )


@dataclass(frozen=True, slots=True)
class HolderQuery:
    """What decides on one side whether a query of the plan before held a row."""

    filter_bit: int | None
    since_version: int
    window_us: int
    terms: tuple[Term, ...]


def held_terms(
    holders: Sequence[HolderQuery], opposite_watermark_us: int | None, columns: frozenset[str]
) -> tuple[Term, ...]:
    """Unfold what is held on one side when a query with ``backfill: state`` is activated.

    Args:
        holders: Queries of the plan in force before, on this side.
        opposite_watermark_us: Watermark of the other stream at the end of the batch before; None before
            its first row.
        columns: Columns the new query needs of a row of this side.

    Returns:
        Terms of which a held row satisfies at least one; none implies another.
    """
    terms: list[Term] = []
    for holder in holders:
        t_min = NO_TIME_BOUND
        if opposite_watermark_us is not None:
            t_min = opposite_watermark_us - holder.window_us + 1
        own = frozenset() if holder.filter_bit is None else frozenset({holder.filter_bit})
        terms.append(Term(own, holder.since_version, t_min, columns))
        terms += [
            Term(term.bits | own, term.epoch_min, max(term.t_min_us, t_min), term.columns | columns)
            for term in holder.terms
        ]
    unique = list(dict.fromkeys(terms))
    return tuple(t for t in unique if not any(o is not t and t.implies(o) for o in unique))


def rows_of_terms(segment: Segment, terms: Sequence[Term], kept: frozenset[str]) -> Bools:
    """Tell which rows of a segment satisfy at least one term.

    Args:
        segment: n rows.
        terms: What held them.
        kept: Columns that can be read of the segment, derived ones included.

    Returns:
        bool[n].
    """
    held = np.zeros(len(segment), dtype=np.bool_)
    for term in terms:
        if not term.columns <= kept or segment.epoch_max < term.epoch_min or segment.t_max < term.t_min_us:
            continue
        rows = segment.ts >= term.t_min_us
        if segment.epoch_min < term.epoch_min:
            rows &= segment.epochs() >= term.epoch_min
        for bit in term.bits:
            rows &= segment.has_bit(bit)
        held |= rows
    return held
