"""Lineage: which queries of a family a row may serve.

PACK evaluates every distinct filter once per row and stores one bit each; where a filter's bit stands is said
by the segment (``operators.segment``). Queries of a family are numbered by their place in the plan; a set of
queries is an int with a bit per query. Rows fall into few *classes*, one
per set of queries that they can serve, so that every decision about queries is taken per class and not per
row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from catalog.values.plan import FamilyPlan, PlannedQuery
from operators.entitlement import Term, rows_of_terms
from operators.keys import Bools, Words
from operators.segment import WORD_BITS, Segment

Codes = np.ndarray[tuple[int], np.dtype[np.int64]]

#: Lineage words whose live bits span at most so many bits are classified by table look-up, not by sorting.
DIRECT_BITS = 16
#: Largest product of class counts kept without renumbering the classes.
MAX_CLASSES = 1 << 16
#: Beside the numbers of words in ``Segment.alike``: rows by their plan version.
EPOCHS = -1


@dataclass(frozen=True, slots=True, eq=False)
class RowClasses:
    """Classes of a segment's rows.

    Attributes:
        codes: int64[n], class of each row; None when all rows are of class 0.
        masks: Queries that the rows of each class may serve.
    """

    codes: Codes | None
    masks: tuple[int, ...]

    def serving(self, rows: int, queries: int, none_of: int = 0) -> Bools | None:
        """Tell which rows serve one of ``queries``: bool[rows], or None when all of them do.

        Args:
            rows: Number of rows.
            queries: Set of queries.
            none_of: Set of queries; rows that serve one of these are left out.
        """
        wanted = [mask & queries != 0 and mask & none_of == 0 for mask in self.masks]
        if all(wanted):
            return None
        if self.codes is None:
            return np.zeros(rows, dtype=np.bool_)
        return np.array(wanted, dtype=np.bool_)[self.codes]

    def select(self, keep: Bools) -> RowClasses:
        """Return the classes of the rows where ``keep`` holds."""
        return self if self.codes is None else RowClasses(self.codes[keep], self.masks)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedWord:
    """The filters in force that stand in one lineage word of some segments.

    Attributes:
        number: Number of the word.
        live: Their places in the word, as bits.
        queries: The queries of each, by place.
        all_queries: The set of all queries.
    """

    number: int
    live: int
    queries: tuple[tuple[int, int], ...]
    all_queries: int
    _masks: dict[int, int] = field(default_factory=dict)
    # Most segments have the same values: a version's classes are found for all of them at once.
    _narrowed: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = field(default_factory=dict)

    def classify(self, segment: Segment, within: int) -> RowClasses:
        """Find the classes of a segment's rows by this word, among the queries ``within``."""
        # Which rows are alike does not depend on the queries, so it outlives the plan version.
        live, codes, values = segment.alike.get(self.number, (0, None, ()))
        if live != self.live:
            codes, values = _alike(segment.lineage_word(self.number), self.live)
            segment.alike[self.number] = (self.live, codes, values)
        masks = self._narrowed.get((values, within))
        if masks is None:
            masks = self._narrowed[values, within] = tuple(self._mask(value) & within for value in values)
        return RowClasses(codes, masks)

    def _mask(self, value: int) -> int:
        known = self._masks.get(value)
        if known is None:
            known = self.all_queries
            for place, queries in self.queries:
                if not value >> place & 1:
                    known &= ~queries
            self._masks[value] = known
        return known


@dataclass(frozen=True, slots=True, eq=False)
class PlacedFilters:
    """Where the filters in force stand in segments that know the same filters.

    Attributes:
        candidates: Queries without a filter, or with one that these rows know.
        words: Words with a filter in force.
    """

    candidates: int
    words: tuple[PlacedWord, ...]


@dataclass(frozen=True, slots=True, eq=False)
class EpochEntitlement:
    """What rows that were processed under one plan version may serve.

    Attributes:
        queries: Queries that came no later, and later ones that may use some of these rows.
        held: The latter: sets of queries by their activation and by the terms that hold their rows.
    """

    queries: int
    held: Mapping[tuple[int, tuple[Term, ...]], int]


