"""Keys of the steps of a join of more than two streams.

    a.k = b.k, b.k = c.k, a.j = d.j       columns that are equal:  {a.k, b.k, c.k}  {a.j, d.j}

    step 1   a join b        k   ─┐ one run: the pairs stay in their bucket
    step 2   (a, b) join c   k   ─┘
    step 3   (a, b, c) join d   j   another key: the pairs go to other buckets

If no equal columns join a stream to the streams before it, its step has a condition but no key: each pair is
compared with all rows of the stream.

Consecutive steps with the same key are a *run*. Between two runs the pairs are exchanged (``catalog.steps``),
which delays the pairs by one batch. Runs are as long as possible, so there are as few exchanges as the join
order allows. Equal columns that are not in the key of a step are tested as conditions.

If both sides of a step are pairs, and the keys of their runs share a set of columns, the step continues the
runs of both sides. Otherwise it continues the run of side a or, if that is not possible, of side b, so that
only the pairs of the other side are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from catalog.values.stream import Stream
from planner.bind.keys.distances import Distances
from planner.sql.scopes.scope import SideName
from planner.sql.scopes.step_scope import Item, Origin, flat, side_a

#: Columns that have the same value in every result.
Equals = frozenset[Origin]


@dataclass(frozen=True, slots=True)
class StepKey:
    """Key of one step.

    Attributes:
        parts: Parts of the key, each a column of side a and the equal column of side b; empty without a key.
        exchanged: Sides whose pairs were made by a step with a different key; empty if the step has no key.
        run: Number of the run to which the step belongs.
        joined: Positions in FROM of the streams of both sides.
    """

    parts: tuple[tuple[Origin, Origin], ...]
    exchanged: tuple[SideName, ...]
    run: int
    joined: frozenset[int]


@dataclass(frozen=True, slots=True)
class JoinShape:
    """Parts of a query from which the best join order is chosen.

    Attributes:
        streams: Streams of the query, in the order of FROM.
        aliases: Alias of each stream in the query.
        filters: For each stream, its filter and the columns that the filter reads, or None without a filter.
        equal: Sets of equal columns.
        distances: Bounds on event times, or in an ordered join on distances in the order, including all
            implied bounds.
        ordered: Whether the streams are joined by their order, without windows.
    """

    streams: tuple[Stream, ...]
    aliases: tuple[str, ...]
    filters: tuple[tuple[str, tuple[str, ...]] | None, ...]
    equal: tuple[Equals, ...]
    distances: Distances
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Joining:
    """Join order of the streams of a query.

    Attributes:
        positions: Positions in FROM, in join order; streams that are joined as a group form a nested tuple.
        again: Sets of streams whose combinations are not stored, but recomputed when a row of the next
            stream arrives (``may_be_made_again``).
    """

    positions: tuple[Item, ...]
    again: frozenset[frozenset[int]] = frozenset()


#: Chooses how the streams of a query are joined.
ChooseOrder = Callable[[JoinShape], Joining]


def equal_columns(pairs: Iterable[tuple[Origin, Origin]]) -> tuple[Equals, ...]:
    """Return the sets of columns that are equal, directly or transitively, in canonical order."""
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
    """Return the default join order, in which streams that continue the current key come first.

    Otherwise streams are joined in the order of FROM. Streams without equal columns come last.

    >>> k, j = frozenset({(0, "k"), (2, "k"), (3, "k")}), frozenset({(1, "j"), (2, "j")})
    >>> joining_order(4, [k, j])
    (0, 2, 3, 1)
    >>> joining_order(3, [frozenset({(1, "k"), (2, "k")})], [frozenset({0, 1})])
    (1, 2, 0)

    Args:
        streams: Number of streams.
        equal: Result of ``equal_columns``.
        linked: For each condition on several streams, the positions of these streams.

    Returns:
        Positions in FROM, or None if equal columns and conditions do not connect all streams.
    """
    keyed = {position for columns in equal for position, _ in columns}
    order = [min(keyed, default=0)]
    common: frozenset[Equals] = frozenset()
    while len(order) < streams:
        joining = {p: j for p in range(streams) if p not in order and (j := _joining(order, (p,), equal))}
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


def spine(one: tuple[Item, ...], other: tuple[Item, ...], ids: Sequence[int]) -> tuple[Item, ...]:
    """Return the join order in which two sets of streams are joined with each other.

    If both sets have several streams, the set with the smaller ids is side a. So queries that name the
    streams in a different order share the step.

    >>> spine((2,), (0, 1), [7, 8, 9]), spine((0, 1), (2, 3), [7, 8, 5, 6])
    ((0, 1, 2), (2, 3, (0, 1)))

    Args:
        one: Positions in FROM of the first set of streams, in join order.
        other: Positions of the second set of streams, in join order.
        ids: Ids of all streams, as in FROM.
    """
    if len(one) == 1 and len(other) > 1:
        return *other, *one
    if len(other) == 1:
        return *one, *other
    a, b = sorted((one, other), key=lambda items: (sorted(ids[p] for p in flat(items)), flat(items)))
    return *a, b


@dataclass(frozen=True, slots=True)
class NextKey:
    """Key of a step after the first.

    Attributes:
        columns: Sets of equal columns in the key; empty if no equal columns join the two sides.
        exchanged: Sides whose pairs come from the buckets of a different key.
    """

    columns: frozenset[Equals]
    exchanged: tuple[SideName, ...]


def next_key(
    left: Collection[int],
    right: Collection[int],
    equal: Sequence[Equals],
    key_a: frozenset[Equals] | None,
    key_b: frozenset[Equals] | None = None,
) -> NextKey:
    """Return the key of a step: the step continues the runs of both sides if possible, otherwise of one side.

    Args:
        left: Positions of the streams of side a.
        right: Positions of the streams of side b.
        equal: Result of ``equal_columns``.
        key_a: Key of the run that made the pairs of side a, or None if side a is a stream.
        key_b: Key of the run that made the pairs of side b, or None if side b is a stream.
    """
    joining = _joining(left, right, equal)
    keys: dict[SideName, frozenset[Equals] | None] = {"a": key_a, "b": key_b}
    runs = {side: key for side, key in keys.items() if key is not None}
    for staying in (tuple(runs), *((side,) for side in runs)):
        common = joining.intersection(*(runs[side] for side in staying))
        if staying and common:
            return NextKey(common, tuple(side for side in runs if side not in staying))
    return NextKey(joining, tuple(runs) if joining else ())


@dataclass(slots=True, eq=False)
class _Run:
    """Consecutive steps with one key, and the columns of this key.

    Attributes:
        columns: Sets of equal columns in the key; a later step of the run may leave out some of these sets.
        order: Sort key of each set of columns, which determines the order of the parts of the key.
        owners: For each set of columns, the column that side a uses in the first step of the run.
    """

    columns: frozenset[Equals]
    order: Mapping[Equals, tuple[tuple[int, str], tuple[int, str], list[Origin]]]
    owners: Mapping[Equals, Origin]

    @classmethod
    def begun(cls, columns: frozenset[Equals], left: Sequence[int], right: Sequence[int]) -> _Run:
        """Return a new run that begins with a step."""
        order = {c: (_first(c, left), _first(c, right), sorted(c)) for c in columns}
        owners = {c: (left[place], name) for c, ((place, name), _, _) in order.items()}
        return cls(columns, order, owners)

    def in_order(self) -> list[Equals]:
        """Return the sets of columns in the order in which they form the key."""
        return sorted(self.columns, key=self.order.__getitem__)


@dataclass(slots=True, eq=False)
class _Joined:
    """A step: the positions of its two sides, the runs that made these sides, and its own run."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    run_a: _Run | None
    run_b: _Run | None
    run: _Run
    exchanged: tuple[SideName, ...]


