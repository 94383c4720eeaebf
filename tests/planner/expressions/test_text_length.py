"""Expressions that would make gigabytes of text are refused, or NULL where only the rows can tell."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from operators.filters.expressions import evaluate_filters
from planner.bind.bind import bind
from planner.errors import UnsupportedCql
from tests.planner.cql_streams import STREAMS

JOIN = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND "


def filter_of(condition: str) -> str:
    text = bind(JOIN + condition, STREAMS).a.filter
    assert text is not None
    return text


@pytest.mark.parametrize(
    "text",
    [
        "replace(replace(lpad('', 10000, 'a'), 'a', lpad('', 10000, 'b')), 'b', lpad('', 1000, 'c'))",
        "replace(replace(A.s, 'a', lpad(A.s, 10000, 'b')), 'b', A.t)",
        "replace(lpad(A.s, 10000, 'a'), 'a', A.t || A.s)",
        "replace(replace(replace(A.s, A.t, A.s), A.t, A.s), A.t, A.s)",
        "replace(CASE WHEN A.f THEN lpad(A.s, 9999, 'x') ELSE 'b' END, 'x', A.t)",
    ],
)
def test_a_text_that_multiplies_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedCql, match="a text of more than 1,000,000 characters is not supported"):
        bind(f"{JOIN} length({text}) > 1", STREAMS)


def test_a_text_that_grows_too_long_in_a_row_is_null() -> None:
    found = filter_of("length(replace(A.s, 'a', A.t)) > 0")
    rows = pa.table({"s": ["aaa", "a" * 1_000_000], "t": ["bb", "b" * 1_000_000]})
    (passed,) = evaluate_filters(rows, [found])
    assert passed.tolist() == [True, False]


def test_a_replacement_that_makes_nothing_longer_stays_as_it_is() -> None:
    assert filter_of("replace(A.s, 'ab', 'x') = 'c'") == "replace(\"s\", 'ab', 'x') = 'c'"
    nested = "A.s"
    for _ in range(20):
        nested = f"replace({nested}, 'a', 'b')"
    assert len(filter_of(f"{nested} = 'b'")) < 1_000


@pytest.mark.parametrize(
    "text",
    [
        "(SELECT count(*) FROM read_text('/etc/hostname')) > 0",
        "(SELECT count(*) FROM '/etc/hostname.csv') > 0",
    ],
)
def test_an_expression_reaches_no_file(text: str) -> None:
    with pytest.raises(duckdb.PermissionException):
        evaluate_filters(pa.table({"s": ["a"]}), [text])
