"""Plans as they are answered."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.moments import moment
from api.queries.schemas import QueryIn
from catalog.values.plan import Strategy
from planner.explain import CostModelName
from service.preview import NewQuery, PreviewRequest
from service.statistics_document import ChainDocument, StatisticsDocument

PlanFormat = Literal["json", "mermaid", "dot"]


class PlanStream(BaseModel):
    """A stream that the plan reads."""

    id: int
    name: str


class PlanOut(BaseModel):
    """A version of the shared plan."""

    version: int = Field(description="Counts up from 1; 0 before the first query.")
    strategy: Strategy = Field(description="How families are joined that have no strategy of their own.")
    streams: list[PlanStream] = Field(description="Every stream that a query has used so far.")
    families: list[dict[str, Any]] = Field(
        description="Queries over one pair of streams and one key: `strategy`, `streams`, `key`, `filters`, "
        "`joins` (each with its `chains`: slices of each side with window, queries, the filter a row needs "
        "to enter and `cost` by term), `chains` (those of the only join, if it is one), `queries`, "
        "`unions` (which slices feed which query), `cost` of the plan, `costs` of every strategy "
        "(`memory_rows`, `memory_bytes`, `cpu_comparisons_per_s`, `cpu_s_per_s`, the `terms` of both) and "
        "`decided_by`, the number that sets the plan apart from the next best."
    )


class PreviewIn(BaseModel):
    """A change to preview: what is left out stays as it is."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "strategy": "cpu-opt",
                    "statistics": {
                        "streams": {"flights": {"rate": 50.0, "row_bytes": 48}},
                        "join_selectivity": 0.025,
                    },
                    "cost_model": "paper",
                    "c_sys": 0.5,
                }
            ]
        },
    )

    add: list[QueryIn] = Field(default_factory=list, description="Queries that would come.")
    remove: list[str] = Field(
        default_factory=list, description="Names of queries that would go, before others come."
    )
    strategy: Strategy | None = Field(
        default=None, description="Strategy of families that have none of their own."
    )
    family_strategies: dict[str, Strategy] = Field(
        default_factory=dict, description="Strategies of single families, by key (`A.k = B.k`) or id."
    )
    statistics: StatisticsDocument = Field(
        default=StatisticsDocument(), description="Numbers that rule over measured and sampled ones."
    )
    cost_model: CostModelName | None = Field(
        default=None, description="Model whose CPU cost decides; the service's own by default."
    )
    c_sys: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="System overhead C_sys of the paper's model, comparisons per row and slice.",
    )
    chain: ChainDocument | None = Field(
        default=None, description="Where slices end: a chain to be costed beside the strategies."
    )

    def to_request(self) -> PreviewRequest:
        """Return the request as the service takes it."""
        return PreviewRequest(
            add=tuple(NewQuery(q.name, q.cql, q.backfill) for q in self.add),
            remove=tuple(self.remove),
            strategy=self.strategy,
            family_strategies=self.family_strategies,
            statistics=self.statistics.to_given(),
            cost_model=self.cost_model,
            c_sys=self.c_sys,
            chain=self.chain,
        )


class PreviewOut(BaseModel):
    """What a change would do."""

    plan: PlanOut = Field(
        description="The plan that would be built. With `chain` in the request its family has `chain`, too: "
        "the cost of those slices."
    )
    previous_version: int = Field(description="Plan version that it was previewed against; 0 for none.")
    primitives: list[dict[str, Any]] = Field(
        description="Steps from the running plan to this one, each with `type` (`split`, `merge`, `extend`, "
        "`truncate`, `set-filter`, `set-routes`, `open-join`, `close-join`), `family`, `join` and `text`."
    )
    rows_moved: int | None = Field(
        description="Held rows that would change their slice, at most; null if none have been counted yet."
    )
    statistics: dict[str, Any] = Field(
        description="Numbers that the costs rest on, each with `value`, `origin` (`given`, `measured`, "
        "`sampled` or `assumed`) and `age_s`."
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
