"""Progress of streams and intermediates on the clocks of families.

The clock of a family is event time. In a family without windows, it is the order of the family's streams. The
progress of an intermediate follows from the progress of the two sides of the family that makes its pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from catalog.steps import in_order, is_exchanged, made_by, taken_intermediates
from catalog.values.plan import FamilyPlan, Plan


def least(a: int | None, b: int | None) -> int | None:
    """Return the watermark of pairs of two sides: the lower watermark, or None if a side has none.

    A new pair contains a new row, and no new row is below the watermark of its side.
    """
    return None if a is None or b is None else min(a, b)


def latest(a: int | None, b: int | None) -> int | None:
    """Return an event time that no pair of two sides exceeds, given each side's newest event time."""
    return max((time for time in (a, b) if time is not None), default=None)


def with_intermediates(
    plan: Plan,
    times: Mapping[int, int | None],
    combined: Callable[[int | None, int | None], int | None],
    arrived: Mapping[int, int | None],
) -> dict[int, int | None]:
    """Return the progress of streams, extended by the progress of the plan's intermediates.

    Args:
        plan: The plan.
        times: Time of each stream of the plan by id, µs UTC, or None if the stream has no time yet.
        combined: Returns the time of an intermediate, given the times of sides a and b.
        arrived: Times of exchanged intermediates by id, at the end of the batch that sent their pairs. An
            exchanged intermediate without an entry has no time.
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
    """Return the progress that exchanged pairs carry to other buckets, by the id of their intermediate.

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
    """Progress of streams and intermediates, by stream id.

    Attributes:
        times_us: Progress in event time, µs UTC, or None before the first row.
        orders: Progress in the stream's order, or None before the first row or without an order.
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
            plan: The plan, or None before the first plan.
            times_us: Progress in event time by stream id, µs UTC.
            orders: Progress in the stream's order by stream id.
            combined: Returns the event time of an intermediate, given the event times of its two sides. In
                their order, an intermediate always has the lower progress of its two sides, because both rows
                of a pair have the same value.
            arrived: Event times of exchanged intermediates by id (``with_intermediates``).
        """
        if plan is None:
            return cls(times_us, orders)
        ordered = any(family.ordered for family in plan.families)
        return cls(
            with_intermediates(plan, times_us, combined, arrived),
            with_intermediates(plan, orders, least, {}) if ordered else orders,
        )

    def sides(self, family: FamilyPlan) -> dict[str, int | None]:
        """Return the progress of each side of a family on the family's clock."""
        clocks = self.orders if family.ordered else self.times_us
        return {"a": clocks[family.stream_a], "b": clocks[family.stream_b]}
