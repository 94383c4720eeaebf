"""CQL in, plan out, as text. A question is:

plan [strategy=NAME] [format=text|versions|mermaid|dot|json] [rate=ROWS_PER_S] [c_sys=COMPARISONS]
NAME: CQL                one line per query, in order of arrival
then [strategy=NAME]     the next version: the lines below add queries; ``drop NAME`` removes one

The answer is the last version; ``format=versions`` shows each with the bits of its filters and since when its
queries are in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from catalog.errors import SluiceError
from catalog.values.plan import Partitioning, Plan, Strategy
from catalog.values.query import Query
from catalog.values.statistics import Measure, Profile, StreamProfile
from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.placement.place_query import QueryPlaces
from planner.explain.rendering.render import plan_document, render_dot, render_mermaid
from planner.families.texts.display import family_text
from tests.planner.applied import render_text
from tests.planner.goldens import check_golden, readable
from tests.planner.values import STREAMS

GOLDEN = Path(__file__).parent / "golden" / "plan"


def _stream(stream_id: int, name: str, columns: str) -> Stream:
    typed = tuple(Column(*column.split()) for column in columns.split(", "))
    return Stream(stream_id, name, typed, typed[0].name, 60_000_000, HttpSource())


FLIGHTS = _stream(4, "flights", "scheduled timestamp, origin string, carrier string, delay int, distance int")
WEATHER = _stream(5, "weather", "hour timestamp, origin string, gust double, visibility double")
BY_ID = {**STREAMS, 4: FLIGHTS, 5: WEATHER}
BY_NAME = {s.name: s for s in BY_ID.values()}


def _options(line: str) -> dict[str, str]:
    return dict(word.split("=") for word in line.split()[1:])


def _versions(question: list[str]) -> list[Plan]:
    plans: list[Plan] = []
    strategy, arrived = "mem-opt", 0
    options = _options(question[0])
    rate = Measure(float(options.get("rate", "1000")))
    profile = Profile(streams=tuple(StreamProfile(i, rate) for i in BY_ID))
    c_sys = float(options.get("c_sys", "0"))
    partitioning = cast(Partitioning, options.get("partitioning", "auto"))
    running: dict[str, Query] = {}

    def next_plan() -> Plan:
        objective = Objective(
            cast(Strategy, strategy), cost_model="paper", c_sys=c_sys, partitioning=partitioning
        )
        return build_plan(
            [*running.values()],
            BY_ID,
            plans[-1] if plans else None,
            objective=objective,
            profile=profile,
        )

    for line in question:
        head = line.split()[0]
        if head == "then":
            plans.append(next_plan())
        if head in ("plan", "then"):
            strategy = _options(line).get("strategy", strategy)
        elif head == "drop":
            del running[line.split()[1]]
        else:
            arrived += 1
            name, cql = line.split(": ", 1)
            query = bind(cql, BY_NAME, name=name, query_id=arrived)
            places = QueryPlaces(partitioning, BY_NAME, plans[-1] if plans else None)
            running[name] = places.placed(query)
    return [*plans, next_plan()]


def _shown(plan: Plan) -> str:
    lines = [f"version {plan.version}", render_text(plan)]
    for family in plan.families:
        text = family_text(family, {s.id: s.name for s in plan.streams})
        for side, filters in (("a", family.filters_a), ("b", family.filters_b)):
            lines += [f"  bit {f.bit} of {text.labels[side]}  {f.sql}" for f in filters]
        lines += [f"  {q.name} since version {q.since_version}" for q in family.queries]
    return "\n".join(lines)


def _answer(question: list[str]) -> str:
    try:
        plans = _versions(question)
    except SluiceError as error:
        return str(error)
    plan = plans[-1]
    form = _options(question[0]).get("format", "text")
    if form == "versions":
        return "\n".join(map(_shown, plans))
    if form == "json":
        return readable(plan_document(plan))
    return {"text": render_text, "mermaid": render_mermaid, "dot": render_dot}[form](plan)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_plans_read_as_in_the_golden_files(path: Path, rewrite_goldens: bool) -> None:
    check_golden(path, _answer, rewrite=rewrite_goldens)
