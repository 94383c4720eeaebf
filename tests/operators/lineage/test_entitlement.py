from __future__ import annotations

import pyarrow as pa

from operators.lineage.entitlement import (
    NO_NEWEST,
    NO_TIME_BOUND,
    HolderQuery,
    Term,
    held_terms,
    rows_of_terms,
)
from tests.operators.segment_builders import a_segment

NO_COLUMNS: frozenset[str] = frozenset()


def a_term(
    bits: set[int], epoch_min: int = 1, t_min_us: int = 0, columns: frozenset[str] = NO_COLUMNS
) -> Term:
    return Term(frozenset(bits), epoch_min, t_min_us, columns)


def test_a_holder_holds_what_it_passes_from_its_activation_within_its_window() -> None:
    (term,) = held_terms([HolderQuery(3, 2, 10, ())], 100, NO_NEWEST, frozenset({"v"}))
    # The oldest row that the window still reaches from 100 is at 91: 100 - 90 is no longer below 10.
    assert term == Term(frozenset({3}), 2, 91, frozenset({"v"}))


def test_before_the_first_opposite_row_every_time_is_within_reach() -> None:
    (term,) = held_terms([HolderQuery(None, 1, 10, ())], None, NO_NEWEST, NO_COLUMNS)
    assert term.t_min_us == NO_TIME_BOUND


def test_a_holder_passes_on_what_was_held_for_it() -> None:
    """Its own filter and window besides those of the holder before it; the columns of both."""
    before = a_term({0}, epoch_min=1, t_min_us=50, columns=frozenset({"v"}))
    terms = held_terms([HolderQuery(4, 7, 30, (before,))], 100, NO_NEWEST, frozenset({"w"}))
    assert set(terms) == {
        Term(frozenset({4}), 7, 71, frozenset({"w"})),
        Term(frozenset({0, 4}), 1, 71, frozenset({"v", "w"})),
    }
    (_, narrow) = held_terms([HolderQuery(4, 7, 90, (before,))], 100, NO_NEWEST, NO_COLUMNS)
    assert narrow.t_min_us == 50


def test_a_reason_that_another_one_covers_is_left_out() -> None:
    wide, narrow = HolderQuery(None, 1, 50, ()), HolderQuery(2, 1, 20, ())
    assert held_terms([narrow, wide, wide], 100, NO_NEWEST, NO_COLUMNS) == (
        Term(frozenset(), 1, 51, NO_COLUMNS),
    )
    assert (
        len(held_terms([HolderQuery(2, 1, 50, ()), HolderQuery(None, 1, 20, ())], 100, NO_NEWEST, NO_COLUMNS))
        == 2
    )


def test_no_holder_holds_nothing() -> None:
    assert held_terms([], 100, NO_NEWEST, NO_COLUMNS) == ()
    assert not rows_of_terms(a_segment([(1, 10)]), (), NO_COLUMNS).any()


def test_a_row_needs_all_conditions_of_one_term() -> None:
    segment = a_segment(
        [(1, 10), (1, 20), (1, 20), (1, 20)],
        epochs=[2, 2, 1, 2],
        bits={0: [True, True, True, False], 1: [True, True, True, True]},
    )
    assert rows_of_terms(segment, [a_term({0, 1}, 2, 15)], NO_COLUMNS).tolist() == [False, True, False, False]
    either = [a_term({0, 1}, 2, 15), a_term(set(), 2, 0)]
    assert rows_of_terms(segment, either, NO_COLUMNS).tolist() == [True, True, False, True]


def test_a_row_whose_columns_were_not_kept_is_not_held() -> None:
    segment = a_segment([(1, 10)], columns={"v": pa.array([1])})
    term = a_term(set(), columns=frozenset({"v", "w"}))
    assert not rows_of_terms(segment, [term], frozenset({"v"})).any()
    assert rows_of_terms(segment, [term], frozenset({"v", "w"})).all()


def test_the_bound_of_a_term_is_inclusive() -> None:
    segment = a_segment([(1, 10), (2, 11)])
    assert rows_of_terms(segment, [a_term(set(), t_min_us=11)], NO_COLUMNS).tolist() == [False, True]


def test_nothing_is_held_of_a_stream_without_rows() -> None:
    assert held_terms([HolderQuery(None, 1, 10, ())], 100, None, NO_COLUMNS) == ()


def test_a_term_that_no_row_is_new_enough_for_is_left_out() -> None:
    """A window of 10 reaches back to 91 from 100: it holds nothing of rows up to 90."""
    assert held_terms([HolderQuery(None, 1, 10, ())], 100, 90, NO_COLUMNS) == ()
    assert len(held_terms([HolderQuery(None, 1, 10, ())], 100, 91, NO_COLUMNS)) == 1


def test_a_term_is_over_when_no_window_reaches_its_newest_row() -> None:
    (term,) = held_terms([HolderQuery(None, 1, 10, ())], 100, 95, NO_COLUMNS)
    assert term.t_max_us == 95
    assert term.reaches(30, 124)
    assert not term.reaches(30, 125)
    assert term.reaches(30, None)


def test_a_shorter_lived_term_does_not_stand_for_a_longer_lived_one() -> None:
    """The one held by way of q3 ended with the row at 60; q1 itself holds what came since."""
    handed_on = Term(frozenset(), 1, 50, NO_COLUMNS, 60)
    terms = held_terms(
        [HolderQuery(None, 2, 50, ()), HolderQuery(None, 3, 50, (handed_on,))], 100, 99, NO_COLUMNS
    )
    assert {t.t_max_us for t in terms} == {99, 60}
