"""Query records: a query together with its life in the catalog."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.values.query import Query


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """A query that runs or ran.

    Attributes:
        query: The bound query.
        added_version: Plan version that activated it; 0 before one is set.
        removed_version: First plan version without it, or None while it runs.
        created_at_us: Wall clock when it was added, µs UTC.
        removed_at_us: Wall clock when it was removed, µs UTC, or None.
    """

    query: Query
    added_version: int
    removed_version: int | None
    created_at_us: int
    removed_at_us: int | None

    @property
    def running(self) -> bool:
        """Whether the query is desired to run."""
        return self.removed_version is None
