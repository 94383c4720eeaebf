"""Filters that imply others: every row that passes ``v > 10`` passes ``v > 5``.

A slice keeps a row that passes the filter of any query which reaches it (State-Slice, VLDB 2006, §6.1,
cond'_i); a filter that implies another one adds no row to that, and the estimate of how many rows pass must
not count it twice.

Sound, not complete: what is found is what a term of one filter says about the same expressions as a clause
of the other. ``v > 10`` implies ``v >= 5``, ``v <> 3``, ``v IS NOT NULL`` and ``v > 10 OR w = 1``; that
``v > w AND w > 10`` implies ``v > 10`` is not found.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from planner.predicates.conditions import Atom, Subject
from planner.predicates.normal_form import Group, clauses, known_values, term_implies_clause, terms
from planner.predicates.read_condition import read_condition
from planner.predicates.value_sets import Value, above

#: Filters read last are kept; a plan asks for the same ones slice after slice, at most 64 of a side.
_CACHED = 1_000

#: Most filters that a new one is compared with: many that overlap on one expression are all kept.
_MAX_COMPARED = 64

#: What the rows of a filter have in common: an expression, and its value if it is one alone.
_Sign = tuple[Subject, Value | None]


@dataclass(frozen=True, slots=True)
class _ParsedFilter:
    """A filter as what makes it true (any term) and what it says (all clauses), with signs to find it by."""

    terms: tuple[Group, ...]
    clauses: tuple[Group, ...]
    has: frozenset[_Sign | None]
    needs: frozenset[_Sign | None]


def implies(f: str, g: str) -> bool:
    """Return whether every row that passes one filter is known to pass the other.

    Args:
        f: Canonical predicate.
        g: Another one over columns of the same stream.

    Returns:
        True if so; False if not, or if it would take more than a look at their parts to see it.

    >>> implies('"v" > 10 AND "f"', '"v" >= 5'), implies('"v" >= 5', '"v" > 10')
    (True, False)
    """
    return f == g or _implies(_read(f), _read(g))


def weakest(filters: Iterable[str]) -> tuple[str, ...]:
    """Return the filters without those that imply another one: together they let the same rows pass.

    Args:
        filters: Canonical predicates of one stream.

    Returns:
        Those that imply no other, in the order given; of two that imply each other, the first.

    >>> weakest(['"v" > 10', '"w" = 1', '"v" > 5', '"v" > 7'])
    ('"w" = 1', '"v" > 5')
    """
    found = _Weakest()
    for sql in filters:
        found.add(sql)
    return found.filters


class _Weakest:
    """The weakest of filters that come one after another, as slices do from the last to the first.

    A filter is compared with those alone that are about the same expression, and about the same value where
    both name one: a thousand filters ``k = 1``, ``k = 2``, ... take no million comparisons.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _ParsedFilter] = {}
        #: Texts kept, by what every row of another filter must have so that it implies them.
        self._weak: dict[_Sign | None, dict[str, None]] = {}
        #: Texts kept, by what their own rows have.
        self._strong: dict[_Sign | None, dict[str, None]] = {}

    def add(self, sql: str) -> None:
        """Take a filter in, and leave out what implies it."""
        if sql in self._kept:
            return
        new = _read(sql)
        if any(_implies(new, self._kept[text]) for text in self._found(self._weak, new.has)):
            return
        for text in {t for t in self._found(self._strong, new.needs) if _implies(self._kept[t], new)}:
            old = self._kept.pop(text)
            for sign in old.needs:
                del self._weak[sign][text]
            for sign in old.has:
                del self._strong[sign][text]
        self._kept[sql] = new
        for sign in new.needs:
            self._weak.setdefault(sign, {})[sql] = None
        for sign in new.has:
            self._strong.setdefault(sign, {})[sql] = None

    def _found(
        self, index: dict[_Sign | None, dict[str, None]], signs: frozenset[_Sign | None]
    ) -> Iterable[str]:
        if None in signs:
            return list(self._kept)
        texts = (text for sign in [*sorted(signs, key=str), None] for text in index.get(sign, ()))
        return list(islice(texts, _MAX_COMPARED))

    @property
    def filters(self) -> tuple[str, ...]:
        """The weakest so far, in the order in which they came."""
        return tuple(self._kept)


@functools.lru_cache(maxsize=_CACHED)
def _read(sql: str) -> _ParsedFilter:
    """Read a filter; one that multiplies out into too much is not looked into."""
    condition = read_condition(sql)
    any_of, all_of = terms(condition), clauses(condition)
    if any_of is None or all_of is None:
        whole = Atom(f"({sql})", above(True, inclusive=True), "boolean")
        any_of = all_of = [{whole.subject: whole}]
    any_of = [known_values(term) for term in any_of]
    return _ParsedFilter(tuple(any_of), tuple(all_of), _has(any_of), _needs(all_of))


def _implies(strong: _ParsedFilter, weak: _ParsedFilter) -> bool:
    return all(term_implies_clause(term, clause) for term in strong.terms for clause in weak.clauses)


def _has(any_of: Sequence[Group]) -> frozenset[_Sign | None]:
    """Return what rows of a term are about: an expression, by its value or by any, or anything if FALSE."""
    if not any_of:
        return frozenset({None})
    signs: set[_Sign | None] = set()
    for subject, atom in any_of[0].items():
        signs |= {(subject, atom.values.point), (subject, None)}
    return frozenset(signs)


def _needs(all_of: Sequence[Group]) -> frozenset[_Sign | None]:
    """Return what rows must be about to pass a clause, the one that says most; anything if TRUE."""
    if not all_of:
        return frozenset({None})
    said = [[(subject, atom.values.point) for subject, atom in clause.items()] for clause in all_of]
    open_values = [sum(value is None for _, value in signs) for signs in said]
    return frozenset(said[min(range(len(said)), key=lambda i: (open_values[i], len(said[i])))])
