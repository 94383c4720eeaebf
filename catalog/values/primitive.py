"""Migration primitives: the steps that lead from one plan version to the next (State-Slice §5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["a", "b"]


@dataclass(frozen=True, slots=True)
class Split:
    """Cut the slice around ``at_us`` into two; its rows move by cross-purge. Inverse: ``Merge``."""

    family: str
    join: str
    side: Side
    at_us: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Join the two slices that meet at ``at_us``; their rows are put together. Inverse: ``Split``."""

    family: str
    join: str
    side: Side
    at_us: int


@dataclass(frozen=True, slots=True)
class Extend:
    """Let a chain end later. Inverse: ``Truncate``."""

    family: str
    join: str
    side: Side
    from_us: int
    to_us: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Let a chain end earlier; rows beyond are purged. The rows do not come back with ``Extend``."""

    family: str
    join: str
    side: Side
    from_us: int
    to_us: int


@dataclass(frozen=True, slots=True)
class SetFilter:
    """Change which rows enter the slice [w_start_us, w_end_us): lineage bits, None for every row."""

    family: str
    join: str
    side: Side
    w_start_us: int
    w_end_us: int
    keep: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class SetRoutes:
    """Change the queries that a join's pairs are routed to."""

    family: str
    join: str
    queries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenJoin:
    """Begin a join; rows that its queries may use come from the family's former joins."""

    family: str
    join: str


@dataclass(frozen=True, slots=True)
class CloseJoin:
    """End a join; what no other join of the family holds is dropped."""

    family: str
    join: str


Primitive = Split | Merge | Extend | Truncate | SetFilter | SetRoutes | OpenJoin | CloseJoin
