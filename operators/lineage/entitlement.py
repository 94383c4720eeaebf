"""Rows from before the activation of a query that it may use (design: Activation).

A query with ``backfill: none`` is entitled to the rows processed since its activation. A query with
``backfill: state`` is also entitled to rows *held* at its activation. A row is held if it passes the filter
of a query of the plan before which is itself entitled to it, and whose window still reaches from the opposite
watermark to the row. Unfolding this recursion gives an OR of terms over facts that every row carries
(lineage, event time, plan version), so nothing is written per row, and slack in the state (rows kept too
long) cannot leak into answers.

Each way in which a row can have been handed on, from query to query, is a term. A term is dropped with the
last row that it can hold. But if queries with new filters come and go faster than their rows, the number of
ways grows as the Fibonacci numbers with the generations. Beyond ``MOST_TERMS`` the answer is stored instead,
as one more lineage bit of the rows (``settled``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from operators.kernels.keys import Bools
from operators.segments.segment import Segment

NO_TIME_BOUND = -(2**62)
#: Newest row of a term for which it is unknown.
NO_NEWEST = 2**62

#: Most terms of one query and side. With this many, checking a row costs as much as writing a bit for it.
MOST_TERMS = 32
#: Lineage bits of settled terms begin here, one per query id; bits of filters count up from 0.
SETTLED_BITS = 2**40


@dataclass(frozen=True, slots=True)
class Term:
    """One reason why a row was held, if the row meets all conditions of the term.

    Attributes:
        bits: Lineage bits that the row needs, all of them.
        epoch_min: Plan version from which the row was processed.
        t_min_us: Event time from which the row still mattered, µs.
        columns: Columns that must have been kept for the row.
        t_max_us: No row that it holds is newer, µs. Rows are not checked for it: it tells when the term can
            be dropped.
    """

    bits: frozenset[int]
    epoch_min: int
    t_min_us: int
    columns: frozenset[str]
    t_max_us: int = NO_NEWEST

    def implies(self, other: Term) -> bool:
        """Return whether every row of this term is also a row of ``other``."""
        return (
            other.bits <= self.bits
            and other.epoch_min <= self.epoch_min
            and other.t_min_us <= self.t_min_us
            and other.columns <= self.columns
            and other.t_max_us >= self.t_max_us
        )

    def reaches(self, window_us: int, opposite_watermark_us: int | None) -> bool:
        """Return whether a window still reaches from the opposite watermark to a row of this term."""
        return opposite_watermark_us is None or self.t_max_us + window_us > opposite_watermark_us


@dataclass(frozen=True, slots=True)
class HolderQuery:
    """Facts about a query of the plan before that decide, on one side, whether it held a row."""

    filter_bit: int | None
    since_version: int
    window_us: int
    terms: tuple[Term, ...]


def held_terms(
    holders: Sequence[HolderQuery],
    opposite_watermark_us: int | None,
    newest_us: int | None,
    columns: frozenset[str],
) -> tuple[Term, ...]:
    """Return the terms of the rows held on one side when a query with ``backfill: state`` is activated.

    Args:
        holders: Queries of the plan in force before, on this side.
        opposite_watermark_us: Watermark of the other stream at the end of the batch before; None before
            its first row.
        newest_us: Newest event time of this side's stream until then; None before its first row.
        columns: Columns that the new query needs of a row of this side.

    Returns:
        Terms of which a held row satisfies at least one; no term implies another.
    """
    if newest_us is None:
        return ()
    terms: set[Term] = set()
    for holder in holders:
        t_min = NO_TIME_BOUND
        if opposite_watermark_us is not None:
            t_min = opposite_watermark_us - holder.window_us + 1
        own = frozenset() if holder.filter_bit is None else frozenset({holder.filter_bit})
        terms.add(Term(own, holder.since_version, t_min, columns, newest_us))
        for term in holder.terms:
            terms.add(
                Term(
                    term.bits | own,
                    term.epoch_min,
                    max(term.t_min_us, t_min),
                    term.columns | columns,
                    term.t_max_us,
                )
            )
    return _weakest(term for term in terms if term.t_min_us <= term.t_max_us)


def _weakest(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Return the terms that imply no other term, in a fixed order."""
    weakest: list[Term] = []
    # In this order a term follows every term that it implies.
    for term in sorted(terms, key=_strength):
        if not any(term.implies(other) for other in weakest):
            weakest.append(term)
    return tuple(weakest)


def _strength(term: Term) -> tuple[object, ...]:
    asked = (len(term.bits), term.epoch_min, term.t_min_us, len(term.columns), -term.t_max_us)
    return (*asked, sorted(term.bits), sorted(term.columns))


def settled(query_id: int, terms: Sequence[Term]) -> Term:
    """Return the one term of a query whose held rows are marked by a lineage bit.

    Args:
        query_id: The query.
        terms: Terms that held its rows; ``rows_of_terms`` tells which rows get the bit.
    """
    newest = max(term.t_max_us for term in terms)
    return Term(frozenset({SETTLED_BITS + query_id}), 0, NO_TIME_BOUND, frozenset(), newest)


def rows_of_terms(segment: Segment, terms: Sequence[Term], kept: frozenset[str]) -> Bools:
    """Tell which rows of a segment satisfy at least one term.

    Args:
        segment: n rows.
        terms: Terms that held them.
        kept: Columns that can be read from the segment, including derived ones.

    Returns:
        bool[n].
    """
    held = np.zeros(len(segment), dtype=np.bool_)
    passing: dict[int, Bools] = {}
    for term in terms:
        if not (term.columns <= kept and term.bits <= segment.known_bits):
            continue
        if segment.epoch_max < term.epoch_min or segment.t_max < term.t_min_us:
            continue
        rows = segment.ts >= term.t_min_us
        if segment.epoch_min < term.epoch_min:
            rows &= segment.epochs() >= term.epoch_min
        for bit in term.bits:
            if bit not in passing:
                passing[bit] = segment.has_bit(bit)
            rows &= passing[bit]
        held |= rows
        if held.all():
            break
    return held
