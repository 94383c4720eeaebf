"""Refusal of queries whose results would be wrong if a stream evicts rows before their windows end.

A *horizon* (``catalog.values.control.Horizon``) removes rows below an event time from the state of a stream.
Eviction must not make results wrong. In an outer, semi or anti join, a row whose partner was evicted would be
returned as a row without a partner. In a join of more than two streams, a stored combination of rows may
still contain the evicted row.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.values.query import Query
from planner.errors import UnsupportedCql
from planner.sql.scopes.scope import SideScope


def refuse_horizon(query: Query, written: Sequence[SideScope]) -> None:
    """Refuse a query that needs rows that a stream may evict when its state reaches its cap.

    Args:
        query: The bound query.
        written: Streams of the query.

    Raises:
        UnsupportedCql: A stream evicts rows, and the query is not an inner join of two streams with time
            windows.
    """
    evicting = next((this for this in written if this.stream.evicts), None)
    if evicting is None:
        return
    for wrong, what in (
        (query.left is not None, "a join of more than two streams"),
        (query.kind != "inner", f"{'an' if query.kind in ('outer', 'anti') else 'a'} {query.kind} join"),
        (query.ordered, "a join without windows"),
        (query.counts_rows, "a window of rows"),
    ):
        if wrong:
            raise UnsupportedCql(
                f'{what} over stream "{evicting.stream.name}" is not supported, because its oldest rows may '
                "be evicted at its cap",
                detail=f"The stream has state_cap_mb: {evicting.stream.state_cap_mb} and at_cap: evict.",
                hint="Set at_cap of the stream to stop, or give it retain instead of a cap.",
                at=evicting.source.at,
            )
