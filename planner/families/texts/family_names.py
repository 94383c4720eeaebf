"""Names of families: the id, or the key as ``A.k = B.k``, whose columns may be in any order and case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from catalog.values.query import Query
from catalog.wording.wording import nearest_or_known
from planner.errors import UnknownFamily
from planner.families.families import families, family_of, is_apart, spread_side
from planner.families.texts.display import ABSENCE, GROUPS, ORDERED, family_title

_T = TypeVar("_T")

_AND = re.compile(r"\s+AND\s+", re.IGNORECASE)
#: Note behind the key of a self-join, ``(A a, A b)``: which side is ``a`` and which is ``b``.
_SELF_JOIN = re.compile(r"\(\s*(\w+) a,\s*\1 b\s*\)$")
#: Kinds of families other than inner joins with windows; a family's name has its kind in parentheses.
_KINDS = (ABSENCE, GROUPS, ORDERED)
_OF_KIND = re.compile(rf"(\(|,)\s*({ABSENCE} of [^()]+|{'|'.join(_KINDS)})\s*\)$")

#: A key as a set of equal pairs. The order of the pairs, and the order in each pair, do not matter.
_Key = frozenset[frozenset[str]]


def family_titles(queries: Iterable[Query]) -> dict[str, str]:
    """Return the titles of the families of the given queries, by family id."""
    return {
        family: family_title(
            members[0].a.stream,
            members[0].b.stream,
            members[0].key,
            absence=is_apart(members[0]),
            groups=members[0].grouping is not None,
            clocks=(members[0].a.clock, members[0].b.clock),
            spread=spread_side(members[0]),
        )
        for family, members in families(queries).items()
    }


def family_named(name: str, queries: Iterable[Query]) -> str:
    """Return the id of the family to which a name refers.

    Args:
        name: An id, or the equal columns of the key: ``A.k = B.k``, ``A.k = B.k AND A.m = B.n``; for a
            self-join ``a.k = b.m (A a, A b)``. ``A.k = B.k (absence)`` is the family that has only outer,
            semi and anti joins. If it does not exist, the name means the family of inner joins that also has
            the outer, semi and anti joins. ``A.k = B.k (absence of A)`` is the family that checks rows of A
            for matches and divides these rows among the buckets of their key. ``A.k = B.k (groups)`` is the
            family of the queries with GROUP BY, and ``A.k = B.k (ordered)`` the family of the joins without
            windows. The key alone names the first family that exists in this order: inner joins with
            windows, absence, groups, ordered, absence of one side.
        queries: Queries in whose families the name is looked up.

    Raises:
        UnknownFamily: No family of the queries has this name.
    """
    members = tuple(queries)
    titles = family_titles(members)
    wanted, kind = _key(name)
    found = {_key(title)[1]: family for family, title in titles.items() if _key(title)[0] == wanted}
    if name in titles:
        return name
    of_sides = [each for each in sorted(found) if each.startswith(f"{ABSENCE} of ")]
    for each in (kind, *(of_sides if kind == ABSENCE else ())) if kind else ("", *_KINDS, *of_sides):
        if each in found:
            return found[each]
    beside_inner = {family_of(query) for query in members if query.beside_inner}
    if kind == ABSENCE and found.get("") in beside_inner:
        return found[""]
    raise UnknownFamily(
        f'family "{name}" does not exist',
        detail="A family is named by the key of its queries, or by its id.",
        hint=nearest_or_known(name, titles.values(), "family"),
    )


def by_family(given: Mapping[str, _T], queries: Iterable[Query], *, strict: bool = True) -> dict[str, _T]:
    """Return values by family id, given values by family name.

    Args:
        given: Values by family name (``family_named``).
        queries: Queries in whose families the names are looked up.
        strict: True to refuse a name that no family has, False to ignore it.

    Raises:
        UnknownFamily: A name belongs to no family; the error's ``path`` is this name.
    """
    known = tuple(queries)
    found: dict[str, _T] = {}
    for name, value in given.items():
        try:
            found[family_named(name, known)] = value
        except UnknownFamily as error:
            if strict:
                error.path = (name,)
                raise
    return found


def _key(name: str) -> tuple[_Key, str]:
    """Split a family's name into its key and its kind; the kind is empty if the name has none.

    In the key of a self-join, the sides are named by their stream with ``#a`` or ``#b`` appended.
    """
    text = name.replace('"', "").strip().casefold()
    if (said := _OF_KIND.search(text)) is not None:
        text = f"{text[: said.start()].strip()}{')' if said[1] == ',' else ''}"
    if (found := _SELF_JOIN.search(text)) is not None:
        stream = found[1]
        text = re.sub(r"\b([ab])\.", rf"{stream}#\1.", text[: found.start()])
    pairs = _AND.split(text.strip())
    key = frozenset(frozenset(part.strip() for part in pair.split("=")) for pair in pairs)
    return key, "" if said is None else said[2]
