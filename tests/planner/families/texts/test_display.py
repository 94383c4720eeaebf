from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.values.query import Query
from planner.build.build_plan import build_plan
from planner.families.texts.display import FamilyText, family_text
from tests.builders import a_query_s
from tests.planner.values import STREAMS

NAMES = {s.id: s.name for s in STREAMS.values()}


def text_of(*queries: Query) -> FamilyText:
    (family,) = build_plan(queries, STREAMS).families
    return family_text(family, NAMES)


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ('"v" < 0.2', "A.v < 0.2"),
        ('"odd name" = 1', 'A."odd name" = 1'),
        ("\"m\" = 'say \"v\", it''s'", "A.m = 'say \"v\", it''s'"),
        ('TRY("k" / NULLIF("v", 0)) > 2', "TRY(A.k / NULLIF(A.v, 0)) > 2"),
    ],
)
def test_columns_of_a_filter_are_named_with_their_stream(sql: str, shown: str) -> None:
    assert text_of(a_query_s(1, filter_a=sql)).filter("a", 0) == shown


def test_alternatives_stand_in_parentheses_where_they_are_compound() -> None:
    queries = [
        a_query_s(i, filter_a=f) for i, f in enumerate(('"v" < 1 AND "k" = 2', "\"m\" = 'x AND y'"), start=1)
    ]
    text = text_of(*queries)
    assert text.keep("a", (1, 0)) == "(A.v < 1 AND A.k = 2) OR A.m = 'x AND y'"
    assert text.keep("a", (1,)) == "A.v < 1 AND A.k = 2"


def test_a_residual_names_both_streams_and_a_self_join_its_sides() -> None:
    residual = 'a."v" < b."v"'
    assert text_of(replace(a_query_s(1), residual=residual)).residual(residual) == "A.v < B.v"
    assert text_of(a_query_s(1, streams=(1, 1))).residual(residual) == "a.v < b.v"
