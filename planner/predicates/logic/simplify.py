"""Simplification of conditions: redundant parts of a filter are left out.

    v > 10 AND v > 5                                   v > 10
    v > 10 AND (v > 5 OR w = 1)                        v > 10
    v > 10 AND (v < 5 OR w = 1)                        v > 10 AND w = 1
    (v < 1 AND v <> 0) OR (w = 1 AND v <> 0)           v <> 0 AND (v < 1 OR w = 1)
    (f OR v > 1) AND (v <= 1 OR w = 1) AND (f OR w = 1)    (f OR v > 1) AND (v <= 1 OR w = 1)
    (v > 1 AND w = 1) OR (v > 1 AND w = 2)             v > 1 AND w IN (1, 2)
    v < 1 OR v >= 1                                    v IS NOT NULL
    v > 2 AND v < 1                                    FALSE

The text is the conjunctive or the disjunctive normal form, whichever is shorter. Both forms are unique as
long as the expressions are independent of each other, so the text does not depend on how the filter was
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.predicates.conditions import All, AnyOf, Atom, Condition, Subject
from planner.predicates.logic.condition_text import render, text_of, written
from planner.predicates.logic.normal_form import (
    Group,
    clause_follows,
    clauses,
    distinct,
    known_values,
    neighbours_merged,
    strongest_clauses,
    term_implies,
    terms,
)
from planner.predicates.value_sets import NONE, VALUES

#: Maximum number of passes of ``simplify``. One pass is enough for most conditions. A second pass is needed
#: if the first makes new conditions: ``v < w OR v >= w`` becomes ``v IS NOT NULL AND w IS NOT NULL``.
_PASSES = 4


def simplest(condition: Condition) -> tuple[Condition, str]:
    """Return the simplified condition and its text; passes are repeated until nothing changes.

    >>> from planner.predicates.read_condition import read_condition
    >>> simplest(read_condition('"v" >= 1 AND "v" <= 1'))[1]
    '"v" = 1'
    """
    text = render(condition)
    for _ in range(_PASSES):
        before, condition = text, simplify(condition)
        if (text := text_of(condition)) == before:
            break
    return condition, text


def simplify(condition: Condition) -> Condition:
    """Return the simplest known condition that is TRUE for the same rows.

    Args:
        condition: Condition of a whole filter: a row passes only if it is TRUE.

    Returns:
        The condition in the form that ``written`` returns. A condition whose normal form is too long is not
        simplified.

    >>> from planner.predicates.read_condition import read_condition
    >>> text_of(simplify(read_condition('"v" >= 1 AND ("w" = 2 OR "v" <= 1) AND "v" <= 1')))
    '"v" = 1'
    """
    any_of, all_of = terms(condition), clauses(condition)
    if all_of is not None:
        condition = _all(_reduced(strongest_clauses(all_of)))
        any_of = terms(condition)
    if any_of is None:
        return written(condition)
    other = written(AnyOf(tuple(All(tuple(term.values())) for term in distinct(any_of, term_implies))))
    if all_of is None or len(any_of) == 1:
        return other
    return min(written(condition), other, key=_size)


def _size(condition: Condition) -> tuple[int, str]:
    text = text_of(condition)
    return len(text), text


def _all(all_of: Sequence[Group]) -> Condition:
    return All(tuple(AnyOf(tuple(clause.values())) for clause in all_of))


def _reduced(all_of: list[Group]) -> list[Group]:
    """Return clauses that have the same meaning, reduced with the help of clauses of one atom.

    A clause of one atom is true for every row that passes the filter. So clauses that follow from it are
    dropped, and atoms that contradict it are removed from other clauses, which may leave further clauses of
    one atom. The other clauses get the shortest form that has the same meaning for all values allowed by
    the clauses of one atom.
    """
    while True:
        all_of = neighbours_merged(all_of, AnyOf)
        alone = {subject: atom for clause in all_of if len(clause) == 1 for subject, atom in clause.items()}
        known = known_values(alone)
        compared = {text for atom in alone.values() if atom.other for text in (atom.text, atom.other)}
        shorter: list[Group] = []
        for clause in all_of:
            if len(clause) == 1:
                (atom,) = clause.values()
                left = None if atom.values == VALUES and atom.text in compared and not atom.other else clause
            else:
                left = _possible(clause, known)
            if left is not None:
                shorter.append(left)
        if shorter == all_of:
            several = [clause for clause in all_of if len(clause) != 1]
            return [
                *(clause for clause in all_of if len(clause) == 1),
                *distinct(several, clause_follows),
            ]
        all_of = shorter


def _possible(clause: Group, known: Group) -> Group | None:
    """Return a clause without the atoms that cannot be true, or None if the clause is always true."""
    left: dict[Subject, Atom] = {}
    for subject, atom in clause.items():
        told = known.get(subject)
        if told is not None and told.values <= atom.values:
            return None
        if told is None:
            left[subject] = atom
        elif told.values & atom.values != NONE:
            left[subject] = replace(atom, values=atom.values.fewest_cuts_within(told.values))
    return left
