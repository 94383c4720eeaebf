"""Relations between the results of outer, semi and anti joins, and changes that leave results as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from catalog.values.control import Heartbeat
from catalog.values.plan import Strategy
from catalog.values.query import UNBOUNDED_US, JoinKind
from planner.build.placement.replication import HASHED
from tests.examples import examples
from tests.operators.cases import ALL_STRATEGIES, SETTINGS, Case, Step, cases, check, run
from tests.operators.oracle import Result

KINDS: tuple[JoinKind, ...] = ("inner", "outer", "semi", "anti")
#: Later than any row of a case with any of its windows that end.
FAR_US = 2 * 10**15


@settings(SETTINGS, max_examples=examples(60, short=8))
@given(cases(family=0), st.sampled_from(("a", "b")), st.sampled_from(("apart", "spread", "beside inner")))
def test_matches_and_absent_rows_add_up(case: Case, side: Literal["a", "b"], place: str) -> None:
    """Inner and anti joins give what the outer one gives, semi and anti joins every row once."""
    assume(case.steps and case.steps[0].queries)
    first = (case.steps[0].queries or ())[0]
    assume(max(first.a.window_us, first.b.window_us) < UNBOUNDED_US)
    own = replace(first.a if side == "a" else first.b, filter=None, filter_columns=())
    first = replace(first, a=own) if side == "a" else replace(first, b=own)
    queries = [
        replace(
            first,
            id=number,
            name=kind,
            kind=kind,
            preserved=(side,) if kind != "inner" else (),
            spreads=place == "spread" and kind != "inner",
            beside_inner=place == "beside inner" and kind != "inner",
        )
        for number, kind in enumerate(KINDS)
    ]
    ends = Step(None, (), tuple(Heartbeat(s.stream_id, FAR_US) for s in (first.a, first.b)))
    steps = [replace(step, queries=None, between=None, spread=HASHED) for step in case.steps]
    steps[0] = replace(steps[0], queries=tuple(queries))
    found = check(replace(case, steps=(*steps, ends)))
    inner, outer, semi, anti = (
        Counter({(a, b): rows for (query, a, b), rows in found.results.items() if query == number})
        for number in range(len(KINDS))
    )
    assert outer == inner + anti
    number = 0 if side == "a" else 1
    given_once = Counter(pair[number] for pair in (*semi.elements(), *anti.elements()))
    came = {row.pos for step in steps for stream, row in step.rows if stream == own.stream_id}
    assert given_once == Counter(came - found.late.get(own.stream_id, set()))


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(cases(absence=True, late=False), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_the_cut_into_batches_decides_nothing(case: Case, sizes: Sequence[int]) -> None:
    assume(case.steps)
    rows = tuple(row for step in case.steps for row in step.rows)
    begins, left = [], 0
    while left < len(rows):
        begins.append((left, left + sizes[len(begins) % len(sizes)]))
        left = begins[-1][1]
    first = Step(case.steps[0].queries, ())
    pieces = (first, *(Step(None, rows[begin:end]) for begin, end in begins))
    assert (
        run(replace(case, steps=pieces)).results
        == run(replace(case, steps=(replace(first, rows=rows),))).results
    )


@settings(SETTINGS, max_examples=examples(60, short=10))
@given(cases(absence=True), st.integers(0, 5))
def test_queries_about_absence_change_no_result_of_inner_joins(case: Case, enter: int) -> None:
    assume(case.steps and case.steps[0].queries)
    queries = case.steps[0].queries or ()
    inner = tuple(query for query in queries if query.kind == "inner")
    assume(0 < len(inner) < len(queries))

    def given_with(all_from: int | None) -> Counter[Result]:
        steps = [replace(step, queries=None) for step in case.steps]
        steps[0] = replace(steps[0], queries=inner)
        if all_from is not None:
            steps[all_from] = replace(steps[all_from], queries=queries)
        found = check(replace(case, steps=tuple(steps))).results
        ids = {query.id for query in inner}
        return Counter({result: times for result, times in found.items() if result[0] in ids})

    assert given_with(None) == given_with(min(enter, len(case.steps) - 1))


@settings(SETTINGS, max_examples=examples(60, short=7))
@given(cases(absence=True, activations=True), st.sampled_from(ALL_STRATEGIES), st.integers(1, 7))
def test_neither_the_strategy_nor_the_number_of_buckets_decides_anything(
    case: Case, strategy: Strategy, buckets: int
) -> None:
    steps = tuple(replace(step, strategy=strategy) for step in case.steps)
    assert run(replace(case, steps=steps, buckets=buckets)).results == run(case).results
