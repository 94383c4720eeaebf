"""Costs as ``sluice plan`` prints them: a table of all strategies, and the term that sets the plan apart.

strategy    memory rows  memory bytes  comparisons/s  cpu s/s  set apart by
mem-opt          44,000     2,816,000        820,000    0.031  chosen
pullup           60,000     3,840,000      1,220,000    0.052  memory rows 60,000
"""

from __future__ import annotations

from catalog.values.statistics import Measure
from planner.explain.explain import PLANNED, Alternative, Decision, FamilyReport, decisive
from planner.families.families import SIDES
from planner.families.texts.display import FamilyText

_HEAD = ("strategy", "memory rows", "memory bytes", "comparisons/s", "cpu s/s", "set apart by")


def cost_table(report: FamilyReport) -> list[str]:
    """Return the costs of all strategies of a family as lines of text.

    A plan that its strategy would not choose now (a pinned plan, for example) has its own line. The last
    column names, for each alternative, the term that contributes most to its difference from the chosen
    plan. If the difference is negative, the alternative costs less by this term.

    Args:
        report: The family's report.

    Returns:
        Lines without line breaks.
    """
    rows = [_HEAD]
    chosen = report.planned
    others = [] if chosen in report.alternatives else [chosen]
    others += [] if report.given is None else [report.given]
    for alternative in (*report.alternatives, *others):
        cost = alternative.cost
        rows.append(
            (
                alternative.name,
                _number(cost.memory_rows),
                _number(cost.memory_bytes),
                _number(cost.comparisons.total),
                _number(cost.cpu_s.total),
                "chosen" if alternative is chosen else _apart(report, chosen, alternative),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    return [
        "  ".join(
            cell.rjust(width) if 0 < i < len(_HEAD) - 1 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def decision_text(report: FamilyReport) -> str:
    """Return a sentence on the cost term that sets a family's plan apart from the next best alternative."""
    strategy = report.family.strategy
    aim = {"mem-opt": "fewest rows", "cpu-opt": f"least CPU of all chains, {report.objective} model"}
    asked = aim.get(strategy, "as requested")
    if report.planned.name == PLANNED:
        asked = "pinned or retained boundaries" if report.family.given else f"{strategy} on other statistics"
    decision = report.decided_by
    if decision is None:
        return f"{report.planned.name} ({asked}): every strategy costs the same"
    verdict = "decided" if decision.chosen_total <= decision.other_total else f"beaten by {decision.against}"
    return (
        f"{report.planned.name} ({asked}): {verdict} by {decision.term.replace('_', ' ')}, "
        f"{_number(decision.chosen)} {decision.unit} against {_number(decision.other)} of {decision.against}"
    )


def statistics_text(report: FamilyReport, text: FamilyText) -> list[str]:
    """Return the statistics from which a family's costs follow, with their origins, as lines of text."""
    rates = report.rates
    lines = []
    for side in SIDES:
        own = rates.side(side)
        rate, width = _measure(own.rate, "rows/s"), _measure(own.row_bytes, "bytes/row")
        lines.append(f"{text.labels[side]}: {rate}, {width}")
        passing = (_measure(m, f"pass {text.filter(side, bit)}") for bit, m in own.selectivity.items())
        lines += [f"  {line}" for line in passing]
    parts = [
        _measure(rates.join_selectivity, "of all pairs join"),
        _measure(rates.batch_s, "s of event time per batch"),
    ]
    lines.append(", ".join([*parts, f"{rates.buckets} buckets"]))
    if rates.frequent and rates.buckets > 1:
        planned, hashed = report.hottest_bucket, report.hottest_hashed
        text_of_plan = f"the hottest bucket has {_number(planned)} times the mean work"
        lines.append(text_of_plan if planned == hashed else f"{text_of_plan}, hashed {_number(hashed)} times")
    return lines


def _apart(report: FamilyReport, chosen: Alternative, other: Alternative) -> str:
    by_memory = report.family.strategy == "mem-opt"
    decision = decisive(chosen, other, report.objective, by_memory=by_memory)
    return "nothing" if decision is None else _difference(decision)


def _difference(decision: Decision) -> str:
    difference = decision.other - decision.chosen
    sign = "+" if difference > 0 else "-"
    return f"{decision.term.replace('_', ' ')} {sign}{_number(abs(difference))}"


def _measure(measure: Measure, what: str) -> str:
    return f"{_number(measure.value)} {what} ({measure.origin})"


def _number(value: float) -> str:
    """Format a number with four digits, or with all digits of a longer integer part, separated by thousands.

    >>> [_number(v) for v in (0, 44_000.2, 12.345, 0.000123456, 1e-9)]
    ['0', '44,000', '12.35', '0.0001235', '1e-09']
    """
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
