"""Conjunctive and disjunctive normal form of conditions whose leaves are sets of values.

A clause is a condition by subject, any of which has to hold; a term one, all of which have to. Atoms of one
subject are one atom: in a clause the union of their values, in a term the intersection.

    ("v" > 1 AND "w" = 0) OR "v" < 0
    clauses   {v <> [0, 1]} and {w = 0, v < 0}           terms   {v > 1, w = 0} or {v < 0}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from planner.expressions.value_sets import ALL, NONE, VALUES, ValueSet, intersection, union
from planner.predicates.conditions import All, AnyOf, Atom, Condition, Subject

#: Atoms by subject: a clause or a term.
Group = Mapping[Subject, Atom]

#: Most atoms of groups that are merged with others.
_MAX_MERGED = 16

#: Most clauses or terms that a condition is multiplied out into; beyond, it is left as it is.
MAX_GROUPS = 64


def clauses(condition: Condition) -> list[Group] | None:
    """Return the clauses that all have to be true, None if they are too many.

    No clause is TRUE; without any, the condition is. A clause without atoms is FALSE.
    """
    found = _groups(condition, AnyOf)
    return None if found is None else neighbours_merged(found, AnyOf)


def terms(condition: Condition) -> list[Group] | None:
    """Return the terms of which one has to be true, None if they are too many.

    No term is FALSE; without any, the condition is. A term without atoms is TRUE.
    """
    found = _groups(condition, All)
    return None if found is None else neighbours_merged(found, All)


def neighbours_merged(groups: Sequence[Group], inner: type[All | AnyOf]) -> list[Group]:
    """Return clauses (or terms) in which those that differ in one subject are one.

    ``(f OR v > 1) AND (f OR v < 5)`` is ``f OR (v > 1 AND v < 5)``: one clause, {f, v in (1, 5)}.
    """
    found = _singles_merged(groups, inner)
    if len(found) > MAX_GROUPS:
        return found
    found.sort(key=_order)  # Which are merged must not depend on how they were written.
    while (alike := _neighbours(found)) is not None:
        subject, same = alike
        merged = dict(same[0])
        del merged[subject]
        outer = All if inner is AnyOf else AnyOf
        for group in _group([group[subject] for group in same], outer):
            merged |= group
        found = _singles_merged([*(group for group in found if group not in same), merged], inner)
        found.sort(key=_order)
    return found


def _singles_merged(groups: Sequence[Group], inner: type[All | AnyOf]) -> list[Group]:
    """Merge groups of a single atom: there may be thousands."""
    outer = All if inner is AnyOf else AnyOf
    singles = [atom for group in groups if len(group) == 1 for atom in group.values()]
    found: list[Group] = [group for group in groups if len(group) != 1]
    for same in by_subject(singles).values():
        merged = _group(same, outer)
        if not merged:  # v < 1 AND v > 2: no row at all. In terms, v <= 1 OR v > 1 OR v IS NULL.
            return [{}]
        found += merged
    return found


def _order(group: Group) -> list[tuple[str, str, str]]:
    return sorted((atom.text, atom.other, repr(atom.values)) for atom in group.values())


def _neighbours(groups: Sequence[Group]) -> tuple[Subject, list[Group]] | None:
    """Return the first groups that differ in one subject, and the subject."""
    seen: dict[tuple[Subject, frozenset[Atom]], list[Group]] = {}
    for group in groups:
        for subject, atom in group.items() if len(group) <= _MAX_MERGED else ():
            rest = frozenset(group.values()) - {atom}
            seen.setdefault((subject, rest), []).append(group)
    return next(((subject, same) for (subject, _), same in seen.items() if len(same) > 1), None)


def _groups(condition: Condition, inner: type[All | AnyOf]) -> list[Group] | None:
    """Return groups whose atoms ``inner`` connects; the other connector connects the groups."""
    if isinstance(condition, Atom):
        return _group([condition], inner)
    if not isinstance(condition, inner):
        found: list[Group] = []
        for part in condition.parts:
            groups = _groups(part, inner)
            if groups is None:
                return None
            found += groups
        return found
    # Atoms come first and at once: a chain of a thousand comparisons is one atom.
    product = _group([part for part in condition.parts if isinstance(part, Atom)], inner)
    for part in condition.parts:
        if isinstance(part, Atom):
            continue
        groups = _groups(part, inner)
        if groups is None or len(product) * len(groups) > MAX_GROUPS:
            return None
        product = [
            group
            for left in product
            for right in groups
            for group in _group([*left.values(), *right.values()], inner)
        ]
    return product


def _group(atoms: Iterable[Atom], inner: type[All | AnyOf]) -> list[Group]:
    """Connect atoms to one group, or to none if that is true (a clause) or false (a term)."""
    combine, nothing, everything = (union, NONE, ALL) if inner is AnyOf else (intersection, ALL, NONE)
    found: dict[Subject, Atom] = {}
    for subject, same in by_subject(atoms).items():
        atom = same[0] if len(same) == 1 else _merged(same, combine([each.values for each in same]))
        if atom.values == everything:
            return []
        if atom.values != nothing:
            found[subject] = atom
    return [found]


def by_subject(atoms: Iterable[Atom]) -> dict[Subject, list[Atom]]:
    """Return atoms by subject."""
    found: dict[Subject, list[Atom]] = {}
    for atom in atoms:
        found.setdefault(atom.subject, []).append(atom)
    return found


def _merged(atoms: list[Atom], values: ValueSet) -> Atom:
    return replace(next((atom for atom in atoms if atom.domain), atoms[0]), values=values)


def clause_implies(strong: Group, weak: Group) -> bool:
    """Tell whether each atom of one clause implies one of the other."""
    return all(
        (other := weak.get(subject)) is not None and atom.values <= other.values
        for subject, atom in strong.items()
    )


def term_implies(strong: Group, weak: Group) -> bool:
    """Tell whether each atom of the weaker term is implied by one of the stronger."""
    return all(
        (other := strong.get(subject)) is not None and other.values <= atom.values
        for subject, atom in weak.items()
    )


def term_implies_clause(term: Group, clause: Group) -> bool:
    """Tell whether an atom of the term implies one of the clause."""
    for subject, atom in clause.items():
        other = term.get(subject)
        if other is not None and other.values <= atom.values:
            return True
    return False


def known_values(term: Group) -> Group:
    """Return a term with what it says about NULL: ``v < w`` is only true of two values."""
    found = dict(term)
    for atom in term.values():
        if atom.domain == "order":
            for text in (atom.text, atom.other):
                told = found.get((text, "", False), Atom(text, ALL))
                found[told.subject] = replace(told, values=told.values & VALUES)
    return found
