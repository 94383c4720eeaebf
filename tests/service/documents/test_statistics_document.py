"""Statistics that somebody gives are found by what they mean, or refused with what is wrong."""

from __future__ import annotations

import pytest

from catalog.errors import InvalidInput
from catalog.values.query import Query
from catalog.values.statistics import Measure
from planner.errors import (
    AmbiguousColumn,
    CqlSyntaxError,
    TypeMismatch,
    UnknownColumn,
    UnknownStatistic,
    UnknownStream,
    UnsupportedCql,
)
from service.documents.statistics_document import StatisticsDocument, StreamNumbersDocument
from tests.builders import a_query_s
from tests.planner.values import STREAMS

LOW = '"v" < 0.2'
QUERIES = [a_query_s(1, filter_a=LOW), a_query_s(2, filter_b='"v" > 0.9')]


def filters(texts: dict[str, float], queries: list[Query] | None = None) -> list[tuple[int, str, float]]:
    found = StatisticsDocument(filters=texts).to_profile(queries or QUERIES, STREAMS.values())
    return [(f.stream_id, f.sql, f.selectivity.value) for f in found.filters]


@pytest.mark.parametrize(
    "text", ["A.v < 0.2", "0.2 > a.V", "(A.v < 0.2)", 'NOT "A"."v" >= 0.2', "A.v < 0.2 -- low"]
)
def test_a_filter_is_found_however_it_is_written(text: str) -> None:
    assert filters({text: 0.25}) == [(1, LOW, 0.25)]


def test_a_filter_of_a_self_join_is_one_of_its_stream() -> None:
    assert filters({"A.v < 0.2": 0.3}, [a_query_s(1, filter_a=LOW, filter_b=LOW, streams=(1, 1))]) == [
        (1, LOW, 0.3)
    ]


def test_numbers_of_streams_and_joins_are_given() -> None:
    given = StatisticsDocument(
        streams={"a": StreamNumbersDocument(rate=50), "B": StreamNumbersDocument(row_bytes=48)},
        join_selectivity=0.025,
        batch_s=2,
    )
    found = given.to_profile(QUERIES, STREAMS.values())
    a, b = found.streams
    assert (a.stream_id, a.rate_per_s, a.row_bytes) == (1, Measure(50), None)
    assert (b.stream_id, b.rate_per_s.origin, b.row_bytes) == (2, "assumed", Measure(48))
    assert [f.join_selectivity.value for f in found.families] == [0.025]
    assert found.batch_s == Measure(2)


@pytest.mark.parametrize(
    ("text", "kind", "primary"),
    [
        ("A.v < 0.3", UnknownStatistic, 'no query has the filter "A.v < 0.3"'),
        ("TRUE", UnsupportedCql, "a condition without a column is not supported here"),
        ("X.v < 0.2", UnknownStream, 'stream "X" does not exist'),
        ("A.v < B.v", UnsupportedCql, "a condition on two streams is not supported here"),
        ("v < 0.2", AmbiguousColumn, 'column "v" is in 3 streams'),
        ("A.w < 2", UnknownColumn, 'column "w" does not exist in stream "A"'),
        ("A.v <", CqlSyntaxError, "the query ends too early"),
        ("(A.v < 2", CqlSyntaxError, 'expected ")", found the end'),
        ("A.v", TypeMismatch, "WHERE takes a condition, not double"),
        ("", CqlSyntaxError, "the condition is empty"),
    ],
)
def test_what_is_no_filter_of_a_query_is_refused(text: str, kind: type[InvalidInput], primary: str) -> None:
    with pytest.raises(kind) as caught:
        filters({text: 0.5})
    assert caught.value.primary == primary
    assert caught.value.path == ("filters", text)
    if caught.value.location is not None:
        assert caught.value.location.text == text


def test_a_stream_that_does_not_exist_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownStatistic) as caught:
        StatisticsDocument(streams={"AA": StreamNumbersDocument(rate=1)}).to_profile(
            QUERIES, STREAMS.values()
        )
    assert caught.value.path == ("streams", "AA")
    assert caught.value.hint == 'Did you mean "A"?'
