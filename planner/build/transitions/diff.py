"""Migration primitives that turn the joins of one plan version into the joins of the next version.

    v:    [0, 10) [10, 30)            q1 10s, q2 30s
          Extend 30 -> 60             q3 60s enters
          Merge at 30                 q2 leaves
    v+1:  [0, 10) [10, 60)            q1, q3

A migration is the list of primitives between two versions; the engine applies it to the state in place,
between two batches. Primitives name slices by positions in time, not by numbers, which earlier primitives
would change.
Invariant: applying the primitives in order to the joins of the old version gives the joins of the new
version. Some primitives have an inverse; the inverses, applied in reverse order, undo these primitives.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from catalog.errors import InvariantBroken
from catalog.values.plan import FamilyPlan, JoinPlan, Plan, Slice
from catalog.values.primitive import (
    CloseJoin,
    Extend,
    Keep,
    Merge,
    OpenJoin,
    Primitive,
    SetFilter,
    SetRoutes,
    Split,
    Truncate,
)
from planner.families.families import SIDES, SideName, side_chain

#: Family id and join id.
JoinKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MovedPiece:
    """A slice during a migration.

    Attributes:
        w_start_us: Start of its interval.
        w_end_us: End of its interval.
        keep: Lineage bits; a row needs at least one of them to enter. None admits every row.
        rows: Number of rows that it holds, known or estimated.
    """

    w_start_us: int
    w_end_us: int
    keep: tuple[int, ...] | None
    rows: float = 0.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Properties of a join that primitives change.

    Attributes:
        a: Slices of a, contiguous from 0; empty for a join that was just opened.
        b: Slices of b.
        queries: Ids of the queries to which its pairs are routed.
    """

    a: tuple[MovedPiece, ...] = ()
    b: tuple[MovedPiece, ...] = ()
    queries: tuple[int, ...] = ()

    def side(self, side: SideName) -> tuple[MovedPiece, ...]:
        """Return the slices of one side."""
        return self.a if side == "a" else self.b

    def with_side(self, side: SideName, pieces: tuple[MovedPiece, ...]) -> Shape:
        """Return the same join with other slices on one side."""
        return replace(self, a=pieces) if side == "a" else replace(self, b=pieces)


def diff(old: Plan | None, new: Plan) -> tuple[Primitive, ...]:
    """Return the primitives that lead from one plan version to the next.

    A join whose id stays the same is changed in place. A join that admits different rows than before, because
    a stream is split differently, is closed and opened again. The slices of a join with pulled-up selections
    are treated like slices whose filters admit every row.

    Args:
        old: Version in force; None before the first.
        new: Version that follows.

    Returns:
        Primitives, ordered by family and join. In a family, closed joins come first, because opened joins
        take over their rows. For each chain of a join, changes of the chain's end come first, slice by slice,
        then removed boundaries, added boundaries and filters. The routes of the join come last.

    Source: State-Slice §5.3 for splitting (rows stay in the first part, whose purging moves them on) and
        merging (states are concatenated). Difference from the paper: steps are applied between two batches,
        when no row waits in a queue. All other kinds of steps are our own.
    """
    former = {} if old is None else {f.id: f for f in old.families}
    wanted = {f.id: f for f in new.families}
    steps: list[Primitive] = []
    for family in sorted(former.keys() | wanted.keys()):
        steps += _family_steps(family, former.get(family), wanted.get(family))
    return tuple(steps)


def shapes(plan: Plan | None) -> dict[JoinKey, Shape]:
    """Return the shapes of a plan's joins, with 0 rows in each slice; empty if there is no plan."""
    families = () if plan is None else plan.families
    return {(f.id, j.id): _shape(j) for f in families for j in f.joins}


