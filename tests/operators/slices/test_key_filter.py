from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from operators.slices.key_filter import key_filter, rows_with_partners
from tests.examples import examples
from tests.operators.cases import SETTINGS

keys = st.sampled_from([st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)]).flatmap(
    lambda values: hnp.arrays(np.int64, st.integers(0, 200), elements=values)
)


@settings(SETTINGS, max_examples=examples(100))
@given(keys, keys)
def test_no_row_with_a_partner_is_left_out(females: np.ndarray, males: np.ndarray) -> None:
    rows = rows_with_partners(females, key_filter(males))
    assert (np.diff(rows) > 0).all()
    assert set(np.flatnonzero(np.isin(females, males)).tolist()) <= set(rows.tolist())


def test_few_rows_without_a_partner_are_kept() -> None:
    rng = np.random.default_rng(6)
    for males in (np.arange(0, 200_000, 2), rng.integers(-(2**63), 2**63 - 1, 100_000)):
        females = np.arange(1, 400_000, 2)
        assert len(rows_with_partners(females, key_filter(males))) < len(females) / 12
