from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from catalog.columns.arrow_types import arrow_type
from operators.kernels.keys import bucket_of, is_exact, join_key, recover_column, verify_equal


def keys_of(values: list[object], kind: str, common: str | None = None) -> tuple[list[int], list[bool]]:
    table = pa.table({"c": pa.array(values, arrow_type(kind))})
    key, valid = join_key(table, ["c"], [common or kind])
    return key.tolist(), valid.tolist()


@pytest.mark.parametrize("kind", ["boolean", "int", "bigint", "double", "date", "timestamp", "decimal(18,3)"])
def test_a_single_key_of_64_bits_is_exact(kind: str) -> None:
    assert is_exact((kind,))
    assert not is_exact((kind, kind))


@pytest.mark.parametrize("kind", ["string", "decimal(19,3)", "decimal(38,0)"])
def test_a_wider_key_is_hashed(kind: str) -> None:
    assert not is_exact((kind,))


def test_null_in_any_column_is_no_key() -> None:
    table = pa.table({"x": pa.array([1, None, 1]), "y": pa.array(["p", "p", None])})
    _, valid = join_key(table, ["x", "y"], ["bigint", "string"])
    assert valid.tolist() == [True, False, False]


def test_doubles_are_normalised() -> None:
    (zero, minus_zero, nan, other_nan, one), valid = keys_of([0.0, -0.0, math.nan, -math.nan, 1.0], "double")
    assert zero == minus_zero
    assert nan == other_nan
    assert len({zero, nan, one}) == 3
    assert all(valid)


def test_decimals_of_different_scale_get_the_key_of_their_common_type() -> None:
    for common in ("decimal(12,4)", "decimal(22,4)"):
        short, _ = keys_of([Decimal("1.5"), Decimal("-2.25")], "decimal(5,2)", common)
        long, _ = keys_of([Decimal("1.5"), Decimal("-2.25")], common)
        assert short == long


def test_decimals_that_share_their_low_64_bits_differ() -> None:
    (low, high), _ = keys_of([Decimal(5), Decimal(2**64 + 5)], "decimal(38,0)")
    assert low != high


def test_slices_of_a_table_have_the_keys_of_their_own_rows() -> None:
    column = pa.array([Decimal(n) for n in range(6)], arrow_type("decimal(10,0)"))
    key, _ = join_key(pa.table({"c": column}).slice(3), ["c"], ["decimal(10,0)"])
    assert key.tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    "kind",
    ["boolean", "int", "bigint", "double", "string", "date", "timestamp", "decimal(9,2)", "decimal(30,2)"],
)
def test_tables_without_rows_or_values_have_no_keys(kind: str) -> None:
    assert keys_of([], kind) == ([], [])
    _, valid = keys_of([None, None], kind)
    assert valid == [False, False]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("boolean", [True, False]),
        ("int", [0, -1, 2**31 - 1]),
        ("bigint", [0, -(2**63), 2**63 - 1]),
        ("date", [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)]),
        ("timestamp", [datetime(1970, 1, 1), datetime(1901, 2, 3, 4, 5, 6, 7)]),
    ],
)
def test_the_column_is_recovered_from_its_key(kind: str, values: list[object]) -> None:
    table = pa.table({"c": pa.array(values, arrow_type(kind))})
    key, _ = join_key(table, ["c"], [kind])
    recovered = recover_column(key, kind)
    assert recovered.type == arrow_type(kind)
    assert recovered.to_pylist() == values


def test_verification_compares_values_and_nothing_equals_null() -> None:
    left = [pa.array([math.nan, 0.0, 1.0, None]), pa.array(["a", "a", "a", "a"])]
    right = [pa.array([math.nan, -0.0, 1.0, None]), pa.array(["a", "a", "b", "a"])]
    assert verify_equal(left, right, ["double", "string"]).tolist() == [True, True, False, False]


def test_buckets_are_in_range_and_the_same_in_every_version() -> None:
    """State lies in buckets by this function: a change of it would orphan the state of every checkpoint."""
    key = np.array([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1], dtype=np.int64)
    assert bucket_of(key, 1).tolist() == [0] * 7
    assert bucket_of(key, 5).tolist() == BUCKETS_OF_5


def test_hashed_keys_are_the_same_in_every_version() -> None:
    assert keys_of(["", "a", "ä"], "string")[0] == HASHES_OF_STRINGS
    assert keys_of([Decimal(1), Decimal(-(10**30))], "decimal(38,0)")[0] == HASHES_OF_DECIMALS


def test_dense_keys_spread_evenly_over_buckets() -> None:
    counts = np.bincount(bucket_of(np.arange(10_000, dtype=np.int64), 4))
    assert counts.min() > 2_300


BUCKETS_OF_5 = [0, 2, 0, 4, 0, 1, 3]
HASHES_OF_STRINGS = [-8082256963573168258, 4331099054663464410, 1295093149308085402]
HASHES_OF_DECIMALS = [8841707400507832957, 6018345923891308510]
