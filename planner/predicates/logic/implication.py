"""Filters that imply others: every row that passes ``v > 10`` passes ``v > 5``.

A slice keeps a row that passes the filter of any query which reaches it (State-Slice, VLDB 2006, §6.1,
cond'_i). A filter that implies another one adds no row to the slice, and the estimate of the rows that pass
must not count its rows twice.

Sound, not complete: an implication is found if a term of one filter and a clause of the other restrict the
same expressions. ``v > 10`` implies ``v >= 5``, ``v <> 3``, ``v IS NOT NULL`` and ``v > 10 OR w = 1``. For
example, the implication from ``v > w AND w > 10`` to ``v > 10`` is not found.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.predicates.conditions import Atom, Condition
from planner.predicates.logic.condition_text import render
from planner.predicates.logic.normal_form import Group, clauses, known_values, term_implies_clause, terms
from planner.predicates.value_sets import above


@dataclass(frozen=True, slots=True)
class NormalForms:
    """A filter in both normal forms.

    Attributes:
        terms: The filter is true if any of them is.
        clauses: All of them are true for each row that passes.
    """

    terms: tuple[Group, ...]
    clauses: tuple[Group, ...]


def normal_forms(condition: Condition) -> NormalForms:
    """Return a filter in its normal forms; a filter whose forms are too long is one opaque expression."""
    any_of, all_of = terms(condition), clauses(condition)
    if any_of is None or all_of is None:
        whole = Atom(f"({render(condition)})", above(True, inclusive=True), "boolean")
        any_of = all_of = [{whole.subject: whole}]
    return NormalForms(tuple(known_values(term) for term in any_of), tuple(all_of))


def implies(strong: NormalForms, weak: NormalForms) -> bool:
    """Return whether every row of a stream that passes one filter is known to pass the other one.

    >>> from planner.predicates.read_condition import read_condition
    >>> f, g = (normal_forms(read_condition(text)) for text in ('"v" > 10 AND "f"', '"v" >= 5'))
    >>> implies(f, g), implies(g, f)
    (True, False)
    """
    return all(term_implies_clause(term, clause) for term in strong.terms for clause in weak.clauses)
