"""Placement of a new query: its family, and the buckets that store the rows that it checks for matches.

An inner join belongs to the family of its streams and key. For an outer, semi or anti join, one of three
families is chosen:

    beside inner joins        shares their slices; every key has one bucket while the family has such a query
    absence of one side       with ``partitioning: replicate``, the buckets of a key share the checked rows
    absence                   shares slices with other outer, semi and anti joins; every key has one bucket

A query enters the family of the inner joins only if each key has one bucket in that family anyway. A query
never changes its family, so the family is chosen when the query enters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from catalog.values.plan import FamilyPlan, Partitioning, Plan
from catalog.values.query import Query
from catalog.values.statistics import Profile
from catalog.values.stream import Stream
from planner.build.placement.replication import HASHED, chosen_replication
from planner.costs.rates import family_rates
from planner.families.families import Family, family_of, planned_query

#: Joins with a window at least this long keep their segments closed, that is, unread until a row may match
#: (``operators.lazy``). Checks of rows for matches would open all segments.
LONG_US: Final = 3_600_000_000


@dataclass(slots=True)
class QueryPlaces:
    """Chooses the placement of queries that enter in the same plan version.

    Attributes:
        partitioning: How the number of buckets that share the rows of a key is chosen (``hash``,
            ``replicate`` or ``auto``).
        streams: Registered streams by name.
        previous: Plan version in force; None before the first.
        profile: Returns the statistics of the streams and keys of some queries, including frequent keys; None
            if nothing is sampled.
        hashed: For families of inner joins that do not run yet, by id: whether each key would have one
            bucket. Filled on demand.
    """

    partitioning: Partitioning
    streams: Mapping[str, Stream]
    previous: Plan | None = None
    profile: Callable[[Sequence[Query]], Profile] | None = None
    hashed: dict[str, bool] = field(default_factory=dict)

    def placed(self, query: Query) -> Query:
        """Return a query that enters or re-enters, with ``spreads`` and ``beside_inner`` set."""
        if query.kind == "inner":
            return query
        found = spread_query(replace(query, beside_inner=False), self.partitioning, self.streams)
        return replace(found, beside_inner=self._is_beside_inner(found))

    def _is_beside_inner(self, query: Query) -> bool:
        if query.spreads or not query.key or query.clocks != ("time", "time"):
            return False
        beside, apart = (family_of(replace(query, beside_inner=way)) for way in (True, False))
        before = {} if self.previous is None else {family.id: family for family in self.previous.families}
        known = {} if self.previous is None else self.previous.replications()
        if known.get(beside, HASHED).replicates:
            return False
        if beside in before:
            return _takes_verdicts(before[beside], query)
        if apart in before or self.partitioning == "replicate":
            return False
        return self.partitioning == "hash" or self._would_be_hashed(query, beside)

    def _would_be_hashed(self, query: Query, family_id: str) -> bool:
        if self.profile is None:
            return False
        if family_id not in self.hashed:
            inner = replace(query, kind="inner", preserved=(), beside_inner=False)
            profile = self.profile([inner])
            # Filters are ignored. They only reduce the rows of a key, so the estimate is an upper bound.
            family = Family(family_id, (planned_query(inner, None, None, 0),), (), ())
            rates = family_rates(family, query.a.stream_id, query.b.stream_id, profile)
            self.hashed[family_id] = chosen_replication(family, rates) == HASHED
        return self.hashed[family_id]


def spread_query(query: Query, partitioning: Partitioning, streams: Mapping[str, Stream]) -> Query:
    """Return a new query, with ``spreads`` set if several buckets share the rows that it checks for matches.

    The checked rows of a key are spread over buckets from the first row on, or never. If a key spread to
    another bucket later, that bucket would lack rows of the other side, which must be stored in all buckets
    of their key.

    Args:
        query: The query.
        partitioning: The partitioning setting; only ``replicate`` spreads the checked rows.
        streams: Registered streams by name.
    """
    judges_one = len(query.preserved) == 1 and not query.announces
    promised = any(streams[side.stream].has_contract for side in (query.a, query.b) if side.stream in streams)
    if partitioning == "replicate" and judges_one and not promised:
        return replace(query, spreads=True)
    return query


def _takes_verdicts(family: FamilyPlan, query: Query) -> bool:
    """Return whether an outer, semi or anti join may enter a running family of inner joins."""
    longest_us = max(max(member.w_a_us, member.w_b_us) for member in family.queries)
    closed = longest_us >= LONG_US and longest_us > max(query.a.window_us, query.b.window_us)
    # Rows in rings cannot be checked for matches. If pairs are recomputed, their rows must stay stored until
    # the pairs have been made.
    return family.judges_absence or not (closed or family.probe.has_rings or family.hands_on)
