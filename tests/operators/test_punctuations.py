"""Punctuations change no result, whatever the batches, buckets and plans: they only shrink the state."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.values.stream import Punctuations
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.closings.promised import ON, Promised, promised_cases, run_promised


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(promised_cases())
def test_results_are_those_of_nested_loops_over_rows_that_keep_promises(promised: Promised) -> None:
    run_promised(promised)


@settings(SETTINGS, max_examples=examples(120, short=15))
@given(promised_cases(activations=True, family=0))
def test_queries_come_and_go_while_closings_are_remembered(promised: Promised) -> None:
    run_promised(promised)


@settings(SETTINGS, max_examples=examples(80, short=10))
@given(promised_cases(activations=True))
def test_families_of_several_keys_use_the_punctuations_that_fix_theirs(promised: Promised) -> None:
    run_promised(promised)


@settings(SETTINGS, max_examples=examples(120, short=30))
@given(promised_cases(activations=True, absence=True, family=0))
def test_rows_without_a_partner_are_decided_when_the_other_side_closes_their_key(promised: Promised) -> None:
    run_promised(promised)


@settings(SETTINGS, max_examples=examples(60, short=15))
@given(promised_cases(activations=True, absence=True))
def test_absence_in_families_of_several_keys_is_decided_by_the_punctuations_of_theirs(
    promised: Promised,
) -> None:
    run_promised(promised)


@settings(SETTINGS, max_examples=examples(40, short=5))
@given(promised_cases(), st.sampled_from((1, 2, 3, 8)))
def test_the_number_of_buckets_changes_no_verdict(promised: Promised, buckets: int) -> None:
    promised = replace(promised, numbers=(0,))
    one = run_promised(promised)
    other = run_promised(replace(promised, case=replace(promised.case, buckets=buckets)))
    assert one.violating == other.violating


@settings(SETTINGS, max_examples=examples(25, short=5))
@given(promised_cases(family=0))
def test_every_row_that_breaks_a_promise_is_dropped_if_nothing_is_forgotten(promised: Promised) -> None:
    streams = {
        i: s if not s.has_contract else replace(s, punctuations=Punctuations(ON, remember_us=None))
        for i, s in promised.case.streams.items()
    }
    run_promised(replace(promised, case=replace(promised.case, streams=streams)), exactly=True)
