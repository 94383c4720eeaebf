"""Event-time progress of intermediates, derived from that of their two sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catalog.steps import in_order, is_exchanged, made_by, taken_intermediates
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
    arrived: Mapping[int, int | None],
) -> dict[int, int | None]:
    """Return times per stream with those of the plan's intermediates.

    Args:
        plan: The plan.
        times: Time of each of its streams by id, µs UTC; None if a stream has none.
        combined: Returns the time of an intermediate, given those of sides a and b.
        arrived: Times of exchanged intermediates by id: those that their pairs had when they set out, in the
            batch before. One that is not named has none.
    """
    found = dict(times)
    taken = taken_intermediates(plan.families)
    for family in in_order(plan.families) if taken else ():
        for made in made_by(family, taken):
            if is_exchanged(made):
                found[made] = arrived.get(made)
            else:
                found[made] = combined(found[family.stream_a], found[family.stream_b])
    return found


def setting_out(
    plan: Plan,
    times: Mapping[int, int | None],
    combined: Callable[[int | None, int | None], int | None],
) -> dict[int, int | None]:
    """Return the times of pairs that set out for other buckets, by the id of the exchanged intermediate.

    Args:
        plan: The plan.
        times: Result of ``with_intermediates``.
        combined: As there.
    """
    taken = taken_intermediates(plan.families)
    return {
        made: combined(times[family.stream_a], times[family.stream_b])
        for family in (plan.families if taken else ())
        for made in made_by(family, taken)
        if is_exchanged(made)
    }
