"""How far streams and intermediates have come, on the clocks that families run on.

A family runs on event time, or on the order of its streams if it has no windows. An intermediate has come as
far as the two sides whose pairs it is (``operators.steps.watermarks``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from catalog.values.plan import FamilyPlan, Plan
from operators.steps.watermarks import with_intermediates


@dataclass(frozen=True, slots=True)
class ClockProgress:
    """Clocks by stream id, those of intermediates included.

    Attributes:
        times_us: On event time, µs UTC; None before the first row.
        orders: On the order of the stream; None for a stream without one, too.
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
    ) -> Self:
        """Return the progress of streams with that of a plan's intermediates.

        Args:
            plan: The plan; None before there is one.
            times_us: Event time by stream id.
            orders: Order by stream id.
            combined: Gives the clock of an intermediate from those of its two sides.
        """
        if plan is None:
            return cls(times_us, orders)
        ordered = any(family.ordered for family in plan.families)
        return cls(
            with_intermediates(plan, times_us, combined),
            with_intermediates(plan, orders, combined) if ordered else orders,
        )

    def sides(self, family: FamilyPlan) -> dict[str, int | None]:
        """Return the clock of each side of a family."""
        clocks = self.orders if family.ordered else self.times_us
        return {"a": clocks[family.stream_a], "b": clocks[family.stream_b]}