def rows_moved(before: Mapping[JoinKey, Shape], steps: Iterable[Primitive]) -> float:
    """Return an upper bound on the number of rows that the primitives move to another slice.

    A split moves the older rows of its slice, and a merge moves the rows of the later slice. Every row of a
    closed join counts. If an unbounded slice is split, all of its rows count, because it is unknown how they
    are distributed.

    Args:
        before: Joins before the primitives, with the rows that they hold.
        steps: Primitives in order.
    """
    joins = dict(before)
    moved = 0.0
    planned = tuple(steps)
    for step, following in zip(planned, (*planned[1:], None), strict=False):
        if isinstance(step, CloseJoin):
            shape = joins[step.family, step.join]
            moved += sum(p.rows for p in (*shape.a, *shape.b))
        elif isinstance(step, Merge):
            pieces = joins[step.family, step.join].side(step.side)
            moved += next(p.rows for p in pieces if p.w_start_us == step.at_us)
        elif isinstance(step, Split) and not _drops(following, step):
            pieces = joins[step.family, step.join].side(step.side)
            moved += _cut(next(p for p in pieces if _inside(p, step.at_us)), step.at_us, None)[1].rows
        apply_primitive(joins, step)
    return moved


def _family_steps(family: str, old: FamilyPlan | None, new: FamilyPlan | None) -> list[Primitive]:
    former = {} if old is None else {j.id: j for j in old.joins}
    wanted = {} if new is None else {j.id: j for j in new.joins}
    kept = {i for i in former.keys() & wanted.keys() if former[i].partition == wanted[i].partition}
    steps: list[Primitive] = [CloseJoin(family, i) for i in sorted(former.keys() - kept, key=_order)]
    for join in sorted(wanted, key=_order):
        if join in kept:
            shape = _shape(former[join])
        else:
            steps.append(OpenJoin(family, join))
            shape = Shape()
        for side in SIDES:
            steps += _chain_steps(family, join, side, shape.side(side), side_chain(wanted[join], side))
        if shape.queries != wanted[join].queries:
            steps.append(SetRoutes(family, join, wanted[join].queries, shape.queries))
    return steps


def _chain_steps(
    family: str, join: str, side: SideName, old: tuple[MovedPiece, ...], new: tuple[Slice, ...]
) -> list[Primitive]:
    key = (family, join)
    steps: list[Primitive] = []
    reached = {key: Shape().with_side(side, old)}

    def pieces() -> tuple[MovedPiece, ...]:
        return reached[key].side(side)

    def take(step: Primitive) -> None:
        steps.append(step)
        apply_primitive(reached, step)

    before = old[-1].w_end_us if old else 0
    after = new[-1].w_end_us
    if after > before:
        take(Extend(family, join, side, before, after))
    for piece in pieces():
        if _inside(piece, after):
            take(Split(family, join, side, after, piece.keep))
    while (last := pieces()[-1]).w_end_us > after:
        take(Truncate(family, join, side, last.w_end_us, last.w_start_us, last.keep))
    # The chain may have thousands of slices, so the loops below pass over it once, not once per primitive.
    inner = [s.w_end_us for s in new]
    ends = set(inner)
    merged: list[MovedPiece] = []
    for piece in pieces():
        if merged and piece.w_start_us not in ends:
            steps.append(Merge(family, join, side, piece.w_start_us, piece.keep))
            merged[-1] = replace(merged[-1], w_end_us=piece.w_end_us)
        else:
            merged.append(piece)
    cut: list[MovedPiece] = []
    for piece in merged:
        inside = inner[bisect_right(inner, piece.w_start_us) : bisect_left(inner, piece.w_end_us)]
        steps += [Split(family, join, side, at, piece.keep) for at in inside]
        bounds = itertools.pairwise((piece.w_start_us, *inside, piece.w_end_us))
        cut += [replace(piece, w_start_us=start, w_end_us=end) for start, end in bounds]
    for piece, wanted in zip(cut, new, strict=True):
        if piece.keep != wanted.keep:
            keeps = wanted.keep, piece.keep
            steps.append(SetFilter(family, join, side, wanted.w_start_us, wanted.w_end_us, *keeps))
    return steps


