"""PACK, buckets and chains together against nested loops, on random cases."""

from __future__ import annotations

from hypothesis import given, settings

from tests.examples import examples
from tests.operators.backfill_chains import backfill_chains
from tests.operators.cases import SETTINGS, Case, cases, check


@settings(SETTINGS, max_examples=examples(150, short=18))
@given(cases())
def test_results_and_late_rows_are_those_of_nested_loops(case: Case) -> None:
    check(case)


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(cases(activations=True, family=0))
def test_queries_that_come_and_go_get_what_they_are_entitled_to(case: Case) -> None:
    check(case)


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(backfill_chains())
def test_held_rows_are_handed_on_from_query_to_query(case: Case) -> None:
    check(case)


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(cases(activations=True))
def test_queries_of_several_families_come_and_go(case: Case) -> None:
    check(case)
