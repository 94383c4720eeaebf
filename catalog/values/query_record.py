"""Query records: a query together with its life in the catalog.

A query never changes. What people call a query is a *series*: the queries that had its name one after the
other since it was added, each with an id of its own. An update, a pause and a resume continue the series;
removing ends it.

    add "q"        update "q"        pause "q"       resume "q"       remove "q"
      |-- id 3 ---------|-- id 5 --------|               |-- id 8 ----------|        series 3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catalog.values.query import Query

#: Why a query left the plan.
LeftBy = Literal["remove", "pause", "update"]

#: In place of missing columns: no row from before the activation takes part at all.
ALL_ROWS = "*"


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A query that runs, ran, or waits paused.

    Attributes:
        query: The bound query.
        added_version: Plan version that activated it; 0 before one is set.
        removed_version: First plan version without it, or None while it runs. A paused query whose text is
            changed gets a record that leaves with the version it comes with: no plan has it.
        created_at_us: Wall clock when it was added, µs UTC.
        removed_at_us: Wall clock when it left, or was removed while it was paused, µs UTC, or None.
        series: Id of the first query of its series.
        left_by: Why it left; None while it runs.
        missing: Columns (``alias.column``) that earlier rows had not kept when it came, so that those rows
            cannot take part; ``ALL_ROWS`` alone if no earlier row takes part.
    """

    query: Query
    added_version: int
    removed_version: int | None
    created_at_us: int
    removed_at_us: int | None
    series: int
    left_by: LeftBy | None
    missing: tuple[str, ...]

    @property
    def running(self) -> bool:
        """Whether the query is desired to run."""
        return self.removed_version is None

    @property
    def paused(self) -> bool:
        """Whether the query is paused, if it is the newest of its series."""
        return self.left_by == "pause"

    @property
    def entered(self) -> bool:
        """Whether a plan ever had, or has, the query: not if its text came and went while it was paused."""
        return self.removed_version != self.added_version

    @property
    def wanted(self) -> bool:
        """Whether its name is taken, if it is the newest of its series."""
        return self.running or self.paused
