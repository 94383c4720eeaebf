"""A preview as JSON values: the plan with its costs, the primitives that lead to it, the statistics used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.values.plan import Plan
from catalog.values.primitive import (
    CloseJoin,
    Extend,
    Merge,
    OpenJoin,
    Primitive,
    SetFilter,
    SetRoutes,
    Split,
    Truncate,
)
from catalog.values.query import UNBOUNDED_US
from catalog.values.statistics import Measure
from planner.cost_document import rounded
from planner.display import FamilyText, display_duration, family_text, predicate_text
from planner.families import SIDES, side_filters, side_stream
from planner.preview import Preview
from planner.render import plan_document


def preview_document(preview: Preview, *, now_us: int) -> dict[str, Any]:
    """Return a preview as the JSON document of ``POST /plan:preview``.

    Args:
        preview: The preview.
        now_us: Wall clock to which ages refer, µs UTC.

    Returns:
        ``plan`` as in ``GET /plan``, with costs; ``previous_version``; ``primitives``; ``rows_moved``;
        ``statistics`` with origin and age of each number.
    """
    reports = {report.family.id: report for report in preview.reports}
    return {
        "plan": plan_document(preview.plan, reports),
        "previous_version": 0 if preview.previous is None else preview.previous.version,
        "primitives": _primitives(preview),
        "rows_moved": None if preview.rows_moved is None else round(preview.rows_moved),
        "statistics": statistics_document(preview, now_us=now_us),
    }


def statistics_document(preview: Preview, *, now_us: int) -> dict[str, Any]:
    """Return the statistics that the costs rest on, assumed ones included, with their origins.

    Args:
        preview: The preview.
        now_us: Wall clock to which ages refer, µs UTC.
    """
    names = {s.id: s.name for s in preview.plan.streams}
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
        joins[family_text(family, names).title] = _measure(report.rates.join_selectivity, now_us)
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


def _primitives(preview: Preview) -> list[dict[str, Any]]:
    texts: dict[str, FamilyText] = {}
    queries: dict[int, str] = {}
    for plan in (preview.previous, preview.plan):
        if plan is not None:
            texts |= _texts(plan)
            queries |= {q.id: q.name for f in plan.families for q in f.queries}
    return [
        {"type": _KINDS[type(step)], "family": texts[step.family].title, "family_id": step.family}
        | {"join": step.join}
        | _facts(step, texts[step.family], queries)
        for step in preview.primitives
    ]


def _texts(plan: Plan) -> dict[str, FamilyText]:
    streams = {s.id: s.name for s in plan.streams}
    # A family that left may have been over a stream that is gone.
    streams |= {i: str(i) for f in plan.families for i in (f.stream_a, f.stream_b) if i not in streams}
    return {f.id: family_text(f, streams) for f in plan.families}


_KINDS: Mapping[type[Primitive], str] = {
    Split: "split",
    Merge: "merge",
    Extend: "extend",
    Truncate: "truncate",
    SetFilter: "set-filter",
    SetRoutes: "set-routes",
    OpenJoin: "open-join",
    CloseJoin: "close-join",
}


def _facts(step: Primitive, text: FamilyText, queries: Mapping[int, str]) -> dict[str, Any]:
    """Return what a primitive says beyond where, and the same in words."""
    match step:
        case Split(side=side, at_us=at) | Merge(side=side, at_us=at):
            facts: dict[str, Any] = {"side": side, "at_us": at}
            words = f"{text.labels[side]} at {display_duration(at)}"
        case Extend(side=side, from_us=start, to_us=to) | Truncate(side=side, from_us=start, to_us=to):
            facts = {"side": side, "from_us": _bounded(start), "to_us": _bounded(to)}
            words = f"{text.labels[side]} from {display_duration(start)} to {display_duration(to)}"
        case SetFilter(side=side, w_start_us=start, w_end_us=to, keep=keep):
            shown = None if keep is None else text.keep(side, keep)
            facts = {
                "side": side,
                "w_start_us": start,
                "w_end_us": _bounded(to),
                "keep": shown,
                "keep_bits": None if keep is None else list(keep),
            }
            window = f"[{display_duration(start)}, {display_duration(to)})"
            words = f"of {text.labels[side]} {window}: {'every row' if shown is None else shown}"
        case SetRoutes(queries=ids):
            facts = {"queries": [queries[i] for i in ids]}
            words = f"to {', '.join(facts['queries'])}"
        case _:
            facts, words = {}, step.join
    return facts | {"text": f"{_KINDS[type(step)].replace('-', ' ')} {words}"}


def _bounded(window: int) -> int | None:
    return None if window >= UNBOUNDED_US else window
