"""Event-time progress of intermediates, derived from that of their two sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catalog.steps import in_order, made_by, taken_intermediates
from catalog.values.plan import Plan


def least(a: int | None, b: int | None) -> int | None:
    """Return the watermark of pairs: a new pair has a new row, which is not below its own watermark."""
    return None if a is None or b is None else min(a, b)


def latest(a: int | None, b: int | None) -> int | None:
    """Return an event time that no pair exceeds."""
    return max((time for time in (a, b) if time is not None), default=None)


def with_intermediates(
    plan: Plan,
    times: Mapping[int, int | None],
    combined: Callable[[int | None, int | None], int | None],
) -> dict[int, int | None]:
    """Return times per stream with those of the plan's intermediates.

    Args:
        plan: The plan.
        times: Time of each of its streams by id, µs UTC; None if a stream has none.
        combined: Returns the time of an intermediate, given those of sides a and b.
    """
    found = dict(times)
    taken = taken_intermediates(plan.families)
    for family in in_order(plan.families) if taken else ():
        if (made := made_by(family, taken)) is not None:
            found[made] = combined(found[family.stream_a], found[family.stream_b])
    return found
