"""Implications between filters: every row that passes ``v > 10`` also passes ``v > 5``.

A slice keeps a row that passes the filter of any query that reaches the slice (State-Slice, VLDB 2006, §6.1,
cond'_i). If a filter implies another filter, it adds no row to the slice, and an estimate of the number of
rows must not count its rows twice.

The search is sound but not complete: an implication is found if a term of one filter and a clause of the
other filter restrict the same expressions. ``v > 10`` implies ``v >= 5``, ``v <> 3``, ``v IS NOT NULL`` and
``v > 10 OR w = 1``. The implication from ``v > w AND w > 10`` to ``v > 10``, for example, is not found.
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
        terms: Disjunctive normal form: the filter is true if at least one term is true.
        clauses: Conjunctive normal form: the filter is true if all clauses are true.
    """

    terms: tuple[Group, ...]
    clauses: tuple[Group, ...]


def normal_forms(condition: Condition) -> NormalForms:
    """Return a filter in its normal forms; if they are too long, the filter becomes one opaque expression."""
    any_of, all_of = terms(condition), clauses(condition)
    if any_of is None or all_of is None:
        whole = Atom(f"({render(condition)})", above(True, inclusive=True), "boolean")
        any_of = all_of = [{whole.subject: whole}]
    return NormalForms(tuple(known_values(term) for term in any_of), tuple(all_of))


def implies(strong: NormalForms, weak: NormalForms) -> bool:
    """Return whether every row that passes the filter ``strong`` is known to pass the filter ``weak``.

    >>> from planner.predicates.read_condition import read_condition
    >>> f, g = (normal_forms(read_condition(text)) for text in ('"v" > 10 AND "f"', '"v" >= 5'))
    >>> implies(f, g), implies(g, f)
    (True, False)
    """
    return all(term_implies_clause(term, clause) for term in strong.terms for clause in weak.clauses)
