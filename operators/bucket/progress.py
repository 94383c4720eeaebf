"""Progress of streams and intermediates on the clocks of families.

The clock of a family is event time, or the order of its streams if it has no windows. The progress of an
intermediate follows from the progress of the two sides whose pairs it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from catalog.steps import in_order, is_exchanged, made_by, taken_intermediates
from catalog.values.plan import FamilyPlan, Plan


def least(a: int | None, b: int | None) -> int | None:
    """Return the watermark of pairs: every new pair has a new row, not below its side's watermark."""
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
    """Return times per stream, extended by the times of the plan's intermediates.

    Args:
        plan: The plan.
        times: Time of each of its streams by id, µs UTC; None if a stream has none.
        combined: Returns the time of an intermediate, given the times of sides a and b.
        arrived: Times of exchanged intermediates by id, as of the previous batch, which sent their pairs. An
            intermediate without an entry has no time.
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
    """Return the times of pairs that are sent to other buckets, by the id of the exchanged intermediate.

    Args:
        plan: The plan.
        times: Result of ``with_intermediates``.
        combined: Returns the time of an intermediate, given the times of sides a and b.
    """
    taken = taken_intermediates(plan.families)
    return {
        made: combined(times[family.stream_a], times[family.stream_b])
        for family in (plan.families if taken else ())
        for made in made_by(family, taken)
        if is_exchanged(made)
    }


@dataclass(frozen=True, slots=True)
class ClockProgress:
    """Clocks by stream id, including the clocks of intermediates.

    Attributes:
        times_us: Progress in event time, µs UTC; None before the first row.
        orders: Progress in the order of the stream; None before the first row and without an order.
    """

    times_us: Mapping[int, int | None]
    orders: Mapping[int, int | None]

    @classmethod
    def of(
        cls,
        plan: Plan | None,
        times_us: Mapping[int, int | None],
        orders: Mapping[int, int | None],
        combined: Callable[[int | None, int | None], int | None],
        arrived: Mapping[int, int | None],
    ) -> Self:
        """Return the progress of streams and of a plan's intermediates.

        Args:
            plan: The plan; None before the first plan.
            times_us: Event time by stream id.
            orders: Order by stream id.
            combined: Returns the event time of an intermediate, given the event times of its two sides. The
                order progress of an intermediate is always the lower progress of its two sides, since both
                rows of a pair have the same value.
            arrived: Event time of exchanged intermediates by id.
        """
        if plan is None:
            return cls(times_us, orders)
        ordered = any(family.ordered for family in plan.families)
        return cls(
            with_intermediates(plan, times_us, combined, arrived),
            with_intermediates(plan, orders, least, {}) if ordered else orders,
        )

    def sides(self, family: FamilyPlan) -> dict[str, int | None]:
        """Return the clock of each side of a family."""
        clocks = self.orders if family.ordered else self.times_us
        return {"a": clocks[family.stream_a], "b": clocks[family.stream_b]}
