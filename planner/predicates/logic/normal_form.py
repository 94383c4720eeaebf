"""Conjunctive and disjunctive normal form of conditions whose leaves are sets of values.

Clauses and terms contain one atom for each subject (compared expression). In a clause at least one atom must
be true, in a term all atoms. Several atoms of one subject are combined into one: in a clause by the union of
their values, in a term by the intersection.

    ("v" > 1 AND "w" = 0) OR "v" < 0
    clauses   {v <> [0, 1]} and {w = 0, v < 0}           terms   {v > 1, w = 0} or {v < 0}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from planner.predicates.conditions import All, AnyOf, Atom, Condition, Subject
from planner.predicates.value_sets import ALL, NONE, VALUES, ValueSet, intersection, union

#: Atoms by subject: a clause or a term.
Group = Mapping[Subject, Atom]

#: Maximum number of atoms in a group that is merged with other groups.
_MAX_MERGED = 16

#: Maximum number of clauses or terms in a normal form; a condition with more of them is not normalized.
MAX_GROUPS = 64

#: Maximum number of clauses or terms with several atoms that are compared with each other, which takes about
#: 0.1 s. A condition that is written with more clauses or terms is not normalized, either.
MAX_COMPARED = 256

#: Maximum number of consequences of clauses that are examined, which takes about 20 ms.
_MAX_CONSEQUENCES = 300


def clauses(condition: Condition) -> list[Group] | None:
    """Return the clauses, all of which have to be true, or None if there are too many.

    Clauses that are TRUE are dropped. A condition without clauses is TRUE; a clause without atoms is FALSE.

    >>> from planner.predicates.logic.condition_text import render
    >>> from planner.predicates.read_condition import read_condition
    >>> found = clauses(read_condition('("v" > 1 AND "w" = 0) OR "v" < 0'))
    >>> [render(AnyOf(tuple(clause.values()))) for clause in found]
    ['"v" < 0 OR "v" > 1', '"v" < 0 OR "w" = 0']
    """
    return _compared(condition, AnyOf)


def terms(condition: Condition) -> list[Group] | None:
    """Return the terms, at least one of which has to be true, or None if there are too many.

    Terms that are FALSE are dropped. A condition without terms is FALSE; a term without atoms is TRUE.

    >>> from planner.predicates.logic.condition_text import render
    >>> from planner.predicates.read_condition import read_condition
    >>> found = terms(read_condition('"v" > 1 AND ("w" = 0 OR "v" < 3)'))
    >>> [render(All(tuple(term.values()))) for term in found]
    ['"v" < 3 AND "v" > 1', '"v" > 1 AND "w" = 0']
    """
    return _compared(condition, All)


def _compared(condition: Condition, inner: type[All | AnyOf]) -> list[Group] | None:
    """Return the merged clauses or terms of a condition, or None if there are too many to compare."""
    found = _groups(condition, inner)
    merged = None if found is None else neighbours_merged(found, inner)
    return None if merged is None or len(merged) > MAX_COMPARED else merged


def neighbours_merged(groups: Sequence[Group], inner: type[All | AnyOf]) -> list[Group]:
    """Merge clauses (or terms) that differ in only one subject.

    ``(f OR v > 1) AND (f OR v < 5)`` is ``f OR (v > 1 AND v < 5)``: one clause, {f, v in (1, 5)}.

    >>> from planner.predicates.logic.condition_text import render
    >>> from planner.predicates.read_condition import read_condition
    >>> (clause,) = clauses(read_condition('("f" OR "v" > 1) AND ("f" OR "v" < 5)'))
    >>> [render(atom) for atom in clause.values()]
    ['"f"', '"v" < 5 AND "v" > 1']
    """
    found = _singles_merged(groups, inner)
    if len(found) > MAX_GROUPS:
        return found
    found.sort(key=_order)  # The choice of groups to merge must not depend on how they were written.
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
    """Merge all groups of one atom at once, because there may be thousands of them."""
    outer = All if inner is AnyOf else AnyOf
    singles = [atom for group in groups if len(group) == 1 for atom in group.values()]
    found: list[Group] = [group for group in groups if len(group) != 1]
    for same in by_subject(singles).values():
        merged = _group(same, outer)
        if not merged:  # clauses v < 1 AND v > 2, or terms v <= 1 OR v > 1 OR v IS NULL
            return [{}]
        found += merged
    return found


def _order(group: Group) -> list[tuple[str, str, str]]:
    return sorted((atom.text, atom.other, repr(atom.values)) for atom in group.values())


def _neighbours(groups: Sequence[Group]) -> tuple[Subject, list[Group]] | None:
    """Return the first groups that differ only in the values of one subject, and this subject."""
    seen: dict[tuple[Subject, frozenset[Atom]], list[Group]] = {}
    for group in groups:
        for subject, atom in group.items() if len(group) <= _MAX_MERGED else ():
            rest = frozenset(group.values()) - {atom}
            seen.setdefault((subject, rest), []).append(group)
    return next(((subject, same) for (subject, _), same in seen.items() if len(same) > 1), None)


def _groups(condition: Condition, inner: type[All | AnyOf]) -> list[Group] | None:
    """Return groups: ``inner`` (AND or OR) connects the atoms of a group, the other one connects groups."""
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
    # All atoms are combined first, because a chain of a thousand comparisons may be one atom.
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
        product = distinct(product, clause_follows if inner is AnyOf else term_implies)
    return product


def _group(atoms: Iterable[Atom], inner: type[All | AnyOf]) -> list[Group]:
    """Return one group of the combined atoms, or no group if the clause is always true or the term never."""
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
    """Return the atoms of each subject."""
    found: dict[Subject, list[Atom]] = {}
    for atom in atoms:
        found.setdefault(atom.subject, []).append(atom)
    return found


def _merged(atoms: list[Atom], values: ValueSet) -> Atom:
    return replace(next((atom for atom in atoms if atom.domain), atoms[0]), values=values)


def clause_implies(strong: Group, weak: Group) -> bool:
    """Return whether each atom of one clause implies an atom of the other."""
    return all(
        (other := weak.get(subject)) is not None and atom.values <= other.values
        for subject, atom in strong.items()
    )


def clause_follows(weak: Group, strong: Group) -> bool:
    """Return whether the clause ``weak`` follows from the clause ``strong``."""
    return clause_implies(strong, weak)


def term_implies(strong: Group, weak: Group) -> bool:
    """Return whether each atom of the weaker term is implied by an atom of the stronger one."""
    return all(
        (other := strong.get(subject)) is not None and other.values <= atom.values
        for subject, atom in weak.items()
    )


def term_implies_clause(term: Group, clause: Group) -> bool:
    """Return whether an atom of the term implies an atom of the clause."""
    for subject, atom in clause.items():
        other = term.get(subject)
        if other is not None and other.values <= atom.values:
            return True
    return False


def strongest_clauses(all_of: Sequence[Group]) -> list[Group]:
    """Return the strongest clauses that follow from the given clauses, without redundant clauses.

    The clauses depend only on the meaning of the condition, not on how it was written. In this example, the
    third clause is left out. It follows from the first two clauses, because ``i`` is either 0 or not:

        "f" OR "i" <> 0        "i" = 0 OR "w" > 1        "f" OR "w" > 1

    Source: consensus method (Quine, 1955), with sets of values instead of signs of variables. If more than
    ``_MAX_CONSEQUENCES`` consequences must be examined, the given clauses are returned.

    >>> from planner.predicates.logic.condition_text import render
    >>> from planner.predicates.read_condition import read_condition
    >>> given = clauses(read_condition('("f" OR "i" <> 0) AND ("i" = 0 OR "w" > 1) AND ("f" OR "w" > 1)'))
    >>> [render(AnyOf(tuple(clause.values()))) for clause in strongest_clauses(given)]
    ['"i" = 0 OR "w" > 1', '"f" OR "i" <> 0']
    """
    given = distinct(sorted(all_of, key=_order), clause_follows)
    if all(len(clause) == 1 for clause in given):
        return given
    found: list[Group] = []
    waiting = sorted(given, key=len, reverse=True)
    looked_at = 0
    while waiting:
        new = waiting.pop()  # The shortest clause makes many others redundant.
        if any(clause_implies(clause, new) for clause in found):
            continue
        found = [clause for clause in found if not clause_implies(new, clause)]
        following = [each for clause in found for each in _consequences(clause, new)]
        looked_at += len(following)
        if looked_at > _MAX_CONSEQUENCES:
            return given
        found.append(new)
        waiting = sorted([*waiting, *following], key=len, reverse=True)
    # The longest first; the order does not depend on how the clauses were written.
    for clause in sorted(found, key=lambda clause: (-len(clause), _order(clause))):
        others = [other for other in found if other is not clause]
        if _contradicts(others, clause):
            found = others
    return found


def _consequences(left: Group, right: Group) -> list[Group]:
    """Return the consequences of two clauses: for one subject, both atoms are true, or another atom is."""
    found: list[Group] = []
    for subject in left:
        if subject not in right:
            continue
        both = _merged([left[subject], right[subject]], left[subject].values & right[subject].values)
        rest = [atom for group in (left, right) for atom in group.values() if atom.subject != subject]
        found += _group([both, *rest], AnyOf)
    return found


def _contradicts(all_of: Sequence[Group], clause: Group) -> bool:
    """Return whether clauses imply ``clause``: if it were false, some subject would have no possible value.

    Unit propagation only: an implication that needs a case distinction is missed.
    """
    left = {subject: atom.values.complement for subject, atom in clause.items()}
    changed = True
    while changed:
        changed = False
        for other in all_of:
            possible = [a for a in other.values() if left.get(a.subject, ALL) & a.values != NONE]
            if not possible:
                return True
            if len(possible) == 1:
                (atom,) = possible
                before = left.get(atom.subject, ALL)
                left[atom.subject] = before & atom.values
                changed = changed or left[atom.subject] != before
    return False


def distinct(groups: Sequence[Group], adds_nothing: Callable[[Group, Group], bool]) -> list[Group]:
    """Return the groups without each group that another group makes redundant.

    >>> from planner.predicates.logic.condition_text import render
    >>> from planner.predicates.read_condition import read_condition
    >>> groups = [clauses(read_condition(text))[0] for text in ('"v" > 1 OR "w" = 0', '"v" > 5')]
    >>> [render(AnyOf(tuple(clause.values()))) for clause in distinct(groups, clause_follows)]
    ['"v" > 5']
    """
    kept: list[Group] = []
    for group in groups:
        if any(adds_nothing(group, other) for other in kept):
            continue
        kept = [other for other in kept if not adds_nothing(other, group)]
        kept.append(group)
    return kept


def known_values(term: Group) -> Group:
    """Return a term with the atoms IS NOT NULL that it implies: if ``v < w`` is true, neither value is NULL.

    >>> from planner.predicates.logic.condition_text import render
    >>> from planner.predicates.read_condition import read_condition
    >>> (term,) = terms(read_condition('"v" < "w"'))
    >>> [render(atom) for atom in known_values(term).values()]
    ['"v" < "w"', '"v" IS NOT NULL', '"w" IS NOT NULL']
    """
    found = dict(term)
    for atom in term.values():
        if atom.domain == "order":
            for text in (atom.text, atom.other):
                told = found.get((text, "", False), Atom(text, ALL))
                found[told.subject] = replace(told, values=told.values & VALUES)
    return found
