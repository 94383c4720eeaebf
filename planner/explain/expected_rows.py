"""Rows that a join without windows is expected to hold in memory, for the plan and its graph."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from planner.costs.rates import memory_rows
from planner.explain.explain import FamilyReport
from planner.families.display import FamilyText
from planner.families.families import SIDES, SideName


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """Expectation for one side.

    Attributes:
        scramble: Scrambling factor.
        lag: Rows by which the stream leads the other one.
        rows: Rows in memory for equality of the order; infinite if the other stream stands still.
    """

    scramble: float
    lag: float
    rows: float


def expected_rows(report: FamilyReport) -> dict[SideName, ExpectedRows]:
    """Return the expectation for each side whose clock is the order of its stream."""
    found: dict[SideName, ExpectedRows] = {}
    for side, other in ((SIDES[0], SIDES[1]), (SIDES[1], SIDES[0])):
        own = report.rates.side(side)
        rows = memory_rows(report.family.memory, own, report.rates.side(other))
        if own.scramble is not None and own.lag is not None and rows is not None:
            found[side] = ExpectedRows(own.scramble.value, own.lag.value, rows)
    return found


def expected_rows_text(report: FamilyReport, text: FamilyText) -> str:
    """Return the expectation in words; nothing for a join with windows."""
    parts = [
        f"{expected.rows:,.0f} rows of {text.labels[side]}"
        if isfinite(expected.rows)
        else f"all rows of {text.labels[side]}"
        for side, expected in expected_rows(report).items()
    ]
    return f"expects {', '.join(parts)} in memory" if parts else ""
