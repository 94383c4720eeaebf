"""Models of lists of changes in requests and answers."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.queries.schemas import QueryIn, QueryOut, QueryPatch
from catalog.values.change import Change, PauseQuery, RemoveQuery, ResumeQuery

#: Maximum number of changes in a request: all are planned in one transaction, which blocks other writers.
MAX_CHANGES = 10_000

_KINDS = ("add", "update", "remove", "pause", "resume")


class NamedPatch(QueryPatch):
    """Changes to a query."""

    name: str


class ChangeIn(BaseModel):
    """One change; exactly one of the fields must be set."""

    model_config = ConfigDict(extra="forbid")

    add: QueryIn | None = Field(default=None, description="A query to add.")
    update: NamedPatch | None = Field(default=None, description="A query to change, as in PATCH.")
    remove: str | None = Field(default=None, description="Name of a query to remove permanently.")
    pause: str | None = Field(default=None, description="Name of a query to pause.")
    resume: str | None = Field(default=None, description="Name of a paused query to resume.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            said = f"given: {', '.join(given)}" if given else "none is given"
            raise ValueError(f"a change is exactly one of {', '.join(_KINDS)}; {said}")
        return self

    def to_change(self) -> Change:
        """Return the change."""
        if self.add is not None:
            return self.add.to_change()
        if self.update is not None:
            return self.update.to_change(self.update.name)
        if self.remove is not None:
            return RemoveQuery(self.remove)
        if self.pause is not None:
            return PauseQuery(self.pause)
        return ResumeQuery(self.resume or "")


class ChangesIn(BaseModel):
    """Changes that take effect together, or not at all; their order does not matter."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "changes": [
                        {"update": {"name": "gusty_departures", "window": "30 MINUTES"}},
                        {"pause": "late_arrivals"},
                    ]
                }
            ]
        },
    )

    changes: list[ChangeIn] = Field(
        min_length=1, max_length=MAX_CHANGES, description="At most one change of each query."
    )


class ChangesOut(BaseModel):
    """Outcome of a list of changes."""

    plan_version: int = Field(description="Plan version that contains all the changes.")
    queries: list[QueryOut] = Field(description="The changed queries, in the order of the changes.")
