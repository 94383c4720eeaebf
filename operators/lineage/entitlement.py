"""Rows from before a query's activation that the query may use.

A query with ``backfill: none`` may use the rows processed since its activation. A query with
``backfill: state`` may also use rows *held* at its activation. A row is held if some query of the previous
plan version keeps it: that query is itself entitled to the row, the row passes its filter, and its window
still reaches from the opposite watermark to the row. Unfolding this recursion gives an OR of terms over
values that every row has (lineage, event time, plan version). So nothing is written per row, and rows that
are kept too long (slack in the state) never affect answers.

Each term describes one sequence of queries that have held a row one after another. A term is dropped when the
last row that can meet the term has expired. But if queries with new filters enter and leave faster than their
rows expire, the number of terms grows with the generations of queries like the Fibonacci numbers. If a query
has more than ``MOST_TERMS`` terms, the result of their OR is stored in each row as one more lineage bit
(``settled``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from operators.kernels.keys import Bools
from operators.segments.segment import Segment

NO_TIME_BOUND = -(2**62)
#: Upper bound of the event times of a term's rows, if no bound is known.
NO_NEWEST = 2**62

#: Maximum number of terms per query and side. With this many terms, checking a row costs as much as writing a
#: bit for the row.
MOST_TERMS = 32
#: Lineage bits of settled terms are numbered from here, one per query id; bits of filters count up from 0.
SETTLED_BITS = 2**40


@dataclass(frozen=True, slots=True)
class Term:
    """One reason why a row was held; the row must meet all conditions of the term.

    Attributes:
        bits: Lineage bits that must all be set in the row.
        epoch_min: Least plan version under which the row was processed.
        t_min_us: Least event time, µs, that the window of the query that held the row still reached.
        columns: Columns that must be readable from the row's segment.
        t_max_us: Upper bound of the event times of the rows that can meet the term, µs. Rows are not checked
            against this bound; the term can be dropped once a row with this event time has expired.
    """

    bits: frozenset[int]
    epoch_min: int
    t_min_us: int
    columns: frozenset[str]
    t_max_us: int = NO_NEWEST

    def implies(self, other: Term) -> bool:
        """Return whether every row that meets this term also meets ``other``."""
        return (
            other.bits <= self.bits
            and other.epoch_min <= self.epoch_min
            and other.t_min_us <= self.t_min_us
            and other.columns <= self.columns
            and other.t_max_us >= self.t_max_us
        )

    def reaches(self, window_us: int, opposite_watermark_us: int | None) -> bool:
        """Return whether a window still reaches from the opposite watermark to a row of the term."""
        return opposite_watermark_us is None or self.t_max_us + window_us > opposite_watermark_us


@dataclass(frozen=True, slots=True)
class HolderQuery:
    """Filter, activation, window and terms by which a query of the previous plan held rows of one side."""

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
        holders: Queries of the previous plan, with their filters and windows on this side.
        opposite_watermark_us: Watermark of the other stream at the end of the previous batch; None before its
            first row.
        newest_us: Newest event time of this side's stream so far; None before its first row.
        columns: Columns of this side that the new query needs.

    Returns:
        The terms. Every held row meets at least one term, and no term implies another.
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
    # In this order, a term comes after every term that it implies.
    for term in sorted(terms, key=_strength):
        if not any(term.implies(other) for other in weakest):
            weakest.append(term)
    return tuple(weakest)


def _strength(term: Term) -> tuple[object, ...]:
    asked = (len(term.bits), term.epoch_min, term.t_min_us, len(term.columns), -term.t_max_us)
    return (*asked, sorted(term.bits), sorted(term.columns))


def settled(query_id: int, terms: Sequence[Term]) -> Term:
    """Return the single term of a query whose held rows are marked by a lineage bit.

    Args:
        query_id: The query.
        terms: The former terms of the query; rows that meet one of them get the bit (``rows_of_terms``).
    """
    newest = max(term.t_max_us for term in terms)
    return Term(frozenset({SETTLED_BITS + query_id}), 0, NO_TIME_BOUND, frozenset(), newest)


def rows_of_terms(segment: Segment, terms: Sequence[Term], kept: frozenset[str]) -> Bools:
    """Return which rows of a segment meet at least one term.

    Args:
        segment: n rows.
        terms: The terms.
        kept: Columns that can be read from the segment, including derived columns.

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
