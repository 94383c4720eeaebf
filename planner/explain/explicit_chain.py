"""A chain with given boundaries, whose cost is compared with the chains that strategies choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from catalog.values.plan import FamilyPlan, JoinPlan, Slice
from catalog.values.query import UNBOUNDED_US
from planner.errors import InvalidChain
from planner.families.families import Family, SideName, side_window_us
from planner.families.filters import weaker_filters
from planner.strategies.shared_join import shared_join
from planner.strategies.slice_dag import chain_of_path

_NAMES: Mapping[SideName, str] = MappingProxyType({"a": "side a", "b": "side b"})


def explicit_chain(
    family: Family | FamilyPlan,
    boundaries_a_us: Sequence[int],
    boundaries_b_us: Sequence[int],
    *,
    names: Mapping[SideName, str] = _NAMES,
) -> tuple[JoinPlan, ...]:
    """Cut a family's chains at given boundaries.

    Args:
        family: The family.
        boundaries_a_us: Ends of the slices of a, µs, ascending; the last one is a's largest window. A
            boundary that is not the window of a query is allowed: it divides rows that the same queries use.
        boundaries_b_us: Ends of the slices of b, by the same rules.
        names: Names of the sides in errors.

    Returns:
        The one join that all queries share.

    Raises:
        InvalidChain: There are no boundaries, or they do not ascend, are not positive or do not end at the
        largest window.
    """
    a = _chain(family, "a", boundaries_a_us, names["a"])
    return shared_join(family, a, _chain(family, "b", boundaries_b_us, names["b"]))


def _chain(
    family: Family | FamilyPlan, side: SideName, ends_us: Sequence[int], name: str
) -> tuple[Slice, ...]:
    largest = max(side_window_us(q, side) for q in family.queries)
    if not ends_us:
        raise InvalidChain(
            f"the chain of side {side} has no boundary",
            hint=f"Give at least its end, the largest window: {_seconds(largest)}.",
        )
    path = [0, *ends_us]
    if any(left >= right for left, right in zip(path, ends_us, strict=False)):
        raise InvalidChain(
            f"boundaries of {name} do not ascend from 0",
            detail=f"The boundaries are {', '.join(map(_seconds, ends_us))}.",
        )
    if path[-1] != largest:
        raise InvalidChain(
            f"the chain of {name} ends at {_seconds(path[-1])}, not at the largest window",
            hint=f"Make {_seconds(largest)} the last boundary.",
        )
    return chain_of_path(path, family.queries, side, weaker_filters(family, side))


def _seconds(time_us: int) -> str:
    return "unbounded" if time_us >= UNBOUNDED_US else f"{time_us / 1_000_000:.12g} s"
