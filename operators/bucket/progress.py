"""Progress of streams and intermediates on the clocks of families.

The clock of a family is event time, or the order of its streams if it has no windows. The progress of an
intermediate follows from that of the two sides whose pairs it holds (``operators.steps.watermarks``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from catalog.values.plan import FamilyPlan, Plan
from operators.steps.watermarks import least, with_intermediates


@dataclass(frozen=True, slots=True)
class ClockProgress:
    """Clocks by stream id, those of intermediates included.

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
            plan: The plan; None before there is one.
            times_us: Event time by stream id.
            orders: Order by stream id.
            combined: Returns the event time of an intermediate, given those of its two sides. Its order is
                always the lesser of theirs, since both rows of a pair have the same value.
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
