"""A plan as ``sluice plan`` prints it: its chains, and for each family what every strategy would cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.explain.cost_table import cost_table, decision_text, statistics_text
from planner.explain.explain import FamilyReport
from planner.explain.render import render_family
from planner.families.display import family_text


def plan_report(reports: Sequence[FamilyReport], streams: Mapping[int, str]) -> str:
    """Return the plan of the families as text.

    Args:
        reports: A report for each family, in the plan's order.
        streams: Names of streams by id.
    """
    return "\n".join(_lines(reports, streams)) if reports else "no queries"


def _lines(reports: Sequence[FamilyReport], streams: Mapping[int, str]) -> Iterator[str]:
    for number, report in enumerate(reports):
        text = family_text(report.family, streams)
        if number:
            yield ""
        yield render_family(report.family, text)
        yield ""
        yield from (f"  {line}" for line in cost_table(report))
        yield f"  {decision_text(report)}"
        yield from (f"  {line}" for line in statistics_text(report, text))
