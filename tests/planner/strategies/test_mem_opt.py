from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import JoinPlan, Slice
from catalog.values.query import Query
from planner.strategies.slice_dag import chain_of_path
from planner.strategies.strategies import STRATEGIES
from tests.builders import a_query_s
from tests.planner.values import PAPER, family_of, rates_of

LOW = '"v" < 0.2'
HIGH = '"v" > 0.9'


def rows_held(chain: tuple[Slice, ...]) -> float:
    """Rows of a chain at one row per µs, of which 0.2 pass the first filter and 0.1 the second, none both."""
    passing = (0.2, 0.1)
    fraction = [1.0 if s.keep is None else sum(passing[bit] for bit in s.keep) for s in chain]
    return sum((s.w_end_us - s.w_start_us) * f for s, f in zip(chain, fraction, strict=True))


def mem_opt(queries: list[Query]) -> JoinPlan:
    family = family_of(queries)
    (join,) = STRATEGIES["mem-opt"](family, rates_of(family), PAPER)
    return join


def test_every_distinct_window_ends_a_slice() -> None:
    join = mem_opt([a_query_s(1, 30), a_query_s(2, 10), a_query_s(3, 10)])
    assert [(s.w_start_us, s.w_end_us) for s in join.chain_a] == [(0, 10_000_000), (10_000_000, 30_000_000)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([None, LOW, HIGH])), min_size=1, max_size=6))
def test_no_other_chain_holds_fewer_rows(shapes: list[tuple[int, str | None]]) -> None:
    queries = [a_query_s(i, w, filter_a=f) for i, (w, f) in enumerate(shapes, start=1)]
    family = family_of(queries)
    best = rows_held(mem_opt(queries).chain_a)
    inner = sorted({q.w_a_us for q in family.queries})
    for size in range(len(inner)):
        for chosen in combinations(inner[:-1], size):
            chain = chain_of_path([0, *chosen, inner[-1]], family.queries, "a")
            assert rows_held(chain) >= best - 1e-6
