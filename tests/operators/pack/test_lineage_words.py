"""Lineage words against each filter evaluated by itself, and their counts against counting rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.filters.expressions import evaluate_filters
from operators.pack.lineage_words import count_passing, evaluate_lineage, passing_some
from operators.segments.encoding.row_codec import NUMBERED
from tests.examples import examples
from tests.operators.queries import planned
from tests.operators.segment_builders import lineage_words, words_of

NUMBERS = st.one_of(st.none(), st.integers(-3, 3).map(float), st.just(float("nan")))
PREDICATES = st.builds(
    lambda column, how, value: f'"{column}" {how} {value}',
    st.sampled_from(["v", "w"]),
    st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]),
    st.sampled_from(["-1.5", "0", "1", "2.25", "'nan'::DOUBLE", "NULL"]),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20),
    st.lists(st.lists(PREDICATES, max_size=140), max_size=3),
)
def test_words_say_of_each_row_what_each_filter_says(
    rows: list[tuple[float | None, float | None]], filters: list[list[str]]
) -> None:
    table = pa.table(
        {name: pa.array([row[i] for row in rows], pa.float64()) for i, name in enumerate(("v", "w"))}
    )
    found = evaluate_lineage(table, [planned(f) for f in filters])
    assert len(found) == len(filters)
    for columns, predicates in zip(found, filters, strict=True):
        alone = evaluate_filters(table, predicates)
        wanted = lineage_words(len(rows), alone)
        assert [words_of(column).tolist() for column in columns] == [word.tolist() for word in wanted]
        assert all(words_of(column).dtype == np.uint64 for column in columns)
        assert count_passing(columns, len(predicates)) == [int(passed.sum()) for passed in alone]
        some = np.logical_or.reduce([np.zeros(len(rows), dtype=np.bool_), *alone])
        assert passing_some(columns, len(rows)).tolist() == some.tolist()


def test_words_hold_sixty_four_filters_each() -> None:
    table = pa.table({"v": [1, 2]})
    ((low, high),) = evaluate_lineage(table, [planned(['"v" < 0'] * 63 + ['"v" = 1', '"v" = 2'])])
    assert (words_of(low).tolist(), words_of(high).tolist()) == ([2**63, 0], [0, 1])
    assert count_passing([low, high], 65) == [0] * 63 + [1, 1]


@pytest.mark.parametrize("filters", [['"v" < 0.5', '"v" < 0.25'], ['"v" < 0.5', '"v" = 0']])
def test_words_of_few_values_are_numbered(filters: list[str]) -> None:
    table = pa.table({"v": np.random.default_rng(1).random(40_000)})
    ((column,),) = evaluate_lineage(table, [planned(filters)])
    assert column.type == NUMBERED
    wanted = lineage_words(table.num_rows, evaluate_filters(table, filters))
    assert words_of(column).tolist() == wanted[0].tolist()


def test_words_of_many_values_are_not() -> None:
    table = pa.table({"v": np.arange(1 << 9)})
    ((column,),) = evaluate_lineage(table, [planned([f'"v" & {1 << bit} <> 0' for bit in range(9)])])
    assert column.type == pa.uint64()
    assert column.to_pylist() == list(range(1 << 9))
    assert count_passing([column], 9) == [1 << 8] * 9


def test_more_distinct_words_than_are_numbered_by_a_table_are_counted() -> None:
    words = pa.array(np.arange(1 << 13, dtype=np.uint64))
    assert count_passing([words], 13) == [1 << 12] * 13
