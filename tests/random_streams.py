"""Random stream contents: awkward key values, skew, duplicates, disorder, late rows, uneven files."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa

from tests.workload_spec import SECOND_US, StreamSpec

START = dt.datetime(2024, 2, 28, 23, 59, 0)
_START_US = int(START.replace(tzinfo=dt.UTC).timestamp()) * SECOND_US

_ARROW = {
    "timestamp": pa.timestamp("us"),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "date": pa.date32(),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(12,3)": pa.decimal128(12, 3),
}

#: Key columns by name: canonical type, and the number of distinct values.
KEYS: dict[str, tuple[str, int]] = {
    "k_txt": ("string", 60),
    "k_big": ("bigint", 200),
    "k_int": ("int", 40),
    "k_dbl": ("double", 12),
    "k_flag": ("boolean", 2),
    "k_dec": ("decimal(9,2)", 50),
    "k_day": ("date", 30),
    "k_at": ("timestamp", 80),
}
_DOUBLES = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 0.1, -2.5, 1e300)
_BIGS = (2**63 - 1, -(2**63), 0, 2**53, 2**53 + 1)


def _key_value(kind: str, j: int) -> object:
    """Return the ``j``-th value of a key type; the first ones are the awkward ones."""
    match kind:
        case "string":
            return ("", "a'b", "Ünïcode \u2603", "A", "a")[j] if j < 5 else f"key-{j}"
        case "bigint":
            return _BIGS[j] if j < len(_BIGS) else j
        case "int":
            return j - 5
        case "double":
            return _DOUBLES[j] if j < len(_DOUBLES) else j / 4
        case "boolean":
            return j % 2 == 0
        case "date":
            return dt.date(1969, 12, 20) + dt.timedelta(days=j)
        case "timestamp":
            return dt.datetime(1969, 12, 31, 23, 59, 59) + dt.timedelta(microseconds=j * 250_001)
        case _:
            return Decimal(j - 10) / 4


def _skewed(rng: np.random.Generator, values: int, rows: int) -> np.ndarray:
    """Return ``rows`` numbers below ``values``, uniform or with a hot head."""
    if rng.random() < 0.5:
        return rng.integers(0, values, rows)
    return np.minimum(rng.zipf(1.6, rows) - 1, values - 1)


def _event_times(
    rng: np.random.Generator, rows: int, span_us: int, lateness_us: int, lag_us: int
) -> np.ndarray:
    """Return event times in order of arrival: disorder below the lateness, and a few stragglers beyond."""
    times = np.sort(rng.integers(0, span_us, rows))
    if rng.random() < 0.4:
        times -= times % (SECOND_US // 2)  # many equal timestamps
    disorder = (
        rng.integers(0, max(lateness_us, 1) + 1, rows) if rng.random() < 0.7 else np.zeros(rows, np.int64)
    )
    stragglers = rng.random(rows) < rng.choice([0.0, 0.02, 0.1])
    disorder = np.where(stragglers, rng.integers(0, span_us // 2 + 1, rows), disorder)
    arrived: np.ndarray = times[np.argsort(times + disorder, kind="stable")]
    return _START_US + arrived - lag_us


def _column(rng: np.random.Generator, name: str, kind: str, common: np.ndarray) -> list[object]:
    rows = len(common)
    if name in KEYS:
        # Most rows take every key column from one number, so that keys of several columns still meet.
        apart = rng.random(rows) < 0.25
        picks = np.where(apart, _skewed(rng, KEYS[name][1], rows), common % KEYS[name][1])
        values = [_key_value(kind, int(j)) for j in picks]
    elif kind == "double":
        values = [float(x) for x in np.round(rng.random(rows), 3)]
    elif kind == "int":
        values = [int(x) for x in rng.integers(-3, 10, rows)]
    elif kind == "boolean":
        values = [bool(x) for x in rng.random(rows) < 0.5]
    else:
        values = [("ab", "Abc", "b", "", "zz top")[int(x)] for x in rng.integers(0, 5, rows)]
    nulls = rng.random(rows) < 0.06
    return [None if null else v for v, null in zip(values, nulls, strict=True)]


def random_table(
    rng: np.random.Generator, spec: StreamSpec, rows: int, span_us: int, lag_us: int
) -> pa.Table:
    """Return one stream's rows in order of arrival.

    Args:
        rng: The only source of randomness.
        spec: Columns and lateness.
        rows: Rows, but for duplicates.
        span_us: Event time they spread over, µs.
        lag_us: How far they lie behind the other streams, µs.
    """
    times = _event_times(rng, rows, span_us, spec.lateness_us, lag_us)
    common = _skewed(rng, 80, rows)
    arrays: dict[str, pa.Array] = {}
    for name, kind in spec.columns.items():
        if name == spec.event_time:
            mask = rng.random(rows) < rng.choice([0.0, 0.01])
            arrays[name] = pa.array(times, mask=mask, type=pa.timestamp("us"))
        elif name == "id":
            arrays[name] = pa.array(np.arange(rows), type=pa.int64())
        else:
            arrays[name] = pa.array(_column(rng, name, kind, common), type=_ARROW[kind])
    table = pa.table(arrays)
    if rng.random() < 0.5:  # duplicate rows, id included: each is a row of its own
        picks = np.sort(np.concatenate([np.arange(rows), rng.integers(0, rows, rows // 20)]))
        table = table.take(pa.array(picks))
    return table


def cut_into_files(rng: np.random.Generator, table: pa.Table, files: int) -> list[pa.Table]:
    """Cut a table into files of uneven length, some of them empty."""
    cuts = np.sort(rng.integers(0, table.num_rows + 1, files - 1))
    if files > 3 and rng.random() < 0.3:
        cuts[1] = cuts[0]
    edges = [0, *(int(c) for c in cuts), table.num_rows]
    return [table.slice(lo, hi - lo) for lo, hi in itertools.pairwise(edges)]
