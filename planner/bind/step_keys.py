"""Keys of the steps of a join of more than two streams.

    a.k = b.k, b.k = c.k, a.j = d.j       columns that are equal:  {a.k, b.k, c.k}  {a.j, d.j}

    step 1   a join b        k   ─┐ one run: the pairs stay in their bucket
    step 2   (a, b) join c   k   ─┘
    step 3   (a, b, c) join d   j   another key: the pairs go to other buckets

A step whose stream no equal column joins has no key, but a condition: each pair meets all rows of the stream.

Steps that follow each other with the same key are a *run*. Between two runs the pairs are exchanged
(``catalog.steps``), which delays them by one batch. Runs are as long as they can be, so there are as few
exchanges as the order of the streams allows. Equal columns that are not in the key of a step are conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from catalog.values.stream import Stream
from planner.bind.distances import Distances
from planner.sql.step_scope import Origin

#: Set of columns that are equal in every result.
Equals = frozenset[Origin]


@dataclass(frozen=True, slots=True)
class StepKey:
    """Key of one step.

    Attributes:
        parts: Equal columns: of a stream joined before, and of the stream that joins.
        exchanged: Whether its key differs from that of the step before. Never without a key.
    """

    parts: tuple[tuple[Origin, Origin], ...]
    exchanged: bool


@dataclass(frozen=True, slots=True)
class JoinShape:
    """Parts of a query that decide in which order its streams are joined best.

    Attributes:
        streams: Its streams, as in FROM.
        aliases: Their names in the query.
        filters: Filter of each stream, and the columns that it reads; None for no filter.
        equal: Sets of equal columns.
        distances: Bounds on event times, closed.
    """

    streams: tuple[Stream, ...]
    aliases: tuple[str, ...]
    filters: tuple[tuple[str, tuple[str, ...]] | None, ...]
    equal: tuple[Equals, ...]
    distances: Distances


@dataclass(frozen=True, slots=True)
class Joining:
    """Order in which the streams of a query are joined.

    Attributes:
        positions: Positions in FROM, in the order in which they are joined.
        again: Steps, from 2, whose pairs of the step before do not rest (``may_be_made_again``).
    """

    positions: tuple[int, ...]
    again: frozenset[int] = frozenset()


#: Chooses how the streams of a query are joined.
ChooseOrder = Callable[[JoinShape], Joining]


def equal_columns(pairs: Iterable[tuple[Origin, Origin]]) -> tuple[Equals, ...]:
    """Return the sets of columns that are equal by pairs of equal columns, in a canonical order."""
    found: list[Equals] = []
    for pair in pairs:
        joined = frozenset(pair)
        for each in [columns for columns in found if not columns.isdisjoint(joined)]:
            found.remove(each)
            joined |= each
        found.append(joined)
    return tuple(sorted(found, key=sorted))


def joining_order(
    streams: int, equal: Sequence[Equals], linked: Sequence[frozenset[int]] = ()
) -> tuple[int, ...] | None:
    """Return the order of FROM, except that streams which continue the key of those before come first.

    Streams that only a condition joins come last.

    >>> k, j = frozenset({(0, "k"), (2, "k"), (3, "k")}), frozenset({(1, "j"), (2, "j")})
    >>> joining_order(4, [k, j])
    (0, 2, 3, 1)
    >>> joining_order(3, [frozenset({(1, "k"), (2, "k")})], [frozenset({0, 1})])
    (1, 2, 0)

    Args:
        streams: How many there are.
        equal: Result of ``equal_columns``.
        linked: Positions of the streams in each condition on several.

    Returns:
        Positions in FROM; None if neither an equal column nor a condition joins some stream to the others.
    """
    keyed = {position for columns in equal for position, _ in columns}
    order = [min(keyed, default=0)]
    common: frozenset[Equals] = frozenset()
    while len(order) < streams:
        joining = {p: j for p in range(streams) if p not in order and (j := _joining(order, p, equal))}
        if not joining:
            known = set(order)
            by_condition = (p for p in range(streams) if any(p in each <= known | {p} for each in linked))
            theta = next((p for p in by_condition if p not in known), None)
            if theta is None:
                return None
            order.append(theta)
            common = frozenset()
            continue
        following = next((p for p, j in joining.items() if common & j), next(iter(joining)))
        order.append(following)
        common = common & joining[following] or joining[following]
    return tuple(order)


def next_key(
    key: frozenset[Equals], before: Sequence[int], position: int, equal: Sequence[Equals]
) -> tuple[frozenset[Equals], bool]:
    """Return the key of the run after one more stream has joined, and whether a new run begins.

    Args:
        key: Key of the run so far; empty before the first step.
        before: Positions of the streams joined before.
        position: Position of the stream that joins.
        equal: Result of ``equal_columns``.

    Returns:
        The sets in the key; empty if nothing joins the stream.
    """
    joining = _joining(before, position, equal)
    common = key & joining
    return (common, False) if common else (joining, bool(key))


def step_keys(order: tuple[int, ...], a: int, equal: Sequence[Equals]) -> tuple[StepKey, ...]:
    """Return the key of each step.

    Args:
        order: Positions of the streams in FROM, in the order in which they are joined.
        a: Position of side a of the first step.
        equal: Result of ``equal_columns``.
    """
    runs: list[tuple[int, frozenset[Equals]]] = []
    for step in range(1, len(order)):
        known = runs[-1][1] if runs else frozenset[Equals]()
        key, begins = next_key(known, order[:step], order[step], equal)
        if begins or not known or not key:
            runs.append((step, key))
        else:
            runs[-1] = (runs[-1][0], key)
    found: list[StepKey] = []
    for (begin, columns), end in zip(runs, [*(begin for begin, _ in runs[1:]), len(order)], strict=True):
        # The sides of the first step have a fixed order, so that queries which name the streams in another
        # order have the same key.
        first = (a, *(p for p in order[:2] if p != a)) if begin == 1 else (*order[:begin], order[begin])
        left = first[:-1]
        owned = {c: min((left.index(p), name) for p, name in c if p in left) for c in columns}
        ordered = sorted(columns, key=lambda c: (owned[c], _own(c, first[-1]), sorted(c)))
        owners = [(left[owned[c][0]], owned[c][1]) for c in ordered]
        for step in range(begin, end):
            # A first step joins its two streams whichever of them is written first.
            right = first[-1] if step == 1 else order[step]
            parts = tuple((owner, _own(c, right)) for owner, c in zip(owners, ordered, strict=True))
            found.append(StepKey(parts, exchanged=bool(parts) and step == begin > 1))
    return tuple(found)


def may_be_made_again(shape: JoinShape, before: tuple[int, ...], position: int) -> bool:
    """Return whether the pairs of some streams can be made again for the rows of one that joins them.

    The rows that they are made of rest as long as they can meet each other. So a later row of the stream must
    not be in the windows of one of them for longer than that.

    Args:
        shape: The query.
        before: Positions of the streams joined before, with the same key.
        position: Position of the stream that joins.
    """
    most_us = shape.distances.most_us
    return all(most_us[i, position] <= most_us[i, j] for i in before for j in before if i != j)


def implied(keys: Sequence[StepKey]) -> tuple[Equals, ...]:
    """Return the sets of columns that the keys of all steps make equal."""
    return equal_columns(pair for key in keys for pair in key.parts)


def _joining(before: Sequence[int], position: int, equal: Sequence[Equals]) -> frozenset[Equals]:
    """Return the sets that have a column of a stream and a column of the streams before it."""
    return frozenset(
        columns
        for columns in equal
        if any(p == position for p, _ in columns) and any(p in before for p, _ in columns)
    )


def _own(columns: Equals, position: int) -> Origin:
    """Return the column of a stream in a set; the first by name if there are several."""
    return min(origin for origin in columns if origin[0] == position)