def step_keys(order: tuple[Item, ...], ids: Sequence[int], equal: Sequence[Equals]) -> tuple[StepKey, ...]:
    """Return the key of each step; the steps inside a group come before the step that joins the group.

    Args:
        order: Positions of the streams in FROM, in join order.
        ids: Ids of the streams, in the order of FROM.
        equal: Result of ``equal_columns``.
    """
    found: list[_Joined] = []
    _join(order, ids, equal, found)
    numbers: dict[int, int] = {}
    return tuple(
        StepKey(
            tuple(
                (_owner(c, step.left, step.run_a), _owner(c, step.right, step.run_b))
                for c in step.run.in_order()
            ),
            step.exchanged,
            numbers.setdefault(id(step.run), len(numbers)),
            frozenset((*step.left, *step.right)),
        )
        for step in found
    )


def _join(order: tuple[Item, ...], ids: Sequence[int], equal: Sequence[Equals], found: list[_Joined]) -> _Run:
    """Append the steps of a join order to ``found``; return the run of the last step."""
    run: _Run | None = None
    for place, item in enumerate(order[1:], 1):
        left, right = flat(order[:place]), flat((item,))
        if place == 1 and side_a(left[0], right[0], ids) in right:
            # The sides of the first step have a fixed order, so that queries that name the streams in a
            # different order have the same key.
            left, right = right, left
        group = None if isinstance(item, int) else _join(item, ids, equal, found)
        key = next_key(
            left, right, equal, None if run is None else run.columns, None if group is None else group.columns
        )
        runs = (("a", run), ("b", group))
        going_on = [each for side, each in runs if each is not None and side not in key.exchanged]
        step = _Joined(left, right, run, group, _Run.begun(key.columns, left, right), key.exchanged)
        if going_on and key.columns:
            step.run, *others = going_on
            step.run.columns = key.columns
            for earlier in found:
                earlier.run = step.run if earlier.run in others else earlier.run
        found.append(step)
        run = step.run
    assert run is not None, "two streams are joined at least"
    return run


