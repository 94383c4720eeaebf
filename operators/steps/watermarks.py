"""Event-time progress of intermediates: it follows from that of their two sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catalog.steps import in_order, made_by, taken_intermediates
from catalog.values.plan import Plan


def least(a: int | None, b: int | None) -> int | None:
    """Return the watermark of pairs: one of the rows of a new pair is new, and at or above its watermark."""
    return None if a is None or b is None else min(a, b)


def latest(a: int | None, b: int | None) -> int | None:
    """Return the newest event time of pairs, or one that none exceeds."""
    return max((time for time in (a, b) if time is not None), default=None)


def with_intermediates(
    plan: Plan,
    times: Mapping[int, int | None],
    combined: Callable[[int | None, int | None], int | None],
) -> dict[int, int | None]:
    """Return times per stream with those of the plan's intermediates.

    Args:
        plan: The plan.
        times: Time of each of its streams by id, µs UTC; None where there is none.
        combined: Gives the time of an intermediate from those of side a and b.
    """
    found = dict(times)
    taken = taken_intermediates(plan.families)
    for family in in_order(plan.families) if taken else ():
        if (made := made_by(family, taken)) is not None:
            found[made] = combined(found[family.stream_a], found[family.stream_b])
    return found
