"""Plans in answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.queries.schemas import QueryIn
from api.timestamps import timestamp
from catalog.store.repositories.plan_history import HistoryEntry
from catalog.values.plan import Strategy
from planner.costs.cost import CostModelName
from service.documents.statistics_document import ChainDocument, StatisticsDocument
from service.planning.preview import NewQuery, PreviewRequest
from service.planning.records.plan_record import record_in

PlanFormat = Literal["json", "text", "mermaid", "dot", "svg"]


class PlanStream(BaseModel):
    """A stream that the plan reads."""

    id: int
    name: str


class PlanOut(BaseModel):
    """A version of the shared plan."""

    version: int = Field(description="Number of the version, counted from 1; 0 before the first query.")
    strategy: Strategy = Field(description="Strategy of families that have no strategy of their own.")
    streams: list[PlanStream] = Field(description="Every stream that a query has used so far.")
    families: list[dict[str, Any]] = Field(
        description="Queries over one pair of streams and one key. Fields: `strategy`, `streams`, `key`, "
        "`filters`, `queries`. `joins`: each with its `chains`, which list the slices of each side with "
        "window, queries, the filter that admits rows, whether the end is lazy, and `cost` by term. `lead` "
        "(only without a key): the `condition` by which pairs are found, and its `share` of all pairs of a "
        "sample, null if no other condition was possible. `chains`: the chains of the join, if there is only "
        "one join. `unions`: the slices that feed each query. `cost`: cost of the plan. `costs`: for each "
        "strategy, the cost of the plan that it would choose now (`memory_rows`, `memory_bytes`, "
        "`cpu_comparisons_per_s`, `cpu_s_per_s`, and the `terms` of both CPU costs). `decided_by`: the cost "
        "term that contributes most to the difference from the next best plan."
    )


class PreviewIn(BaseModel):
    """A change to preview; omitted parts keep their present values."""

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

    add: list[QueryIn] = Field(default_factory=list, description="Queries that would be added.")
    remove: list[str] = Field(
        default_factory=list, description="Names of queries that would be removed, before others are added."
    )
    strategy: Strategy | None = Field(
        default=None, description="Strategy of families that have no strategy of their own."
    )
    family_strategies: dict[str, Strategy] = Field(
        default_factory=dict, description="Strategies of single families, by key (`A.k = B.k`) or id."
    )
    statistics: StatisticsDocument = Field(
        default=StatisticsDocument(), description="Statistics that override measured and sampled ones."
    )
    cost_model: CostModelName | None = Field(
        default=None, description="Cost model by which the plan is chosen; by default the service's own."
    )
    c_sys: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="System overhead C_sys of the paper's model, comparisons per row and slice.",
    )
    chain: ChainDocument | None = Field(
        default=None,
        description="Ends of slices: a chain whose cost is reported next to the costs of the strategies.",
    )

    def to_request(self) -> PreviewRequest:
        """Return the request in the form that the planner uses."""
        return PreviewRequest(
            add=tuple(NewQuery(q.name, q.cql, q.backfill) for q in self.add),
            remove=tuple(self.remove),
            strategy=self.strategy,
            family_strategies=self.family_strategies,
            statistics=self.statistics,
            cost_model=self.cost_model,
            c_sys=self.c_sys,
            chain=self.chain,
        )


class PreviewOut(BaseModel):
    """Expected effect of a change."""

    plan: PlanOut = Field(
        description="The resulting plan. If the request has `chain`, the family concerned also has `chain`: "
        "the cost of the requested slices."
    )
    previous_version: int = Field(description="Plan version that precedes the change; 0 if there is none.")
    primitives: list[dict[str, Any]] = Field(
        description="Steps from the running plan to the resulting plan, each with `type` (`split`, `merge`, "
        "`extend`, `truncate`, `set-filter`, `set-routes`, `open-join`, `close-join`), `family`, `join` and "
        "`text`."
    )
    rows_moved: int | None = Field(
        description="Upper bound on the rows in the state that would move to another slice; null if no rows "
        "have been counted yet."
    )
    statistics: dict[str, Any] = Field(
        description="Statistics on which the costs are based, each with `value`, `origin` (`given`, "
        "`measured`, `sampled` or `assumed`) and `age_s`."
    )
    orders: dict[str, list[dict[str, Any]]] = Field(
        default_factory=dict,
        description="For each new query over more than two streams, its cheapest join orders, the chosen one "
        "first. Each has `order` such as `((f, w), p)`, `cpu_s` (CPU seconds per second of event time), "
        "`rows` in the state, and `exchanges`; each exchange delays results by one batch.",
    )


class HistoryOut(BaseModel):
    """Entry of the plan history: author and cause of a version, and its changes."""

    created_at: str | None = Field(description="Time at which the version was created.")
    actor: str | None = Field(description="Author of the change: `X-Actor` of the request.")
    cause: str | None = Field(description="The change in words.")
    changes: list[dict[str, Any]] = Field(
        description="Steps from the previous version, each with `type`, `family`, `join` and `text`. Of "
        "routes and filters only `added` and `removed` are given. Equal changes of neighbouring slices are "
        "shown as one step."
    )
    changes_left_out: int = Field(description="Number of steps that are not kept.")


class PlanVersionOut(HistoryOut):
    """A plan version in the list of all versions."""

    version: int
    strategy: Strategy | None = Field(description="Strategy of families that have no strategy of their own.")

    @classmethod
    def of(cls, entry: HistoryEntry) -> PlanVersionOut:
        """Build the response model of a history entry."""
        return cls(version=entry.version, strategy=record_in(entry).strategy, **history_of(entry))


class PlanVersionDetail(PlanOut, HistoryOut):
    """A plan version with its history."""

    dropped: bool = Field(
        description="True if the plan itself has been deleted; `streams` and `families` are then empty."
    )


def history_of(entry: HistoryEntry | None) -> dict[str, Any]:
    """Return the fields of `HistoryOut`; pass None for a version older than the history."""
    if entry is None:
        return {"created_at": None, "actor": None, "cause": None, "changes": [], "changes_left_out": 0}
    record = record_in(entry)
    return {
        "created_at": timestamp(entry.created_at_us),
        "actor": entry.actor,
        "cause": entry.cause,
        "changes": list(record.changes),
        "changes_left_out": record.changes_left_out,
    }


class PlanVersionPage(BaseModel):
    """Some plan versions, oldest first."""

    items: list[PlanVersionOut]
    next_cursor: str | None = Field(description="Send as `after` for the next page; null on the last one.")
    has_more: bool