def _owner(columns: Equals, positions: Sequence[int], run: _Run | None) -> Origin:
    """Return the column of a set that a side uses: the column of the side's run, or of its first stream."""
    if run is not None and columns in run.columns:
        return run.owners[columns]
    place, name = _first(columns, positions)
    return positions[place], name


def _first(columns: Equals, positions: Sequence[int]) -> tuple[int, str]:
    """Return the first column in a set that belongs to the given streams, as (index of stream, name)."""
    return min((positions.index(p), name) for p, name in columns if p in positions)


def may_be_made_again(distances: Distances, before: tuple[int, ...], position: int) -> bool:
    """Return whether the pairs of some streams can be recomputed instead of stored when a stream is joined.

    A row is purged once no later row of the other streams in the pairs can join it. So the pairs can be
    recomputed only if no row of the joining stream can still need a purged row.

    Args:
        distances: Bounds on the event times of the query's streams.
        before: Positions of the streams of the pairs, which earlier steps have joined on the same key.
        position: Position of the stream that is joined with the pairs.
    """
    most_us = distances.most_us
    return all(most_us[i, position] <= most_us[i, j] for i in before for j in before if i != j)


def implied(keys: Sequence[StepKey]) -> tuple[Equals, ...]:
    """Return the sets of columns that are equal because of the keys of all steps together."""
    return equal_columns(pair for key in keys for pair in key.parts)


def _joining(left: Collection[int], right: Collection[int], equal: Sequence[Equals]) -> frozenset[Equals]:
    """Return the sets of equal columns that join a stream in ``left`` to a stream in ``right``."""
    return frozenset(
        columns
        for columns in equal
        if any(p in right for p, _ in columns) and any(p in left for p, _ in columns)
    )
