"""Every type that a join key may have, alone and together, against nested loops."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.kernels import keys
from tests.builders import a_query, a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS, Case, Step, check
from tests.operators.queries import Row

#: NaN with another sign and payload than Python's.
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]

POOLS: dict[str, tuple[object, ...]] = {
    "boolean": (True, False),
    "int": (0, 1, -1, 2**31 - 1, -(2**31)),
    "bigint": (0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)),
    "double": (0.0, -0.0, math.nan, OTHER_NAN, math.inf, -math.inf, 1.5, 5e-324),
    "string": ("", "a", "A", "a ", "ä", "a\u0308", "a\0"),
    "date": (date(1970, 1, 1), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": (datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2013, 1, 1)),
    "decimal(5,2)": (Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("999.99")),
    "decimal(18,4)": (Decimal("0.0000"), Decimal("1.5000"), Decimal("-99999999999999.9999")),
    "decimal(20,4)": (Decimal("0.0000"), Decimal("1.5000"), Decimal("-1.5000"), Decimal("9" * 16 + ".9999")),
    "decimal(38,0)": (
        Decimal(0),
        Decimal(2**64),
        Decimal(2**64 + 1),
        Decimal(1),
        Decimal(-1),
        Decimal(10**37),
    ),
    "decimal(38,2)": (Decimal("1.50"), Decimal("-1.50"), Decimal("0.00"), Decimal("999.99")),
}

#: Type of a's column, of b's, and their common type (the larger scale, the longer integer).
PAIRS = (
    *((kind, kind, kind) for kind in POOLS),
    ("int", "bigint", "bigint"),
    ("bigint", "int", "bigint"),
    ("decimal(5,2)", "decimal(18,4)", "decimal(18,4)"),
    ("decimal(20,4)", "decimal(5,2)", "decimal(20,4)"),
    ("decimal(5,2)", "decimal(38,2)", "decimal(38,2)"),
)


@st.composite
def keyed_cases(draw: st.DrawFn) -> Case:
    """Draw a case over streams whose key columns ``c0``, ``c1``, ... have drawn types."""
    pairs = draw(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=3))
    key = tuple((f"c{i}", f"c{i}") for i in range(len(pairs)))
    kinds = tuple(common for _, _, common in pairs)
    streams = {
        1: a_stream(1, 3, [(f"c{i}", kind) for i, (kind, _, _) in enumerate(pairs)]),
        2: a_stream(2, 3, [(f"c{i}", kind) for i, (_, kind, _) in enumerate(pairs)]),
    }
    batches = []
    positions = {1: 0, 2: 0}
    for size in draw(st.lists(st.integers(0, 12), min_size=1, max_size=4)):
        rows = []
        for _ in range(size):
            stream_id = draw(st.integers(1, 2))
            values = {
                # Few values per column, so that keys of several columns meet too.
                f"c{i}": draw(st.sampled_from((*POOLS[pair[stream_id - 1]][: 8 // len(pairs)], None)))
                for i, pair in enumerate(pairs)
            }
            rows.append((stream_id, Row(positions[stream_id], draw(st.integers(0, 6)), values)))
            positions[stream_id] += 1
        batches.append(tuple(rows))
    columns = draw(st.sampled_from(((), tuple(name for name, _ in key), (key[0][0],))))
    query = a_query(1, 5, 3, key=key, key_types=kinds, columns_a=columns, columns_b=columns)
    steps = [Step((query,) if n == 0 else None, rows) for n, rows in enumerate(batches)]
    return Case(streams, tuple(steps), draw(st.integers(1, 3)), 0, stored=True)


@settings(SETTINGS, max_examples=examples(300))
@given(keyed_cases())
def test_keys_of_every_type_join_as_python_compares_them(case: Case) -> None:
    check(case)


@settings(SETTINGS, max_examples=examples(30))
@given(keyed_cases())
def test_keys_whose_hashes_all_collide_still_join_by_value(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "mix", lambda values: values & np.uint64(1))
        patch.setattr(pd.util, "hash_array", lambda values, categorize: np.zeros(len(values), np.uint64))
        check(case)


@pytest.mark.parametrize(("kind_a", "kind_b", "common"), PAIRS)
def test_every_pair_of_equal_values_joins_and_no_other(kind_a: str, kind_b: str, common: str) -> None:
    streams = {1: a_stream(1, 0, [("c", kind_a)]), 2: a_stream(2, 0, [("c", kind_b)])}
    rows_a = [(1, Row(n, 0, {"c": value})) for n, value in enumerate((*POOLS[kind_a], None))]
    rows_b = [(2, Row(n, 0, {"c": value})) for n, value in enumerate((*POOLS[kind_b], None))]
    query = a_query(1, 1, key=(("c", "c"),), key_types=(common,), columns_a=("c",), columns_b=("c",))
    outcome = check(Case(streams, (Step((query,), (*rows_a, *rows_b)),), 3, 0, stored=True))
    assert outcome.results


def test_the_event_time_may_be_the_key() -> None:
    query = a_query(1, 9, key=(("ts", "ts"),), key_types=("timestamp",), columns_a=("ts", "v"))
    values = {"k": None, "m": None, "v": 1, "w": None}
    rows = tuple((s, Row(n, ts, values)) for s in (1, 2) for n, ts in enumerate((-1, 0, 1, 1)))
    outcome = check(Case({1: a_stream(1), 2: a_stream(2)}, (Step((query,), rows),), 2, 0, stored=True))
    assert sum(outcome.results.values()) == 6