def apply_primitive(joins: dict[JoinKey, Shape], step: Primitive) -> None:
    """Apply a primitive to shapes of joins, assuming that rows are evenly spread over each slice.

    Raises:
        InvariantBroken: The primitive does not fit the joins to which it is applied.
    """
    key = (step.family, step.join)
    if isinstance(step, OpenJoin):
        _require(key not in joins, step)
        joins[key] = Shape()
        return
    _require(key in joins, step)
    if isinstance(step, CloseJoin):
        del joins[key]
    elif isinstance(step, SetRoutes):
        joins[key] = replace(joins[key], queries=step.queries)
    else:
        joins[key] = joins[key].with_side(step.side, _changed(joins[key].side(step.side), step))


def _changed(
    pieces: tuple[MovedPiece, ...], step: Split | Merge | Extend | Truncate | SetFilter
) -> tuple[MovedPiece, ...]:
    """Return the slices of a chain after one primitive."""
    end = pieces[-1].w_end_us if pieces else 0
    match step:
        case Extend(from_us=start, to_us=to, keep=keep):
            _require(start == end < to, step)
            return (*pieces, MovedPiece(start, to, keep))
        case Truncate(from_us=start, to_us=to):
            _require(bool(pieces) and (pieces[-1].w_start_us, end) == (to, start), step)
            return pieces[:-1]
        case Split(at_us=at, keep=keep):
            _require(any(_inside(p, at) for p in pieces), step)
            return tuple(part for p in pieces for part in (_cut(p, at, keep) if _inside(p, at) else (p,)))
        case Merge(at_us=at):
            _require(any(p.w_end_us == at for p in pieces) and at < end, step)
            return _merged(pieces, at)
        case SetFilter(w_start_us=start, w_end_us=to, keep=keep):
            _require(any((p.w_start_us, p.w_end_us) == (start, to) for p in pieces), step)
            return tuple(replace(p, keep=keep) if p.w_start_us == start else p for p in pieces)


def _merged(pieces: tuple[MovedPiece, ...], at_us: int) -> tuple[MovedPiece, ...]:
    """Merge the two slices at a boundary; the merged slice keeps the filter of the first one."""
    merged: list[MovedPiece] = []
    for piece in pieces:
        if piece.w_start_us == at_us:
            first = merged.pop()
            piece = MovedPiece(first.w_start_us, piece.w_end_us, first.keep, first.rows + piece.rows)
        merged.append(piece)
    return tuple(merged)


def _cut(piece: MovedPiece, at_us: int, keep: Keep) -> tuple[MovedPiece, MovedPiece]:
    """Cut a slice in two, with rows in proportion to length; ``keep`` filters the later part."""
    older = piece.rows * (piece.w_end_us - at_us) / (piece.w_end_us - piece.w_start_us)
    return (
        replace(piece, w_end_us=at_us, rows=piece.rows - older),
        replace(piece, w_start_us=at_us, rows=older, keep=keep),
    )


def _drops(step: Primitive | None, split: Split) -> bool:
    """Return whether a primitive drops the later part of the slice that ``split`` has cut."""
    place = (split.family, split.join, split.side, split.at_us)
    return isinstance(step, Truncate) and (step.family, step.join, step.side, step.to_us) == place


def _inside(piece: MovedPiece, at_us: int) -> bool:
    return piece.w_start_us < at_us < piece.w_end_us


def _shape(join: JoinPlan) -> Shape:
    a, b = (
        tuple(MovedPiece(s.w_start_us, s.w_end_us, s.keep) for s in side_chain(join, side)) for side in SIDES
    )
    return Shape(a, b, join.queries)


def _order(join: str) -> tuple[str, int]:
    """Return a sort key for a join's id: kind, then number, so that ``q2`` comes before ``q10``."""
    number = "".join(itertools.dropwhile(lambda c: not c.isdigit(), join))
    return join.removesuffix(number), int(number or 0)


def _require(holds: bool, step: Primitive) -> None:
    if not holds:
        raise InvariantBroken(f"a migration step does not fit the joins to which it is applied: {step}")
