"""Plans as they are answered."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from api.moments import moment

PlanFormat = Literal["json", "mermaid", "dot"]


class PlanStream(BaseModel):
    """A stream that the plan reads."""

    id: int
    name: str


class PlanOut(BaseModel):
    """A version of the shared plan."""

    version: int = Field(description="Counts up from 1; 0 before the first query.")
    strategy: str
    streams: list[PlanStream] = Field(description="Every stream that a query has used so far.")
    families: list[dict[str, Any]] = Field(
        description="Queries over one pair of streams and one key: `streams`, `key`, `filters`, `chains` "
        "(slices of each side with window, queries and the filter a row needs to enter), `queries`, and "
        "`unions` (which slices feed which query)."
    )


class PlanVersionOut(BaseModel):
    """A plan version in the list of all."""

    version: int
    created_at: str

    @classmethod
    def of(cls, entry: tuple[int, int, int]) -> PlanVersionOut:
        """Return a catalog entry (version, control sequence, µs UTC) as it is answered."""
        version, _, created_at_us = entry
        return cls(version=version, created_at=moment(created_at_us))


class PlanVersionPage(BaseModel):
    """Some plan versions, oldest first."""

    items: list[PlanVersionOut]
    next_cursor: str | None = Field(description="Send as `after` for the next page; null on the last one.")
    has_more: bool