@dataclass(frozen=True, slots=True, eq=False)
class SideLineage:
    """Lineage of one side under one plan version.

    Attributes:
        queries: The family's queries, in plan order.
        bits: Each query's filter bit on this side, None without a filter.
        terms: What each ``backfill: state`` query holds from before its activation, by query id.
        columns: Each query's needed columns.
        live: Lineage bits that this version may ask rows about, also those of who held them before. What a
            later version asks of rows that rest now follows from these: bits of other filters are dead.
        newest: Plan version that activated the youngest query.
    """

    queries: tuple[PlannedQuery, ...]
    bits: tuple[int | None, ...]
    terms: Mapping[int, tuple[Term, ...]]
    columns: tuple[frozenset[str], ...]
    live: frozenset[int] = field(init=False)
    newest: int = field(init=False)
    # One entry per set of filters that resting rows know: at most one per plan version they came under.
    _placed: dict[tuple[int, ...], PlacedFilters] = field(default_factory=dict)
    _entitled: dict[tuple[int, frozenset[str]], EpochEntitlement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        held = {bit for terms in self.terms.values() for term in terms for bit in term.bits}
        live = frozenset(held.union(bit for bit in self.bits if bit is not None))
        object.__setattr__(self, "live", live)
        object.__setattr__(self, "newest", max((query.since_version for query in self.queries), default=0))

    @property
    def all_queries(self) -> int:
        """The set of all queries."""
        return (1 << len(self.queries)) - 1

    def classify(self, segment: Segment, kept: frozenset[str]) -> RowClasses:
        """Find the classes of a segment's rows.

        Args:
            segment: n rows.
            kept: Columns that can be read of it.

        Returns:
            Classes; at least one even without rows.
        """
        placed = self._places(segment.filters)
        parts = [] if self.newest <= segment.epoch_min else self._by_epoch(segment, kept)
        within = placed.candidates
        for part in parts:
            if part.codes is None:
                within &= part.masks[0]
        words = [word.classify(segment, within) for word in placed.words]
        classes = RowClasses(None, (within,))
        for part in (*words, *(part for part in parts if part.codes is not None)):
            classes = _combine(classes, part)
        return _distinct(classes)

    def _places(self, filters: tuple[int, ...]) -> PlacedFilters:
        known = self._placed.get(filters)
        if known is None:
            known = self._placed[filters] = self._place(filters)
        return known

    def _place(self, filters: tuple[int, ...]) -> PlacedFilters:
        places = {bit: place for place, bit in enumerate(filters)}
        candidates = 0
        words: dict[int, dict[int, int]] = {}
        for number, bit in enumerate(self.bits):
            if bit is None or bit in places:
                candidates |= 1 << number
            if bit is not None and bit in places:
                word, place = divmod(places[bit], WORD_BITS)
                queries = words.setdefault(word, {})
                queries[place] = queries.get(place, 0) | 1 << number
        return PlacedFilters(
            candidates,
            tuple(
                PlacedWord(word, query_set(tuple(queries)), tuple(queries.items()), self.all_queries)
                for word, queries in sorted(words.items())
            ),
        )

    def _by_epoch(self, segment: Segment, kept: frozenset[str]) -> list[RowClasses]:
        """Classes by plan version: rows from before a query's activation serve it only if they were held."""
        codes, epochs = _epochs(segment)
        entitled = [self._of_epoch(epoch, kept) for epoch in epochs]
        parts = [RowClasses(codes, tuple(one.queries for one in entitled))]
        # The first is the oldest: who came after a later one came after it, too.
        for (since, terms), members in entitled[0].held.items():
            serves = rows_of_terms(segment, terms, kept)
            if codes is not None:
                serves |= (np.array(epochs) >= since)[codes]
            without = self.all_queries & ~members
            if not serves.any():
                parts.append(RowClasses(None, (without,)))
            elif not serves.all():
                parts.append(RowClasses(serves.astype(np.int64), (without, self.all_queries)))
        return parts

    def _of_epoch(self, epoch: int, kept: frozenset[str]) -> EpochEntitlement:
        """Return what rows of one plan version, of which these columns are kept, may serve."""
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


def _epochs(segment: Segment) -> tuple[Codes | None, tuple[int, ...]]:
    """Number the plan versions under which rows were processed, ascending; None for the codes of one."""
    if segment.epoch is not None:
        return None, (segment.epoch,)
    if EPOCHS not in segment.alike:
        distinct, inverse = np.unique(segment.epochs(), return_inverse=True)
        codes = inverse.astype(np.int64) if len(distinct) > 1 else None
        segment.alike[EPOCHS] = (0, codes, tuple(int(epoch) for epoch in distinct) or (0,))
    _, codes, epochs = segment.alike[EPOCHS]
    return codes, epochs


def _alike(values: Words, live: int) -> tuple[Codes | None, tuple[int, ...]]:
    """Number the values that rows have in the live bits of a word; None for the codes if it is one value."""
    shift = (live & -live).bit_length() - 1
    if live >> shift < 1 << DIRECT_BITS:
        codes = ((values & np.uint64(live)) >> np.uint64(shift)).astype(np.int64)
        present = np.flatnonzero(np.bincount(codes, minlength=1))
        numbering = np.zeros(int(present[-1]) + 1 if len(present) else 1, dtype=np.int64)
        numbering[present] = np.arange(len(present))
        found = tuple(int(value) << shift for value in present)
        codes = numbering[codes]
    else:
        distinct, inverse = np.unique(values & np.uint64(live), return_inverse=True)
        found = tuple(int(value) for value in distinct)
        codes = inverse.astype(np.int64)
    return codes if len(found) > 1 else None, found or (0,)


def side_lineage(family: FamilyPlan, side: str, terms: Mapping[int, tuple[Term, ...]]) -> SideLineage:
    """Compile the lineage of side ``a`` or ``b`` of a family."""
    first = side == "a"
    # Queries need the same few columns.
    sets = {columns: frozenset(columns) for q in family.queries for columns in (q.columns_a, q.columns_b)}
    return SideLineage(
        queries=family.queries,
        bits=tuple(q.filter_a if first else q.filter_b for q in family.queries),
        terms=terms,
        columns=tuple(sets[q.columns_a if first else q.columns_b] for q in family.queries),
    )


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
    codes = one.codes * width + other.codes
    if len(one.masks) * width > MAX_CLASSES:
        present, codes = np.unique(codes, return_inverse=True)
        pairs = [divmod(int(code), width) for code in present]
        return RowClasses(codes, tuple(one.masks[i] & other.masks[j] for i, j in pairs))
    return RowClasses(codes, tuple(x & y for x in one.masks for y in other.masks))


def _distinct(classes: RowClasses) -> RowClasses:
    """Number classes of the same queries as one."""
    numbering: dict[int, int] = {}
    numbers = [numbering.setdefault(mask, len(numbering)) for mask in classes.masks]
    if classes.codes is None or len(numbering) == len(numbers):
        return classes
    codes = np.array(numbers, dtype=np.int64)[classes.codes] if len(numbering) > 1 else None
    return RowClasses(codes, tuple(numbering))
