"""Slices purge, filter and probe as the paper says (State-Slice, VLDB 2006, Figure 9 and §6.1).

On input in order, one row per batch and lateness 0, a batch is what the paper calls the arrival of a tuple,
so its terms can be counted: a male compares with the rows of the slice's window and key, nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import Plan, Strategy
from catalog.values.query import Query
from operators.bucket.counters import slice_table
from operators.segments.layout import SIDES
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from tests.builders import SECOND_US, a_query, a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.harness import Runner
from tests.operators.oracle import passes, side_of
from tests.operators.queries import FILTERS_OF_ALL, Row, a_table

STREAMS = {1: a_stream(1), 2: a_stream(2)}
#: Even values pass a filter of selectivity 1/2.
EVEN, SELECTIVITY = '"w" = 1', 0.5
#: Windows of a few of these have a slack of their own, a fortieth of them, that is shorter than one.
TICK_US = 100


@dataclass
class PaperSlice:
    """A slice of one side as the paper has it: a list of rows."""

    end_us: int
    queries: list[Query]
    rows: list[Row] = field(default_factory=list)
    touched: int = 0
    product: int = 0
    males: int = 0
    inserted: int = 0
    moved_in: int = 0
    filtered: int = 0
    purged: int = 0


class PaperChain:
    """Figure 9, a tuple at a time, with the selections of §6.1 between the slices.

    A row leaves at a distance of w_end, as in Definition 3 and Lemma 1; Figure 9 prints "> W^end".
    """

    def __init__(self, queries: Sequence[Query]) -> None:
        self.queries = queries
        self.slices: dict[str, list[PaperSlice]] = {}
        for side in SIDES:
            windows = sorted({side_of(q, side).window_us for q in queries})
            starts = [0, *windows[:-1]]
            self.slices[side] = [
                PaperSlice(end, [q for q in queries if side_of(q, side).window_us > start])
                for start, end in zip(starts, windows, strict=True)
            ]

    def arrive(self, side: str, row: Row) -> None:
        """The row is a male to the other side's chain and a female to its own.

        We differ in one point: a male that a selection stops still purges, since its watermark goes on.
        """
        opposite = "b" if side == "a" else "a"
        chain = self.slices[opposite]
        for piece, successor in zip(chain, [*chain[1:], None], strict=True):
            passed = [r for r in piece.rows if row.ts - r.ts >= piece.end_us]
            piece.rows = [r for r in piece.rows if row.ts - r.ts < piece.end_us]
            if successor is None:
                piece.purged += len(passed)
                continue
            kept = [r for r in passed if self._serves(opposite, r, successor.queries)]
            successor.rows += kept
            successor.moved_in += len(kept)
            successor.filtered += len(passed) - len(kept)
        for piece in chain:
            if not self._serves(side, row, piece.queries):
                break
            piece.males += 1
            piece.product += len(piece.rows)
            piece.touched += sum(r.values["k"] == row.values["k"] for r in piece.rows)
        if self._serves(side, row, self.queries):
            self.slices[side][0].rows.append(row)
            self.slices[side][0].inserted += 1

    def _serves(self, side: str, row: Row, queries: Sequence[Query]) -> bool:
        return any(passes(side_of(q, side), row) for q in queries)


def a_row(pos: int, ts: int, v: int, k: int = 1) -> Row:
    return Row(pos, ts, {"k": k, "m": None, "v": v, "w": 1 - v % 2})


def run_in_order(plan: Plan, arrivals: Sequence[tuple[int, Row]], slack_us: int | None = None) -> Runner:
    """Run one row per batch, at the default slack unless another is given."""
    runner = Runner(STREAMS, slack_us=slack_us)
    runner.step({}, [plan])
    for stream_id, row in arrivals:
        runner.step({stream_id: a_table(STREAMS[stream_id], [row])})
    return runner


def counts(runner: Runner, side: str) -> list[Counter[str]]:
    """Return what each slice of the one join did since the plan took effect."""
    return [deeds for (_, _, of, _), deeds in sorted(runner.done.items()) if of == side]


@st.composite
def arrivals_in_order(draw: st.DrawFn) -> list[tuple[int, Row]]:
    clock, arrivals = 0, []
    for pos, code in enumerate(draw(st.lists(st.integers(0, 5 * 2 * 2 * 9 - 1), min_size=1, max_size=40))):
        code, advance = divmod(code, 5)
        code, stream = divmod(code, 2)
        v, k = divmod(code, 2)
        clock += (1, 0, 2, 3, 7)[advance] * TICK_US
        arrivals.append((stream + 1, a_row(pos, clock, v, k)))
    return arrivals


queries_with_selections = st.lists(
    st.tuples(
        st.sampled_from((1, 4, 9, 15)),
        st.sampled_from((1, 4, 9, 15)),
        st.sampled_from((None, *FILTERS_OF_ALL)),
        st.sampled_from((None, *FILTERS_OF_ALL)),
    ),
    min_size=1,
    max_size=5,
).map(
    lambda facts: [
        a_query(n, w_a * TICK_US, w_b * TICK_US, filter_a=f, filter_b=g)
        for n, (w_a, w_b, f, g) in enumerate(facts, 1)
    ]
)


@settings(SETTINGS, max_examples=examples(100))
@given(queries_with_selections, arrivals_in_order(), st.sampled_from((None, 0)))
def test_every_slice_counts_what_the_paper_counts(
    queries: list[Query], arrivals: list[tuple[int, Row]], slack_us: int | None
) -> None:
    paper = PaperChain(queries)
    for stream_id, row in arrivals:
        paper.arrive("a" if stream_id == 1 else "b", row)
    runner = run_in_order(build_plan(queries, STREAMS), arrivals, slack_us)
    assert runner.plan is not None
    for side in SIDES:
        held = runner.state_rows(runner.plan.families[0].id, side)
        for piece, rows, found in zip(paper.slices[side], held, counts(runner, side), strict=True):
            # Pairs are counted in the tests of rows and results by definition. In the paper rows go by time
            # and by filters alone.
            terms = {name: getattr(piece, name, 0) for name in found if name not in ("results", "made")}
            assert {name: found[name] for name in terms} == terms, (side, piece.end_us)
            assert rows == {r.pos for r in piece.rows}


def test_a_row_filtered_before_slice_2_is_never_touched_in_slice_2() -> None:
    short, long = a_query(1, 5), a_query(2, 20, filter_a='"w" = 1')
    passing, failing = a_row(0, 0, v=0), a_row(1, 0, v=1)
    plan = build_plan([short, long], STREAMS)
    runner = run_in_order(plan, [(1, passing), (1, failing), (2, a_row(0, 4, v=0)), (2, a_row(1, 6, v=0))])
    first, second = counts(runner, "a")
    assert (first["touched"], first["inserted"]) == (2, 2)
    assert (second["moved_in"], second["filtered"], second["touched"]) == (1, 1, 1)


def test_a_male_goes_no_further_than_its_queries() -> None:
    """Males of a pass slice 1 of b for the short query; only those of the long one go on."""
    short, long = a_query(1, 5), a_query(2, 20, filter_a='"w" = 1')
    males = [(1, a_row(n, 10 + n, v=n)) for n in range(6)]
    runner = run_in_order(build_plan([short, long], STREAMS), [(2, a_row(0, 0, v=0)), *males])
    assert [found["males"] for found in counts(runner, "b")] == [6, 3]


def test_the_product_is_what_nested_loops_would_compare() -> None:
    """Males of any key times rows of any key; rows of one batch are one segment, and count one by one."""
    runner = Runner(STREAMS)
    rows = [a_row(n, 10, v=0, k=k) for n, k in enumerate((1, 1, 2))]
    plan = build_plan([a_query(1, 20)], STREAMS)
    runner.step({1: a_table(STREAMS[1], rows), 2: a_table(STREAMS[2], rows[:2])}, [plan])
    of_a, of_b = counts(runner, "a")[0], counts(runner, "b")[0]
    assert (of_a["product"], of_a["touched"], of_a["males"]) == (6, 4, 2)
    # The batch's rows of b are inserted last: what meets has met.
    assert (of_b["product"], of_b["touched"], of_b["males"]) == (0, 0, 3)


@settings(SETTINGS, max_examples=examples(100))
@given(
    queries_with_selections,
    arrivals_in_order(),
    st.integers(1, 12),
    st.sampled_from(("mem-opt", "cpu-opt", "pullup")),
)
def test_rows_and_results_count_in_the_slice_in_whose_interval_they_lie(
    queries: list[Query], arrivals: list[tuple[int, Row]], per_batch: int, strategy: Strategy
) -> None:
    """At the default slack, with batches of many rows, whose segments straddle lazy boundaries."""
    plan = build_plan(queries, STREAMS, objective=Objective(strategy))
    runner = Runner(STREAMS, slack_us=None)
    runner.step({}, [plan])
    times: dict[str, dict[int, int]] = {side: {} for side in SIDES}
    (family,), (join,) = plan.families, plan.families[0].joins
    ends = {"a": [s.w_end_us for s in join.chain_a], "b": [s.w_end_us for s in join.chain_b]}
    for start in range(0, len(arrivals), per_batch):
        rows: dict[int, list[Row]] = {}
        for stream_id, row in arrivals[start : start + per_batch]:
            rows.setdefault(stream_id, []).append(row)
            times["a" if stream_id == 1 else "b"][row.pos] = row.ts
        runner.step({i: a_table(STREAMS[i], came) for i, came in rows.items()})
        (bucket,) = runner.state
        counted = list(slice_table(bucket.families, bucket.clocks).counters())
        for side, other in (("a", "b"), ("b", "a")):
            lying = runner.state_rows(family.id, side)
            expected = Counter[int]()
            for pos in set().union(*lying):
                distance = max(times[other].values(), default=0) - times[side][pos]
                expected[_place(ends[side], distance) if times[other] else 0] += 1
            found = [c for c in counted if c.side == side]
            assert [c.rows for c in found] == [expected[n] for n in range(len(found))]
            assert [c.lying for c in found] == [len(held) for held in lying]
            assert [c.lazy_end for c in found] == list(family.lazy_ends(join, side))
    results: dict[str, Counter[int]] = {side: Counter() for side in SIDES}
    for a, b in {(a, b) for _, a, b in runner.results}:
        distance = times["b"][b] - times["a"][a]
        side = "a" if distance >= 0 else "b"
        results[side][_place(ends[side], abs(distance))] += 1
    for side in SIDES:
        found_results = [deeds["results"] for deeds in counts(runner, side)]
        assert found_results == [results[side][n] for n in range(len(found_results))]
    made, total = _sum_of(runner, "made"), sum(map(Counter.total, results.values()))
    assert made == total


def _place(ends_us: Sequence[int], distance_us: int) -> int:
    return min(sum(end <= distance_us for end in ends_us), len(ends_us) - 1)


def test_a_lazy_boundary_leaves_rows_where_they_lie_and_counts_them_where_they_belong() -> None:
    """Neither query has a filter: what passes 1 s goes on in any case, and need not be cut off before."""
    plan = build_plan([a_query(1, SECOND_US), a_query(2, 4 * SECOND_US)], STREAMS)
    runner = Runner(STREAMS, slack_us=None)
    runner.step({1: a_table(STREAMS[1], [a_row(n, n * SECOND_US // 2, v=n) for n in range(4)])}, [plan])
    runner.step({2: a_table(STREAMS[2], [a_row(0, 2 * SECOND_US, v=0)])})
    first, second = _of_side(runner, "a")
    assert (first.lazy_end, second.lazy_end) == (True, False)
    assert [(first.rows, first.lying), (second.rows, second.lying)] == [(1, 4), (3, 0)]
    assert [(first.results, first.made), (second.results, second.made)] == [(1, 4), (3, 0)]


def test_a_boundary_that_takes_rows_is_cut_even_where_it_takes_none_of_a_segment() -> None:
    plan = build_plan([a_query(1, SECOND_US), a_query(2, 4 * SECOND_US, filter_a=EVEN)], STREAMS)
    runner = Runner(STREAMS, slack_us=None)
    rows = [a_row(n, n * SECOND_US // 2, v=0) for n in range(4)]
    runner.step({1: a_table(STREAMS[1], rows)}, [plan])
    runner.step({2: a_table(STREAMS[2], [a_row(0, 2 * SECOND_US, v=0)])})
    first, second = _of_side(runner, "a")
    assert not first.lazy_end
    assert [(first.rows, first.lying), (second.rows, second.lying)] == [(1, 1), (3, 3)]


def _of_side(runner: Runner, side: str) -> list[SliceCounters]:
    (bucket,) = runner.state
    return [c for c in slice_table(bucket.families, bucket.clocks).counters() if c.side == side]


def test_what_is_counted_is_counted_of_one_batch() -> None:
    runner = Runner(STREAMS)
    runner.step({1: a_table(STREAMS[1], [a_row(0, 10, v=0)])}, [build_plan([a_query(1, 20)], STREAMS)])
    for inserted in (1, 0):
        bucket = runner.state[0]
        counted = slice_table(bucket.families, bucket.clocks).counters()
        found = [c.inserted for c in counted if c.side == "a"]
        assert found == [inserted]
        runner.step({})


@pytest.mark.parametrize("lambda_per_s", [2, 4])
@pytest.mark.parametrize(("w_1_s", "w_2_s"), [(1, 3), (2, 6)])
@pytest.mark.parametrize("strategy", ["unshared", "pullup", "pushdown", "mem-opt"])
def test_steady_state_follows_the_papers_equations(
    strategy: Strategy, w_1_s: int, w_2_s: int, lambda_per_s: int
) -> None:
    """Q1 with W1, Q2 with W2 and a selection on A of selectivity S, both streams lambda rows per second.

    State (rows) and probing (comparisons per second) of §3.1, §3.2 and §4.3, and of two joins without
    sharing, for which the paper has no equation:

        pull-up (Eq. 1)       2 lambda W2                              2 lambda^2 W2
        push-down (Eq. 2)     (2 - S) lambda W1 + (1 + S) lambda W2    2 (1-S) lambda^2 W1 + 2 S lambda^2 W2
        state-slice (Eq. 3)   2 lambda W1 + (1 + S) lambda (W2 - W1)   2 lambda^2 W1 + 2 S lambda^2 (W2 - W1)
        unshared              2 lambda W1 + (1 + S) lambda W2          2 lambda^2 W1 + 2 S lambda^2 W2

    One row more per join is held than the equations say: the newest of B is ahead of A's watermark, at no
    distance yet.
    """
    plan = build_plan(
        [a_query(1, w_1_s * SECOND_US), a_query(2, w_2_s * SECOND_US, filter_a=EVEN)],
        STREAMS,
        objective=Objective(strategy, cost_model="paper"),
    )
    rate, w_1, w_2, s = lambda_per_s, w_1_s, w_2_s, SELECTIVITY
    rows, comparisons = {
        "pullup": (2 * rate * w_2, 2 * rate**2 * w_2),
        "pushdown": (
            (2 - s) * rate * w_1 + (1 + s) * rate * w_2,
            2 * (1 - s) * rate**2 * w_1 + 2 * s * rate**2 * w_2,
        ),
        "mem-opt": (
            2 * rate * w_1 + (1 + s) * rate * (w_2 - w_1),
            2 * rate**2 * w_1 + 2 * s * rate**2 * (w_2 - w_1),
        ),
        "unshared": (2 * rate * w_1 + (1 + s) * rate * w_2, 2 * rate**2 * w_1 + 2 * s * rate**2 * w_2),
    }[strategy]
    warm_up, measured = (w_2_s + 1) * lambda_per_s, 2 * lambda_per_s
    arrivals = _regular(lambda_per_s, warm_up + measured)
    before = run_in_order(plan, arrivals[: 2 * warm_up])
    runner = run_in_order(plan, arrivals)
    for counter in ("touched", "product"):
        assert (_sum_of(runner, counter) - _sum_of(before, counter)) / 2 == comparisons
    (family,) = plan.families
    held = sum(
        len(piece)
        for join in family.joins
        for side in SIDES
        for piece in runner.state_rows(family.id, side, join.id)
    )
    assert held - len(family.joins) == rows


def _regular(rate_per_s: int, rows: int) -> list[tuple[int, Row]]:
    """Both streams in turn, half an interval apart, so that no distance is a window."""
    half_us = SECOND_US // (2 * rate_per_s)
    arrivals = []
    for n in range(rows):
        arrivals.append((1, a_row(n, 2 * n * half_us, v=n)))
        arrivals.append((2, a_row(n, (2 * n + 1) * half_us, v=n)))
    return arrivals


def _sum_of(runner: Runner, counter: str) -> int:
    return sum(deeds[counter] for deeds in runner.done.values())
