"""Sums of doubles are those of exact arithmetic, whatever the order and the cut."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from operators.groups.exact_sums import Float64s, Limbs, limbs, rounded_sums

LARGEST = 1.7976931348623157e308


def _sum(values: list[float]) -> float:
    added = limbs(np.array(values, dtype=np.float64))
    return float(rounded_sums(1, np.zeros(len(values), dtype=np.int64), added)[0])


def _expected(values: list[float]) -> float:
    total = sum((Fraction(value) for value in values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
@example([LARGEST, LARGEST, -LARGEST])
@example([LARGEST, LARGEST])
@example([5e-324, -5e-324, 5e-324])
@example([2.2250738585072014e-308, -5e-324])
@example([1.0, 2.0**-53])
@example([1.0, 2.0**-53, 2.0**-1074])
@example([1.0 + 2.0**-52, 2.0**-53])
@example([-1.0, -(2.0**-53), -(2.0**-1074)])
@example([-0.0, -0.0])
def test_a_sum_is_the_exact_one_rounded_once(values: list[float]) -> None:
    assert _sum(values) == _expected(values)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e6, 1e6)), min_size=1), st.data())
def test_sums_of_sums_are_the_same(values: list[tuple[int, float]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    parts = [_limbs_by_group(part) for part in (values[:cut], values[cut:])]
    group = np.concatenate([group for group, _ in parts])
    added = Limbs(*(np.concatenate(columns) for columns in zip(*(part for _, part in parts), strict=True)))
    order = np.argsort(group, kind="stable")
    found = rounded_sums(4, group[order], Limbs(*(column[order] for column in added)))
    for number in range(4):
        assert found[number] == _expected([value for of, value in values if of == number])


def _limbs_by_group(values: list[tuple[int, float]]) -> tuple[np.ndarray, Limbs]:
    """Add the limbs of each group and bin up."""
    sums: dict[tuple[int, int], list[int]] = {}
    doubles: Float64s = np.array([value for _, value in values], dtype=np.float64)
    for (of, _), bin_, *added in zip(values, *limbs(doubles), strict=True):
        entry = sums.setdefault((of, int(bin_)), [0, 0, 0])
        for place, value in enumerate(added):
            entry[place] += int(value)
    keys = np.array(list(sums), dtype=np.int64).reshape(-1, 2)
    columns = np.array(list(sums.values()), dtype=np.int64).reshape(-1, 3)
    return keys[:, 0].copy(), Limbs(keys[:, 1].copy(), *(columns[:, n].copy() for n in range(3)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, LARGEST], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, math.inf], math.nan),
    ],
)
def test_values_that_are_no_numbers_make_the_sum_one(values: list[float], expected: float) -> None:
    found = _sum(values)
    assert found == expected or (math.isnan(found) and math.isnan(expected))
