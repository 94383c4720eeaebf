"""Names of families: the id, or the key as ``A.k = B.k``, in any order and case."""

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
#: Text behind the key of a self-join: ``(A a, A b)``.
_SELF_JOIN = re.compile(r"\(\s*(\w+) a,\s*\1 b\s*\)$")
#: Kinds of families besides inner joins with windows, as a name gives them in parentheses behind the key.
_KINDS = (ABSENCE, GROUPS, ORDERED)
_OF_KIND = re.compile(rf"(\(|,)\s*({ABSENCE} of [^()]+|{'|'.join(_KINDS)})\s*\)$")

#: A key as a set of equal pairs. The order of the pairs, and the order in each pair, do not matter.
_Key = frozenset[frozenset[str]]


def family_titles(queries: Iterable[Query]) -> dict[str, str]:
    """Return the names of the families of some queries, by id."""
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
            semi and anti joins, or, if there is none, the family of inner joins to which they belong.
            ``A.k = B.k (absence of A)`` is the family that checks rows of A for matches and divides these
            rows among the buckets of their key. ``A.k = B.k (groups)`` has the queries with GROUP BY, and
            ``A.k = B.k (ordered)`` the joins without windows. The key alone names the first existing family
            in this order: inner joins with windows, then the kinds above.
        queries: Queries whose families are known.

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
        given: Values by name.
        queries: Queries whose families are known.
        strict: Whether to refuse a name that no family has, rather than ignore it.

    Raises:
        UnknownFamily: A name belongs to no family; ``path`` is this name.
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
    """Split a name into its key and the kind of family that it states, if any.

    Both sides of a self-join have the name of its stream, with ``#a`` and ``#b`` appended.
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
