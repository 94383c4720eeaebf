"""Rows that a join without windows is expected to hold in memory, as plans and plan graphs show them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

from planner.costs.rates import memory_rows
from planner.explain.explain import FamilyReport
from planner.families.families import SIDES, SideName
from planner.families.texts.display import FamilyText
from planner.orders.buffers import OrderedStream, latency_s


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """Expected rows and latency of one side.

    Attributes:
        scramble: Scrambling factor of the side's stream.
        lag: Number of rows by which the stream is ahead of the other stream.
        rows: Expected rows in memory for equality of the order columns; infinite if the other stream stops.
        latency_s: Seconds that a row waits before it is joined; infinite if its own stream stops.
    """

    scramble: float
    lag: float
    rows: float
    latency_s: float


def expected_rows(report: FamilyReport) -> dict[SideName, ExpectedRows]:
    """Return the expected rows and latency of each side whose clock is the order of its stream."""
    found: dict[SideName, ExpectedRows] = {}
    for side, other in ((SIDES[0], SIDES[1]), (SIDES[1], SIDES[0])):
        own = report.rates.side(side)
        rows = memory_rows(report.family.memory, own, report.rates.side(other))
        if own.scramble is not None and own.lag is not None and rows is not None:
            late_s = latency_s(report.family.memory, OrderedStream(own.scramble.value, own.rate.value))
            found[side] = ExpectedRows(own.scramble.value, own.lag.value, rows, late_s)
    return found


def expected_rows_text(report: FamilyReport, text: FamilyText) -> str:
    """Return the expected rows and latency as text; empty for a join with windows."""
    found = expected_rows(report)
    parts = [
        f"{expected.rows:,.0f} rows of {text.labels[side]}"
        if isfinite(expected.rows)
        else f"all rows of {text.labels[side]}"
        for side, expected in found.items()
    ]
    late_s = max((expected.latency_s for expected in found.values()), default=0.0)
    late = f", results {late_s:,.1f} s late" if 0 < late_s < inf else ""
    return f"expects {', '.join(parts)} in memory{late}" if parts else ""
