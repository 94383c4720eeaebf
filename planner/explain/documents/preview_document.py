"""A preview as JSON values: the plan with its costs, the primitives that lead to it, the statistics used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from catalog.steps import stream_names
from catalog.values.statistics import Measure
from planner.explain.cost_document import cost_document, rounded
from planner.explain.documents.primitive_document import primitive_documents
from planner.explain.explain import FamilyReport
from planner.explain.preview import Preview
from planner.explain.rendering.render import plan_document
from planner.families.families import SIDES, side_filters, side_stream
from planner.families.texts.display import predicate_text, title_of
from planner.trees.choice import RankedOrders


def preview_document(preview: Preview, *, now_us: int) -> dict[str, Any]:
    """Return a preview as the JSON document of ``POST /plan:preview``.

    Args:
        preview: The preview.
        now_us: Wall-clock time from which the ages of statistics are computed, µs UTC.

    Returns:
        ``plan`` as in ``GET /plan``, with costs; ``previous_version``; ``primitives``; ``rows_moved``;
        ``statistics`` with origin and age of each number; ``orders``: for each new query over more than two
        streams, the orders in which it can join them.
    """
    reports = {report.family.id: report for report in preview.reports}
    return {
        "plan": plan_document(preview.plan, reports),
        "previous_version": 0 if preview.previous is None else preview.previous.version,
        "primitives": primitive_documents(preview.previous, preview.plan, preview.primitives),
        "rows_moved": None if preview.rows_moved is None else round(preview.rows_moved),
        "statistics": statistics_document(preview, now_us=now_us),
        "orders": {name: orders_document(ranked) for name, ranked in sorted(preview.orders.items())},
    }


def dry_run_document(preview: Preview, before: Iterable[FamilyReport]) -> dict[str, Any]:
    """Return the preview of a migration as the JSON document of its dry run.

    Args:
        preview: The preview.
        before: Costs of the families as they are now.

    Returns:
        ``plan_version``, ``previous_version``, ``primitives``, ``rows_to_move``, ``bytes_to_move``; ``cost``
        ``before`` and ``after``, in total and by family.
    """
    streams = stream_names(preview.plan)
    if preview.previous is not None:
        streams |= stream_names(preview.previous)
    return {
        "plan_version": preview.plan.version,
        "previous_version": 0 if preview.previous is None else preview.previous.version,
        "primitives": primitive_documents(preview.previous, preview.plan, preview.primitives),
        "rows_to_move": None if preview.rows_moved is None else round(preview.rows_moved),
        "bytes_to_move": None if preview.bytes_moved is None else round(preview.bytes_moved),
        "cost": {"before": _costs(before, streams), "after": _costs(preview.reports, streams)},
    }


def _costs(reports: Iterable[FamilyReport], streams: Mapping[int, str]) -> dict[str, Any]:
    """Return the costs of the reported families, in total and by family."""
    found = {title_of(r.family, streams): cost_document(r.cost) for r in reports}
    names = ("memory_rows", "memory_bytes", "cpu_comparisons_per_s", "cpu_s_per_s")
    return {name: sum(cost[name] for cost in found.values()) for name in names} | {"families": found}


def orders_document(ranked: RankedOrders) -> list[dict[str, Any]]:
    """Return the orders in which a query can join its streams, the chosen order first."""
    return [
        {
            "order": order.text(ranked.shape),
            "cpu_s": rounded(order.cpu_s),
            "rows": rounded(order.rows),
            "exchanges": order.exchanges,
        }
        for order in ranked.orders
    ]


def statistics_document(preview: Preview, *, now_us: int) -> dict[str, Any]:
    """Return the statistics on which the costs are based, including assumed ones, with their origins.

    Args:
        preview: The preview.
        now_us: Wall-clock time from which the ages of statistics are computed, µs UTC.
    """
    names = stream_names(preview.plan)
    streams: dict[str, Any] = {}
    filters: dict[str, Any] = {}
    joins: dict[str, Any] = {}
    for report in preview.reports:
        family = report.family
        for side in SIDES:
            name, rates = names[side_stream(family, side)], report.rates.side(side)
            streams[name] = {
                "rate": _measure(rates.rate, now_us),
                "row_bytes": _measure(rates.row_bytes, now_us),
            }
            for bit, planned in side_filters(family, side).items():
                filters[predicate_text(planned.sql, name)] = _measure(rates.selectivity[bit], now_us)
        joins[title_of(family, names)] = _measure(report.rates.join_selectivity, now_us)
    return {
        "streams": {name: streams[name] for name in sorted(streams)},
        "filters": {text: filters[text] for text in sorted(filters)},
        "join_selectivity": joins,
        "batch_s": _measure(preview.profile.batch_s, now_us),
        "buckets": preview.profile.buckets,
    }


def _measure(measure: Measure, now_us: int) -> dict[str, Any]:
    age_s = None if measure.at_us is None else round(max(now_us - measure.at_us, 0) / 1e6, 1)
    return {"value": rounded(measure.value), "origin": measure.origin, "age_s": age_s}
