"""A plan as ``sluice plan`` prints it: its chains, and for each family the cost of every strategy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from catalog.steps import stream_names
from catalog.values.plan import Plan
from planner.explain.expected_rows import expected_rows_text
from planner.explain.explain import FamilyReport
from planner.explain.rendering.cost_table import cost_table, decision_text, statistics_text
from planner.explain.rendering.render import closing_text, render_family
from planner.families.texts.display import family_text
from planner.trees.choice import RankedOrders


def plan_report(
    plan: Plan,
    reports: Sequence[FamilyReport],
    orders: Mapping[str, RankedOrders] = MappingProxyType({}),
) -> str:
    """Return the plan of the reported families as text.

    Args:
        plan: The plan.
        reports: A report for each family to show, in the plan's order.
        orders: Possible join orders of queries over more than two streams, by query name.
    """
    lines = [*_lines(plan, reports), *(line for name in orders for line in _orders(name, orders[name]))]
    return "\n".join(lines) if reports else "no queries"


def _orders(query: str, ranked: RankedOrders) -> Iterator[str]:
    """Yield lines with the orders in which a query can join its streams, the chosen order first."""
    yield ""
    yield f"join orders for {query}, the first order is chosen"
    texts = [order.text(ranked.shape) for order in ranked.orders]
    width = max(map(len, texts))
    for text, order in zip(texts, ranked.orders, strict=True):
        changes = f"{order.exchanges} exchange{'' if order.exchanges == 1 else 's'}"
        yield f"  {text:<{width}}  {order.cpu_s:.3g} CPU s/s  {order.rows:,.0f} rows held  {changes}"


def _lines(plan: Plan, reports: Sequence[FamilyReport]) -> Iterator[str]:
    streams = stream_names(plan)
    for number, report in enumerate(reports):
        text = family_text(report.family, streams)
        if number:
            yield ""
        yield render_family(report.family, text)
        yield from (f"  {line}" for line in closing_text(report.family, plan))
        if expected := expected_rows_text(report, text):
            yield f"  {expected}"
        yield ""
        yield from (f"  {line}" for line in cost_table(report))
        yield f"  {decision_text(report)}"
        yield from (f"  {line}" for line in statistics_text(report, text))
