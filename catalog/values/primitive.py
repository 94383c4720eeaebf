"""Migration primitives: the steps that lead from one plan version to the next.

    split at t    [s ........ e)   <->   [s .. t) [t .. e)       merge at t
    extend        [s .. e)         <->   [s .. e) [e .. w)       truncate

Splitting and merging are from State-Slice (VLDB 2006, §5.3); the other steps are our own.

A step contains the new filters and routes. It also contains what its inverse needs: the replaced filters and
routes, or the filter of a removed slice. An inverse does not restore rows that a truncated slice dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Side = Literal["a", "b"]

#: Lineage bits; a row enters a slice if it has at least one of them. None: every row enters.
Keep = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Split:
    """Cut a slice in two at ``at_us``; ``keep`` filters the later slice. Rows move there by cross-purge."""

    family: str
    join: str
    side: Side
    at_us: int
    keep: Keep = None


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge the two slices that meet at ``at_us``, and their rows, under the filter of the first slice.

    ``keep`` was the filter of the later slice.
    """

    family: str
    join: str
    side: Side
    at_us: int
    keep: Keep = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Extend:
    """Lengthen a chain: add a slice [from_us, to_us)."""

    family: str
    join: str
    side: Side
    from_us: int
    to_us: int
    keep: Keep = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Shorten a chain: remove its last slice [to_us, from_us) with its rows.

    ``keep`` was the filter of this slice.
    """

    family: str
    join: str
    side: Side
    from_us: int
    to_us: int
    keep: Keep = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SetFilter:
    """Change which rows enter the slice [w_start_us, w_end_us); ``was`` is the old filter."""

    family: str
    join: str
    side: Side
    w_start_us: int
    w_end_us: int
    keep: Keep
    was: Keep = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SetRoutes:
    """Change the queries that a join's pairs are routed to; ``was`` has the old queries."""

    family: str
    join: str
    queries: tuple[int, ...]
    was: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class OpenJoin:
    """Begin a join with the rows of the family's former joins that its queries may use."""

    family: str
    join: str


@dataclass(frozen=True, slots=True)
class CloseJoin:
    """End a join; rows that no other join of the family holds are dropped."""

    family: str
    join: str


Primitive = Split | Merge | Extend | Truncate | SetFilter | SetRoutes | OpenJoin | CloseJoin


def inverse(step: Primitive) -> Primitive | None:
    """Return the step that undoes a step, or None for a closed join.

    One step cannot open a closed join again, because it would lack the slices, filters and routes of the
    join.

    >>> inverse(Extend("f", "shared", "a", 10, 30))
    Truncate(family='f', join='shared', side='a', from_us=30, to_us=10, keep=None)
    """
    match step:
        case Split(family, join, side, at, keep):
            return Merge(family, join, side, at, keep)
        case Merge(family, join, side, at, keep):
            return Split(family, join, side, at, keep)
        case Extend(family, join, side, start, to, keep):
            return Truncate(family, join, side, to, start, keep)
        case Truncate(family, join, side, start, to, keep):
            return Extend(family, join, side, to, start, keep)
        case SetFilter(family, join, side, start, to, keep, was):
            return SetFilter(family, join, side, start, to, was, keep)
        case SetRoutes(family, join, queries, was):
            return SetRoutes(family, join, was, queries)
        case OpenJoin(family, join):
            return CloseJoin(family, join)
        case CloseJoin():
            return None
