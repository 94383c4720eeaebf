"""The structure of a plan as a small document: everything that a drawing needs, for any number of queries.

The document of ``GET /plan`` lists the queries of every slice. A thousand queries with a thousand different
windows would therefore need a million names. In this document a query has its windows instead: it uses all
slices that start before its window ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.steps import stream_names
from catalog.values.plan import FamilyPlan, JoinPlan, Plan
from catalog.values.query import UNBOUNDED_US
from planner.families.families import (
    SIDES,
    SideName,
    clocks_document,
    side_chain,
    side_filter,
    side_filters,
    side_stream,
    side_window_us,
)
from planner.families.texts.display import FamilyText, family_text


def plan_structure(plan: Plan) -> dict[str, Any]:
    """Return a plan without costs and without facts that follow from the queries' windows.

    Args:
        plan: The plan.

    Returns:
        JSON values with the names of the document of ``GET /plan``. Windows are in µs, None for unbounded.
    """
    streams = stream_names(plan)
    return {
        "version": plan.version,
        "strategy": plan.strategy,
        "streams": [{"id": s.id, "name": s.name} for s in plan.streams],
        "families": [_family(f, family_text(f, streams), streams) for f in plan.families],
    }


def _family(family: FamilyPlan, text: FamilyText, streams: Mapping[int, str]) -> dict[str, Any]:
    names = {q.id: q.name for q in family.queries}
    return {
        "id": family.id,
        "title": text.title,
        "strategy": family.strategy,
        "streams": {
            side: {"id": side_stream(family, side), "name": streams[side_stream(family, side)]}
            for side in SIDES
        },
        "key": [{"a": of_a, "b": of_b} for of_a, of_b in family.key],
        "filters": {
            side: [
                {"bit": f.bit, "text": text.filter(side, f.bit), "sql": f.sql}
                for f in side_filters(family, side).values()
            ]
            for side in SIDES
        },
        "joins": [
            {
                "id": join.id,
                "queries": [names[i] for i in join.queries],
                "chains": {side: _chain(family, join, side, text) for side in SIDES},
            }
            for join in family.joins
        ],
        "queries": [
            {
                "id": q.id,
                "name": q.name,
                "window_us": {side: _bounded(side_window_us(q, side)) for side in SIDES},
                "filter": {side: text.filter(side, side_filter(q, side)) for side in SIDES},
                "residual": None if q.residual is None else text.residual(q.residual),
            }
            | clocks_document(family)
            for q in family.queries
        ],
    }


def _chain(family: FamilyPlan, join: JoinPlan, side: SideName, text: FamilyText) -> list[dict[str, Any]]:
    return [
        {
            "slice": number,
            "w_start_us": piece.w_start_us,
            "w_end_us": _bounded(piece.w_end_us),
            "keep_bits": None if piece.keep is None else list(piece.keep),
            "lazy_end": lazy,
        }
        for number, (piece, lazy) in enumerate(
            zip(side_chain(join, side), family.lazy_ends(join, side), strict=True), start=1
        )
    ]


def _bounded(window_us: int) -> int | None:
    return None if window_us >= UNBOUNDED_US else window_us
