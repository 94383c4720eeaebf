from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import Slice
from planner.errors import InvalidChain
from planner.explain.explicit_chain import explicit_chain
from planner.strategies.strategies import STRATEGIES
from tests.builders import SECOND_US, a_query_s
from tests.planner.values import PAPER, family_of, rates_of

LOW = '"v" < 0.2'
FAMILY = family_of([a_query_s(1, 10), a_query_s(2, 30, 20, filter_a=LOW)])


def us(*seconds: float) -> list[int]:
    return [int(s * SECOND_US) for s in seconds]


def test_a_boundary_that_is_no_window_divides_what_the_same_queries_use() -> None:
    (join,) = explicit_chain(FAMILY, us(10, 15, 30), us(20))
    assert (join.id, join.queries, join.partition, join.pulled_up) == ("shared", (1, 2), None, False)
    assert join.chain_a == (
        Slice(0, 10 * SECOND_US, None),
        Slice(10 * SECOND_US, 15 * SECOND_US, (0,)),
        Slice(15 * SECOND_US, 30 * SECOND_US, (0,)),
    )
    assert join.chain_b == (Slice(0, 20 * SECOND_US, None),)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([None, LOW])), min_size=1, max_size=6))
def test_the_distinct_windows_give_mem_opt(shapes: list[tuple[int, str | None]]) -> None:
    family = family_of([a_query_s(n, w, filter_a=f) for n, (w, f) in enumerate(shapes, start=1)])
    ends = sorted({q.w_a_us for q in family.queries})
    assert explicit_chain(family, ends, ends) == STRATEGIES["mem-opt"](family, rates_of(family), PAPER)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (us(10, 31), us(20), "the chain of side a ends at 31 s, not at the largest window"),
        (us(10, 30), us(10), "the chain of side b ends at 10 s, not at the largest window"),
        (us(30, 30), us(20), "boundaries of side a do not ascend from 0"),
        (us(0, 30), us(20), "boundaries of side a do not ascend from 0"),
        (us(-1, 30), us(20), "boundaries of side a do not ascend from 0"),
        (us(30), [], "the chain of side b has no boundary"),
    ],
)
def test_boundaries_that_make_no_chain_are_refused(a: list[int], b: list[int], message: str) -> None:
    with pytest.raises(InvalidChain) as caught:
        explicit_chain(FAMILY, a, b)
    assert caught.value.primary == message


def test_the_refusal_says_where_the_chain_has_to_end() -> None:
    with pytest.raises(InvalidChain) as caught:
        explicit_chain(FAMILY, us(10), us(20))
    assert str(caught.value).endswith("hint: Make 30 s the last boundary.")
