"""The differential test on new cases every time; a failure prints how to repeat it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operators.backfill_chains import backfill_chains
from tests.operators.cases import SETTINGS, Case, cases, check

RANDOM = settings(SETTINGS, derandomize=False, max_examples=10_000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(RANDOM)
@given(st.one_of(cases(activations=True, max_rows=150), backfill_chains()))
def test_results_are_those_of_nested_loops_on_new_cases(case: Case) -> None:
    check(case)
