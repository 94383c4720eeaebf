"""Event times of results, as the text that reads them adds them up."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from catalog.values.query import UNBOUNDED_US
from service.results.result_sql import results_sql
from tests.builders import a_query


def test_an_absent_row_with_an_unbounded_window_has_its_own_event_time() -> None:
    query = a_query(
        1, UNBOUNDED_US, 10, kind="outer", preserved=("a", "b"), columns_a=("k",), columns_b=("k",)
    )
    nothing = pa.nulls(3, pa.int64())
    pairs = pa.table(
        {
            "_route": [1, 1, 1],
            "_batch": [0, 0, 0],
            "_event_time": pa.array([5, 6, 7], pa.timestamp("us")),
            "_pos_a": [0, None, 1],
            "_pos_b": [0, 1, None],
            "a_k": nothing,
            "b_k": nothing,
        }
    )
    with duckdb.connect() as connection:
        connection.register("pairs", pairs)
        found = connection.sql(f'SELECT epoch_us("_event_time") FROM ({results_sql(query, "pairs", "1")})')
        assert sorted(found.fetchall()) == [(5,), (7,), (16,)]
