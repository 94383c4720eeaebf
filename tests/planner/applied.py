"""Plans as text, and primitives carried out on the shapes of joins: what tests look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from catalog.steps import stream_names
from catalog.values.plan import Plan
from catalog.values.primitive import Primitive
from planner.build.transitions.diff import JoinKey, Shape, apply_primitive
from planner.explain.rendering.render import render_family
from planner.families.texts.display import family_text


def render_text(plan: Plan, names: Mapping[int, str] | None = None) -> str:
    """Return all families of a plan as ``sluice plan`` prints them, with other names of queries by id."""
    if not plan.families:
        return "no queries"
    streams = stream_names(plan)
    return "\n".join(render_family(f, family_text(f, streams), names) for f in plan.families)


def apply_primitives(before: Mapping[JoinKey, Shape], steps: Iterable[Primitive]) -> dict[JoinKey, Shape]:
    """Return the joins after some primitives.

    Rows are shared out as if they lay evenly in their slice; rows of closed joins are gone, since where they
    go depends on their lineage.
    """
    joins = dict(before)
    for step in steps:
        apply_primitive(joins, step)
    return joins
