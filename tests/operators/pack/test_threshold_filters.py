"""Filters that are counted against DuckDB, which answers them one by one."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.plan import Threshold
from operators.filters.expressions import evaluate_filters
from operators.pack.lineage_words import evaluate_lineage
from operators.pack.threshold_filters import thresholds
from planner.families.threshold import threshold
from planner.predicates.read_condition import read_condition
from tests.examples import examples
from tests.operators.queries import planned
from tests.operators.segment_builders import lineage_words, words_of

INT64 = pa.int64()
#: Values on, just beside and far from the constants below.
DOUBLES = st.one_of(
    st.floats(allow_nan=True),
    st.sampled_from([0.1, math.nextafter(0.1, 1), math.nextafter(0.1, 0), -0.0, 0.0, math.inf, -math.inf]),
)
INTEGERS = {pa.int32(): st.integers(-(2**31), 2**31 - 1), INT64: st.integers(-(2**63), 2**63 - 1)}
CONSTANTS = st.one_of(
    st.sampled_from(["0", "-0", "0.1", "0.10", "-1.5", "999999999999999", "-999999999999999", "0.3"]),
    st.integers(-3, 3).map(str),
    st.decimals(-100, 100, places=3).map(lambda d: format(d, "f")),
    st.floats(-1e6, 1e6).map(lambda f: format(Decimal(f), "f")[:18]).filter(lambda t: not t.endswith(".")),
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Return rows with a double ``v``, an integer ``i``, and in ``n`` what is NULL now and then."""
    kind = draw(st.sampled_from([pa.int32(), INT64]))
    rows = draw(
        st.lists(
            st.tuples(DOUBLES, st.one_of(st.integers(-4, 4), INTEGERS[kind]), st.none() | DOUBLES),
            max_size=12,
        )
    )
    v, i, n = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({"v": pa.array(v, pa.float64()), "i": pa.array(i, kind), "n": pa.array(n, pa.float64())})


FILTERS = st.one_of(
    st.builds(
        lambda column, how, bound: f'"{column}" {how} {bound}',
        st.sampled_from("vin"),
        st.sampled_from(["<", "<=", ">", ">="]),
        CONSTANTS,
    ),
    st.sampled_from(['"v" = 0.1', '"n" IS NULL', '"i" < 3 AND "v" >= 0.1']),
)


@settings(max_examples=examples(200, short=25), deadline=None)
@given(tables(), st.lists(st.lists(FILTERS, max_size=70), max_size=2))
def test_what_is_counted_is_what_duckdb_answers(table: pa.Table, filters: list[list[str]]) -> None:
    for columns, texts in zip(evaluate_lineage(table, [planned(f) for f in filters]), filters, strict=True):
        wanted = lineage_words(table.num_rows, evaluate_filters(table, texts))
        assert [words_of(column).tolist() for column in columns] == [word.tolist() for word in wanted]


@pytest.mark.parametrize(
    "text",
    [
        '"v" = 1',
        '"v" < 1 OR "v" > 2',
        '"v" < CAST(1 AS DECIMAL(20,0))',
        "\"v\" < '5'",
        '"v" < 0.1234567890123456',
        '"v" < "w"',
    ],
)
def test_what_is_no_plain_comparison_is_left_to_duckdb(text: str) -> None:
    assert threshold(read_condition(text)) is None


def test_columns_of_other_types_and_with_nulls_are_left_to_duckdb() -> None:
    columns = {
        "d": pa.array([1], pa.decimal128(4, 2)),
        "n": pa.array([None], pa.float64()),
        "i": pa.array([1], INT64),
        "v": pa.array([1.0]),
    }
    asked = [Threshold(column, "<", 2) for column in "dniv"]
    assert [t.answerable(pa.table(columns)) for t in thresholds(tuple(asked))] == [False, False, True, True]
    assert not thresholds((Threshold("i", "<", 2.5),))[0].answerable(pa.table(columns))


def test_three_hundred_filters_of_a_column_are_five_words() -> None:
    table = pa.table({"v": np.arange(300.0)})
    ((*columns,),) = evaluate_lineage(table, [planned([f'"v" >= {n}' for n in range(300)])])
    words = [words_of(column) for column in columns]
    passed = np.concatenate([(word[:, None] >> np.arange(64, dtype=np.uint64)) & 1 for word in words], axis=1)
    assert passed.sum(axis=1).tolist() == list(range(1, 301))
