"""A text is cast to the moment that it names, in UTC, wherever the session is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import cache

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.bind.bind import bind
from tests.planner.cql_streams import STREAMS

QUERY = "SELECT CAST(A.s AS {}) AS x FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k"
OFFSETS = st.integers(-14 * 4, 14 * 4).map(lambda quarters: timezone(timedelta(minutes=15 * quarters)))


@cache
def sql_of(type_: str) -> str:
    (column,) = bind(QUERY.format(type_), STREAMS).outputs
    return column.sql.replace('a."s"', "s")


@cache
def session() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    return connection


def cast(text: str, type_: str) -> object:
    """Evaluate the cast of a text in a session of another zone."""
    found = session().execute(f"SELECT {sql_of(type_)} FROM (SELECT ? AS s)", [text]).fetchone()
    assert found is not None
    return found[0]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.none() | OFFSETS)
def test_an_offset_is_taken_off(moment: datetime, offset: timezone | None) -> None:
    text = moment.replace(tzinfo=offset).isoformat(sep=" ")
    expected = (
        moment if offset is None else moment.replace(tzinfo=offset).astimezone(UTC).replace(tzinfo=None)
    )
    assert cast(text, "TIMESTAMP") == expected
    assert cast(text.replace(" ", "T"), "DATE") == expected.date()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-01-01T05:00:00Z", datetime(2024, 1, 1, 5)),
        ("2024-01-01 05:00:00-0330", datetime(2024, 1, 1, 8, 30)),
        ("2024-01-01 05:00:00 Europe/Berlin", datetime(2024, 1, 1, 4)),
        ("2024-01-01 05:00 PM", None),
        ("2024-01-01", datetime(2024, 1, 1)),
        ("tomorrow", None),
    ],
)
def test_forms_of_times(text: str, moment: datetime | None) -> None:
    assert cast(text, "TIMESTAMP") == moment
