"""Requested splits and merges of slices, named by the boundary at which the slices meet.

    chain of A   [0s, 10s) [10s, 30s)      split at 15s      [0s, 10s) [10s, 15s) [15s, 30s)
                                           merge at 10s      [0s, 15s) [15s, 30s)

Merges are done before splits, as in every migration. The resulting boundaries are pinned. The end of the
chain never changes, since it follows from the windows.
"""

from __future__ import annotations

from collections.abc import Iterable

from catalog.errors import error_path
from catalog.values.migration import ExplicitStep
from catalog.values.plan import Boundaries, FamilyPlan
from catalog.wording.wording import nearest_or_known
from planner.build.transitions.retained_boundaries import boundaries_of, is_one_chain
from planner.errors import NoSharedChain, UnknownBoundary
from planner.families.families import SIDES, SideName, side_window_us
from planner.families.texts.display import FamilyText, display_duration


def stepped_boundaries(family: FamilyPlan, text: FamilyText, steps: Iterable[ExplicitStep]) -> Boundaries:
    """Return the ends of a family's slices after splits and merges.

    Args:
        family: The family as it is planned now.
        text: Names of the family and its sides.
        steps: Requested steps, in any order.

    Returns:
        All boundaries of both sides.

    Raises:
        NoSharedChain: The family's queries do not share one chain.
        UnknownBoundary: A merge is not at an inner boundary; a split is at an existing boundary or outside of
            the chain; or the named side does not exist.
    """
    if not is_one_chain(family.joins):
        raise NoSharedChain(
            f'family "{text.title}" has no chain to split or merge: its strategy is {family.strategy}',
            hint="Migrate it to mem-opt or cpu-opt first.",
        )
    found = boundaries_of(family)
    ends = {side: set(found.side(side)) for side in SIDES}
    for step in sorted(steps, key=lambda s: s.kind):  # merges first
        with error_path(*step.path):
            for side in _sides(step, text):
                largest = max(side_window_us(q, side) for q in family.queries)
                _take(step, ends[side], largest, text.labels[side])
    return Boundaries(tuple(sorted(ends["a"])), tuple(sorted(ends["b"])))


def _take(step: ExplicitStep, ends: set[int], largest: int, label: str) -> None:
    at, end = step.at_us, max(ends)
    shown = display_duration(at)
    known = f"Slices of {label} end at {', '.join(map(display_duration, sorted(ends)))}."
    if step.kind == "split":
        if at in ends:
            raise UnknownBoundary(f"slices of {label} meet at {shown} already", detail=known, path=("at",))
        if not 0 < at < end:
            raise UnknownBoundary(
                f"the chain of {label} has no slice around {shown}",
                detail=known,
                hint=f"Split it between 0s and {display_duration(end)}.",
                path=("at",),
            )
        ends.add(at)
        return
    inner = sorted(ends - {end, largest})
    hint = (
        f"Merge at {' or '.join(map(display_duration, inner))}."
        if inner
        else "The chain has no inner boundary."
    )
    if at in (end, largest):
        what = "the end of the chain" if at == end else "the largest window"
        primary = f"slices of {label} cannot be merged at {shown}, {what}"
        raise UnknownBoundary(primary, detail=known, hint=hint, path=("at",))
    if at not in ends:
        raise UnknownBoundary(f"no slices of {label} meet at {shown}", detail=known, hint=hint, path=("at",))
    ends.remove(at)


def _sides(step: ExplicitStep, text: FamilyText) -> tuple[SideName, ...]:
    if step.side is None:
        return SIDES
    wanted = step.side.casefold()
    by_label = [side for side in SIDES if text.labels[side].casefold() == wanted]
    named = by_label or [side for side in SIDES if side == wanted]
    if not named:
        raise UnknownBoundary(
            f'"{step.side}" is not a side of the family',
            hint=nearest_or_known(step.side, text.labels.values(), "side"),
            path=("side",),
        )
    return tuple(named)
