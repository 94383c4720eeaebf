"""Until when rows are needed, by ages and matches."""

from __future__ import annotations

import numpy as np
import pytest

from operators.kernels.keys import Int64s
from operators.leaving.needs import QueryNeed, RowNeeds, ended_needs
from operators.lineage.lineage import RowClasses

NO_MATCH = 2**62
SHORT = QueryNeed(own_us=10, group=1, w_a_us=10, w_b_us=10)
LONG = QueryNeed(own_us=30, group=1, w_a_us=30, w_b_us=5)
PAIRS = QueryNeed(own_us=5, group=None, w_a_us=5, w_b_us=5)


def known(ahead: int, behind: int) -> tuple[Int64s, Int64s]:
    return np.array([ahead]), np.array([behind])


@pytest.mark.parametrize(
    ("ahead", "behind", "age_us", "ended"),
    [
        (7, NO_MATCH, 4, False),  # pairs are still results of the third query
        (7, NO_MATCH, 5, True),
        (12, NO_MATCH, 9, False),  # the first query is undecided
        (12, NO_MATCH, 10, True),
        (NO_MATCH, 7, 9, False),  # behind, the second query does not reach so far
        (NO_MATCH, 7, 10, False),
        (NO_MATCH, 4, 5, True),
        (NO_MATCH, NO_MATCH, 29, False),
        (7, 4, 30, False),  # the last slice lets it go
    ],
)
def test_a_row_is_needed_until_each_query_has_a_match_or_is_decided(
    ahead: int, behind: int, age_us: int, ended: bool
) -> None:
    needs = RowNeeds.of((SHORT, LONG, PAIRS))
    assert needs is not None
    found = needs.ended(np.array([age_us]), np.array([0]), lambda group, pos: known(ahead, behind))
    assert found.tolist() == [ended]


def test_no_match_ends_the_need_of_a_query_that_gives_pairs() -> None:
    assert RowNeeds.of((PAIRS,)) is None
    assert RowNeeds.of((SHORT, QueryNeed(own_us=10, group=None, w_a_us=1, w_b_us=1))) is None


def test_every_group_that_a_row_serves_needs_a_match_of_its_own() -> None:
    other = QueryNeed(own_us=10, group=2, w_a_us=10, w_b_us=10)
    found = {mask: RowNeeds.of(of) for mask, of in {1: (SHORT,), 3: (SHORT, other)}.items()}
    needs = {mask: each for mask, each in found.items() if each is not None}
    matches = {1: ([3, 3, 3, 3], [NO_MATCH] * 4), 2: ([NO_MATCH, NO_MATCH, 4, 4], [NO_MATCH] * 4)}

    def nearest(group: int, pos: Int64s) -> tuple[Int64s, Int64s]:
        ahead, behind = matches[group]
        return np.array(ahead)[pos], np.array(behind)[pos]

    classes = RowClasses(np.array([0, 1, 1, 2]), (1, 3, 4))
    assert ended_needs(needs, classes, np.zeros(4, np.int64), np.arange(4), nearest).tolist() == [
        True,
        False,
        True,
        False,
    ]
