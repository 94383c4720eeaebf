"""Instructions to PACK for a stream: the parts of a plan version that are needed to pack its rows.

Code that distributes the input can read these instructions without loading the packing code
(``operators.pack.pack``). The instructions are small: they contain only the distinct filters, regardless of
the number of queries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.values.plan import FamilyPlan, Plan, PlannedFilter
from catalog.values.stream import Stream
from operators.closings.contract import SideContract, side_contract


@dataclass(frozen=True, slots=True)
class SidePlan:
    """One side of a family that reads the stream.

    Attributes:
        family: The family, without queries and joins.
        side: ``a`` or ``b``.
        takes_all: True if some query or join uses every row of this side (no filter, or selection pull-up).
        keyless: True if rows without a key are also sent, because they can be results of outer and anti
            joins.
        contract: Part of the stream's contract that the side can use; None if it can use no part.
    """

    family: FamilyPlan
    side: str
    takes_all: bool
    keyless: bool
    contract: SideContract | None = None

    @property
    def filters(self) -> tuple[PlannedFilter, ...]:
        """Distinct filters of the side, in the order of their bits in the lineage words."""
        return self.family.filters_a if self.side == "a" else self.family.filters_b


@dataclass(frozen=True, slots=True)
class PackPlan:
    """Instructions to PACK for one stream.

    Attributes:
        stream: The stream.
        sides: The family sides that read the stream.
        buckets: Number of buckets.
    """

    stream: Stream
    sides: tuple[SidePlan, ...]
    buckets: int


def pack_plan(plan: Plan, stream: Stream, buckets: int) -> PackPlan:
    """Return the instructions of a plan version for one of its streams."""
    sides = []
    for family in plan.families:
        for side, fed_by in (("a", family.stream_a), ("b", family.stream_b)):
            if fed_by == stream.id:
                asked = replace(family, queries=(), joins=())
                keyless = side in family.keyless_sides
                contract = side_contract(family, side, stream)
                sides.append(SidePlan(asked, side, _takes_all(family, side), keyless, contract))
    return PackPlan(stream, tuple(sides), buckets)


def _takes_all(family: FamilyPlan, side: str) -> bool:
    filters = [query.filter_a if side == "a" else query.filter_b for query in family.queries]
    return None in filters or any(join.pulled_up for join in family.joins)
