"""Lineage: which queries of a family a row may serve.

    queries   q0 no filter, q1 v < 1, q2 v < 3           filters (4: v < 1, 17: v < 3)

    rows      v    _l0         kinds       classes: queries that the rows may serve
              0    0b11    ->  0b11    ->  0b111  q0 q1 q2
              2    0b10    ->  0b10    ->  0b101  q0    q2
              5    0b00    ->  0b00    ->  0b001  q0

PACK evaluates every distinct filter once per row and stores the answer as one bit. The segment says which bit
belongs to which filter (``segments.segment``). Queries of a family are numbered by their index in the plan. A
set of queries is an int with one bit per query. Rows with the same answers to all filters are of one *kind*
(``indexes.row_kinds``). Rows of one kind can serve the same queries, so they form a *class*. There are few
classes, so every decision about queries is made per class instead of per row. Rows of one kind are in several
classes only if their event times matter. Event times matter if a query may use rows from before its
activation only from an event time t on (``lineage.entitlement``), and the segment has rows before and after
t.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import numpy as np

from catalog.values.plan import FamilyPlan, PlannedQuery
from operators.kernels.keys import Bools, Codes, Int64s
from operators.lineage.entitlement import Term, rows_of_terms
from operators.segments.indexes.row_kinds import Kind
from operators.segments.segment import WORD_BITS, Segment

K = TypeVar("K")
V = TypeVar("V")

#: Maximum number of answers in each cache, because a plan version may be in force for weeks.
MAX_KEPT = 1 << 12
#: When rows are classified in two ways at once, combined classes that do not occur are removed only if there
#: are more possible combinations than this.
MAX_CLASSES = 1 << 16
#: Up to this many kinds, each kind is a class. If there are more, kinds that serve the same queries become
#: one class.
MAX_KINDS = 64


def keep(answers: dict[K, V], question: K, answer: V) -> None:
    """Cache an answer; clear the cache when it is full, so that it does not grow forever."""
    if len(answers) >= MAX_KEPT:
        answers.clear()
    answers[question] = answer


@dataclass(frozen=True, slots=True, eq=False)
class RowClasses:
    """Classes of a segment's rows.

    Attributes:
        codes: int64[n] or uint8[n], class of each row; None if all rows are of class 0.
        masks: Queries that the rows of each class may serve; two classes may serve the same queries.
    """

    codes: Codes | None
    masks: tuple[int, ...]

    def serving(self, rows: int, queries: int, none_of: int = 0) -> Bools | None:
        """Return which rows may serve one of ``queries``, bool[rows], or None if all rows may.

        Args:
            rows: Number of rows.
            queries: Set of queries.
            none_of: Set of queries; rows that may serve one of these queries are excluded.
        """
        wanted = [mask & queries != 0 and mask & none_of == 0 for mask in self.masks]
        if all(wanted):
            return None
        if self.codes is None:
            return np.zeros(rows, dtype=np.bool_)
        return np.array(wanted, dtype=np.bool_)[self.codes]

    def select(self, keep: Bools) -> RowClasses:
        """Return the classes of the rows for which ``keep`` is true."""
        return self if self.codes is None else RowClasses(self.codes[keep], self.masks)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedFilters:
    """Places of the bits of filters, in the rows of segments that store bits of the same filters.

    Attributes:
        places: Index of the bit of each filter whose bit the rows have.
        candidates: Queries without a filter, or with a filter whose bit the rows have.
        lives: Bits, in each lineage word, of the filters in force and of filters that held rows have passed.
        queries: Set of queries of each filter in force, by the index of its bit.
    """

    places: Mapping[int, int]
    candidates: int
    lives: tuple[int, ...]
    queries: tuple[tuple[int, int], ...]
    _passed: dict[Kind, int] = field(default_factory=dict)

    def passed_by(self, kind: Kind) -> int:
        """Return the queries whose filter the rows of a kind pass."""
        answers = kind[1:]
        queries = self._passed.get(answers)
        if queries is None:
            queries = self.candidates
            for place, members in self.queries:
                word, bit = divmod(place, WORD_BITS)
                if not answers[word] >> bit & 1:
                    queries &= ~members
            keep(self._passed, answers, queries)
        return queries


#: Plan version that activated some queries, and the terms of the rows held for them.
Group = tuple[int, tuple[Term, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class EpochEntitlement:
    """Queries that may use rows processed under one plan version.

    Attributes:
        queries: Queries activated by this version or earlier, and later queries that may use some of these
            rows.
        held: Sets of the later queries, by the version that activated them and the terms of their held rows.
    """

    queries: int
    held: Mapping[Group, int]


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Queries that may use rows of one plan version and event time range, regardless of their own filters.

    Attributes:
        queries: Queries that may use some of these rows.
        passing: Sets of queries, each with some combinations of filters: the queries may use only rows that
            pass all filters of one combination. A combination is given as bits in each lineage word.
        undecided: Sets of queries, by group, that may use a row or not depending on the row's event time.
    """

    queries: int
    passing: tuple[tuple[int, tuple[Kind, ...]], ...]
    undecided: Mapping[Group, int]

    def serves(self, kind: Kind) -> int:
        """Return the queries that may use rows of a kind, if the rows also pass the queries' filters."""
        queries = self.queries
        for members, choices in self.passing:
            if not any(_passes(kind, choice) for choice in choices):
                queries &= ~members
        return queries


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Classes of the rows of some kinds.

    Attributes:
        numbering: int64[kinds], class of each kind; None if every kind is a class of its own.
        masks: Queries that the rows of each class may serve; queries of undecided groups are included.
        undecided: Sets of queries, by group, that may use a row or not depending on the row's event time.
    """

    numbering: Int64s | None
    masks: tuple[int, ...]
    undecided: Mapping[Group, int]


@dataclass(frozen=True, slots=True, eq=False)
class SideLineage:
    """Lineage of one side under one plan version: finds the queries that its rows may serve.

    Attributes:
        queries: The family's queries, in plan order.
        bits: Each query's filter bit on this side; None if the query has no filter.
        terms: Terms of the rows that each ``backfill: state`` query may use from before its activation, by
            query id.
        columns: Columns of this side that each query needs.
        live: Lineage bits that this version may read: the bits of its filters and of its terms. Later
            versions read no other bits of stored rows, so bits of other filters can be dropped.
        newest: Newest plan version that activated one of the queries.
        bounds_us: Distinct least event times (``t_min_us``) of the terms, ascending.
    """

    queries: tuple[PlannedQuery, ...]
    bits: tuple[int | None, ...]
    terms: Mapping[int, tuple[Term, ...]]
    columns: tuple[frozenset[str], ...]
    live: frozenset[int] = field(init=False)
    newest: int = field(init=False)
    bounds_us: tuple[int, ...] = field(init=False)
    # One entry per tuple of filters in stored segments. Rows that arrived under one plan version have bits of
    # the same filters, so there is at most one entry per version.
    _placed: dict[tuple[int, ...], PlacedFilters] = field(default_factory=dict)
    _entitled: dict[tuple[int, frozenset[str]], EpochEntitlement] = field(default_factory=dict)
    # Most segments have the same kinds, so the classes of a plan version are computed once for all of them.
    _settled: dict[tuple[object, ...], Settled] = field(default_factory=dict)
    _found: dict[tuple[object, ...], Found] = field(default_factory=dict)

    def __post_init__(self) -> None:
        held = {bit for terms in self.terms.values() for term in terms for bit in term.bits}
        live = frozenset(held.union(bit for bit in self.bits if bit is not None))
        object.__setattr__(self, "live", live)
        object.__setattr__(self, "newest", max((query.since_version for query in self.queries), default=0))
        bounds_us = sorted({term.t_min_us for terms in self.terms.values() for term in terms})
        object.__setattr__(self, "bounds_us", tuple(bounds_us))

    @property
    def all_queries(self) -> int:
        """The set of all queries."""
        return (1 << len(self.queries)) - 1

    def classify(self, segment: Segment, kept: frozenset[str]) -> RowClasses:
        """Find the classes of a segment's rows.

        Args:
            segment: n rows.
            kept: Columns that can be read from the segment.

        Returns:
            Classes of the rows; at least one class, even if there are no rows.
        """
        placed = self._places(segment.filters)
        alike = segment.kinds(placed.lives)
        # Numbers of time bounds (``bounds_us``) that are at or before all rows, and at or before some row.
        early = late = len(self.bounds_us)
        if self.newest > segment.epoch_min:
            early = bisect_right(self.bounds_us, segment.t_min)
            late = bisect_right(self.bounds_us, segment.t_max)
        question = (segment.filters, alike.kinds, kept, early, late)
        found = self._found.get(question) if len(alike.kinds) <= MAX_KINDS else None
        if found is None:
            found = self._classes_of(placed, alike.kinds, kept, early, late)
            # If a segment has many kinds of rows, no other segment has the same set of kinds, and caching
            # would take gigabytes.
            if len(alike.kinds) <= MAX_KINDS:
                keep(self._found, question, found)
        codes = alike.codes
        if found.numbering is not None:
            codes = None if codes is None or len(found.masks) == 1 else found.numbering[codes]
        classes = RowClasses(codes, found.masks)
        for (since, terms), members in found.undecided.items():
            serves = rows_of_terms(segment, terms, kept)
            if segment.epoch_max >= since:
                serves |= segment.epochs() >= since
            classes = _combine(classes, self._only(serves, members))
        return classes

    def _only(self, serves: Bools, members: int) -> RowClasses:
        """Return row classes: rows in ``serves`` may serve all queries, other rows all but ``members``."""
        without = self.all_queries & ~members
        if serves.all():
            return RowClasses(None, (self.all_queries,))
        if not serves.any():
            return RowClasses(None, (without,))
        return RowClasses(serves.astype(np.int64), (without, self.all_queries))

    def _classes_of(
        self, placed: PlacedFilters, kinds: tuple[Kind, ...], kept: frozenset[str], early: int, late: int
    ) -> Found:
        """Find the queries that rows of each kind may serve; the arguments are those of ``_settle``."""
        settled = {kind[0]: self._settle(placed, kind[0], kept, early, late) for kind in kinds}
        masks = [placed.passed_by(kind) & settled[kind[0]].serves(kind) for kind in kinds]
        undecided = {group: m for one in settled.values() for group, m in one.undecided.items()}
        numbers: dict[int, int] = {}
        numbering = [numbers.setdefault(mask, len(numbers)) for mask in masks]
        if len(numbers) == len(masks) or (len(numbers) > 1 and len(masks) <= MAX_KINDS):
            return Found(None, tuple(masks), undecided)
        return Found(np.array(numbering, dtype=np.int64), tuple(numbers), undecided)

    def _places(self, filters: tuple[int, ...]) -> PlacedFilters:
        known = self._placed.get(filters)
        if known is None:
            known = self._placed[filters] = self._place(filters)
        return known

    def _place(self, filters: tuple[int, ...]) -> PlacedFilters:
        places = {bit: place for place, bit in enumerate(filters)}
        candidates = 0
        queries: dict[int, int] = {}
        for number, bit in enumerate(self.bits):
            if bit is None or bit in places:
                candidates |= 1 << number
            if bit is not None and bit in places:
                queries[places[bit]] = queries.get(places[bit], 0) | 1 << number
        return PlacedFilters(
            places=places,
            candidates=candidates,
            lives=_words_of([places[bit] for bit in self.live if bit in places], len(filters)),
            queries=tuple(sorted(queries.items())),
        )

    def _settle(
        self, placed: PlacedFilters, epoch: int, kept: frozenset[str], early: int, late: int
    ) -> Settled:
        """Determine the queries that may use rows of one plan version.

        Args:
            placed: Places of the filters' bits in the rows.
            epoch: The plan version.
            kept: Columns that can be read from the rows.
            early: Number of time bounds (``bounds_us``) that are at or before all rows.
            late: Number of time bounds that are at or before some row.
        """
        question = (tuple(placed.places), epoch, kept, early, late)
        known = self._settled.get(question)
        if known is not None:
            return known
        entitled = self._of_epoch(epoch, kept)
        queries, passing, undecided = entitled.queries, [], {}
        for group, members in entitled.held.items():
            terms = [
                (term, bisect_right(self.bounds_us, term.t_min_us))
                for term in group[1]
                if term.epoch_min <= epoch and term.columns <= kept and placed.places.keys() >= term.bits
            ]
            certain = [term for term, bound in terms if bound <= early]
            if any(not term.bits for term in certain):
                continue
            if any(early < bound <= late for _, bound in terms):
                undecided[group] = members
            elif not certain:
                queries &= ~members
            else:
                words = len(placed.lives)
                bits = [[placed.places[bit] for bit in term.bits] for term in certain]
                passing.append((members, tuple(_words_of(b, words * WORD_BITS) for b in bits)))
        settled = Settled(queries, tuple(passing), undecided)
        keep(self._settled, question, settled)
        return settled

    def _of_epoch(self, epoch: int, kept: frozenset[str]) -> EpochEntitlement:
        """Return the queries that may use rows of one plan version that have the columns ``kept``."""
        known = self._entitled.get((epoch, kept))
        if known is None:
            queries = self.all_queries
            held: dict[tuple[int, tuple[Term, ...]], int] = {}
            for number, query in enumerate(self.queries):
                if query.since_version > epoch:
                    readable = query.backfill == "state" and self.columns[number] <= kept
                    terms = self.terms.get(query.id, ()) if readable else ()
                    if terms:
                        group = (query.since_version, terms)
                        held[group] = held.get(group, 0) | 1 << number
                    else:
                        queries &= ~(1 << number)
            known = self._entitled[epoch, kept] = EpochEntitlement(queries, held)
        return known


def _words_of(places: Sequence[int], filters: int) -> tuple[int, ...]:
    """Return lineage words for ``filters`` filters, in which only the bits at ``places`` are set.

    >>> _words_of([1, 64], 65)
    (2, 1)
    """
    words = [0] * -(-filters // WORD_BITS)
    for place in places:
        words[place // WORD_BITS] |= 1 << place % WORD_BITS
    return tuple(words)


def _passes(kind: Kind, places: tuple[int, ...]) -> bool:
    """Return whether the rows of a kind pass all filters at the given bits."""
    return all(not wanted & ~answers for answers, wanted in zip(kind[1:], places, strict=True))


def side_lineage(family: FamilyPlan, side: str, terms: Mapping[int, tuple[Term, ...]]) -> SideLineage:
    """Compile the lineage of side ``a`` or ``b`` of a family."""
    first = side == "a"
    return SideLineage(
        queries=family.queries,
        bits=tuple(q.filter_a if first else q.filter_b for q in family.queries),
        terms=terms,
        columns=tuple(_column_set(q.columns_a if first else q.columns_b) for q in family.queries),
    )


# Cached, because many queries need the same few columns.
@lru_cache(maxsize=1 << 10)
def _column_set(columns: tuple[str, ...]) -> frozenset[str]:
    return frozenset(columns)


def query_set(numbers: Sequence[int]) -> int:
    """Return the set of the queries with these numbers.

    >>> bin(query_set([0, 2]))
    '0b101'
    """
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _combine(one: RowClasses, other: RowClasses) -> RowClasses:
    if one.codes is None:
        masks = tuple(one.masks[0] & mask for mask in other.masks)
        return RowClasses(other.codes, masks)
    if other.codes is None:
        return RowClasses(one.codes, tuple(mask & other.masks[0] for mask in one.masks))
    width = len(other.masks)
    codes = one.codes.astype(np.int64) * width + other.codes
    if len(one.masks) * width > MAX_CLASSES:
        present, codes = np.unique(codes, return_inverse=True)
        pairs = [divmod(int(code), width) for code in present]
        return RowClasses(codes, tuple(one.masks[i] & other.masks[j] for i, j in pairs))
    return RowClasses(codes, tuple(x & y for x in one.masks for y in other.masks))
