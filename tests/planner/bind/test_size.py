"""Queries of too many conditions are refused, in however many ways they are written; long lists are not."""

from __future__ import annotations

import pytest

from catalog.values.query import Query
from planner.bind.bind import bind
from planner.bind.size import MAX_CONDITIONS
from planner.errors import UnsupportedCql
from planner.predicates.logic.condition_text import text_of
from planner.predicates.logic.normal_form import MAX_COMPARED
from planner.predicates.logic.simplify import simplify
from planner.predicates.read_condition import read_condition
from tests.planner.cql_streams import STREAMS


def bound(condition: str, output: str = "a.k") -> Query:
    return bind(f"SELECT {output} FROM A [NOW] a, B [NOW] b WHERE a.k = b.k AND ({condition})", STREAMS)


@pytest.mark.parametrize(
    "condition",
    [
        " OR ".join(f"(a.i = {n} AND b.k = {n})" for n in range(400)),
        " AND ".join(f"(a.i <> {n} OR b.k <> {n})" for n in range(400)),
        " OR ".join(f"(a.i = {n} AND a.j = {n})" for n in range(MAX_CONDITIONS // 2 + 1)),
        " AND ".join(f"a.i + {n} > a.j" for n in range(MAX_CONDITIONS + 1)),
        "(" + " OR ".join(f"a.i + {n} = a.j" for n in range(MAX_CONDITIONS + 1)) + ") IS NULL",
        "CASE " + " ".join(f"WHEN a.i = {n} THEN {n}" for n in range(600)) + " END = 1",
    ],
    ids=["terms", "clauses", "filter", "expressions", "inside", "case"],
)
def test_too_many_conditions_are_refused(condition: str) -> None:
    with pytest.raises(UnsupportedCql, match=r"a query of .* conditions is not supported"):
        bound(condition)


def test_conditions_of_the_select_list_count() -> None:
    cases = " ".join(f"WHEN a.i = {n} THEN {n}" for n in range(MAX_CONDITIONS))
    with pytest.raises(UnsupportedCql, match="a query of 513 conditions"):
        bound("TRUE", f"CASE {cases} END AS x")


@pytest.mark.parametrize(
    "condition",
    [
        "a.i IN (" + ", ".join(map(str, range(5_000))) + ")",
        " OR ".join(f"a.i = {n}" for n in range(1_000)),
        " OR ".join(f"(a.i = {n} AND a.j = {n})" for n in range(MAX_CONDITIONS // 2)),
        "a.s = '" + "this and that or those " * 500 + "'",
    ],
    ids=["list", "values", "terms", "text"],
)
def test_long_lists_and_texts_are_taken(condition: str) -> None:
    assert bound(condition).a.filter is not None


def test_more_terms_than_are_compared_keep_their_form() -> None:
    text = " OR ".join(f'("i" = {n} AND "j" = {n})' for n in range(MAX_COMPARED + 1))
    assert text_of(simplify(read_condition(text))).count(" OR ") == MAX_COMPARED
