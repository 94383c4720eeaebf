"""The order of rows is that of their values, whatever fits into one number."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from service.results.pages.row_order import row_order

LEAST, MOST = -(2**63), 2**63 - 1
VALUES = st.one_of(st.integers(0, 3), st.integers(-5, 2**40), st.sampled_from([LEAST, MOST, 2**62, -(2**62)]))
COLUMNS = st.integers(1, 4)


@settings(max_examples=50)
@given(st.data(), st.integers(0, 30), COLUMNS)
def test_rows_are_in_the_order_of_their_columns(data: st.DataObject, rows: int, columns: int) -> None:
    kinds = [data.draw(st.sampled_from([st.integers(0, 2), VALUES])) for _ in range(columns)]
    values = [data.draw(st.lists(st.one_of(st.none(), kind), min_size=rows, max_size=rows)) for kind in kinds]

    order = row_order([pa.chunked_array([pa.array(column, pa.int64())]) for column in values])

    keys = [tuple((v is None, 0 if v is None else v) for v in row) for row in zip(*values, strict=True)]
    assert sorted(order.tolist()) == list(range(rows))
    # The greatest of all numbers and NULL are one in a column that is too wide: no position or time is that.
    if not any(MOST in column and None in column for column in values):
        assert [keys[n] for n in order] == sorted(keys)
