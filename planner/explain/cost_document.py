"""Costs as JSON values, for ``GET /plan`` and previews."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

from catalog.values.plan import JoinPlan, Slice
from catalog.values.query import UNBOUNDED_US
from planner.costs.cost import Cost, Terms
from planner.explain.expected_rows import ExpectedRows, expected_rows
from planner.explain.explain import Alternative, Decision, FamilyReport, decisive
from planner.families.families import SIDES, SideName, side_chain

_DIGITS = 12


def family_costs(report: FamilyReport) -> dict[str, Any]:
    """Return the cost of a family and the reason for its strategy.

    Args:
        report: The report.

    Returns:
        ``cost`` of the plan; ``costs`` by strategy, each for the plan that the strategy would choose now;
        ``decided_by``; ``hottest_bucket``: predicted work of the hottest bucket divided by the mean, as
        planned and with one bucket per key, or None if no frequent keys are known; ``chain`` if one was
        requested; for an ordered family ``predicted_rows``: scrambling factor, lag, the expected rows in
        memory for equality of the order columns, and the seconds that rows wait before they are joined.
    """
    document: dict[str, Any] = {
        "cost": cost_document(report.cost),
        "costs": {a.name: _alternative(report, a) for a in report.alternatives},
        "decided_by": decision_document(report.decided_by),
        "hottest_bucket": {
            "work": rounded(report.hottest_bucket),
            "work_hashed": rounded(report.hottest_hashed),
        }
        if report.rates.frequent
        else None,
    }
    if expected := expected_rows(report):
        document["predicted_rows"] = {
            side: None if side not in expected else _expected(expected[side]) for side in SIDES
        }
    if report.given is not None:
        document["chain"] = _alternative(report, report.given)
    return document


def _expected(side: ExpectedRows) -> dict[str, Any]:
    # If the other stream stops, rows wait forever, but JSON has no infinite numbers.
    rows, late_s = (rounded(each) if isfinite(each) else None for each in (side.rows, side.latency_s))
    return {"scramble": side.scramble, "lag": side.lag, "rows": rows, "latency_s": late_s}


def slice_costs(report: FamilyReport, join: JoinPlan, side: SideName, piece: Slice) -> dict[str, Any]:
    """Return the rows, bytes and cost of a slice of the plan, by term under both models."""
    cost = report.slices[join.id, side, piece.w_start_us]
    return {
        "memory_rows": rounded(cost.memory_rows),
        "memory_bytes": rounded(cost.memory_bytes),
        "comparisons_per_s": terms_document(cost.comparisons),
        "cpu_s_per_s": terms_document(cost.cpu_s),
    }


def cost_document(cost: Cost) -> dict[str, Any]:
    """Return a cost: rows and bytes held, and comparisons and CPU seconds per second with their terms."""
    return {
        "memory_rows": rounded(cost.memory_rows),
        "memory_bytes": rounded(cost.memory_bytes),
        "cpu_comparisons_per_s": rounded(cost.comparisons.total),
        "cpu_s_per_s": rounded(cost.cpu_s.total),
        "terms": {
            "comparisons_per_s": terms_document(cost.comparisons),
            "cpu_s_per_s": terms_document(cost.cpu_s),
        },
    }


def terms_document(terms: Terms) -> dict[str, float]:
    """Return the terms of a cost by name."""
    return {name: rounded(value) for name, value in asdict(terms).items()}


def decision_document(decision: Decision | None) -> dict[str, Any] | None:
    """Return the cost term in which two alternatives differ most, or None if their costs are equal."""
    if decision is None:
        return None
    return {
        name: rounded(value) if isinstance(value, float) else value
        for name, value in asdict(decision).items()
    }


def rounded(value: float) -> float:
    """Round to twelve digits, because further digits of a floating-point number differ between machines.

    >>> rounded(0.1 + 0.2)
    0.3
    """
    return float(f"{value:.{_DIGITS}g}")


def _alternative(report: FamilyReport, alternative: Alternative) -> dict[str, Any]:
    decision = None
    if alternative is not report.planned:
        by_memory = report.family.strategy == "mem-opt"
        decision = decisive(report.planned, alternative, report.objective, by_memory=by_memory)
    return cost_document(alternative.cost) | {
        "joins": [
            {"id": join.id, "boundaries_s": {side: _boundaries_s(join, side) for side in SIDES}}
            for join in alternative.joins
        ],
        "set_apart_by": decision_document(decision),
    }


def _boundaries_s(join: JoinPlan, side: SideName) -> list[float | None]:
    """Return the ends of a join's slices, seconds; None for an unbounded slice."""
    return [None if s.w_end_us >= UNBOUNDED_US else s.w_end_us / 1e6 for s in side_chain(join, side)]
