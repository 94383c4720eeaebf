"""Distributions: the columns of generated rows.

A column is drawn as numbers, which are then converted to its type: text is the number in digits, a date is
the event time's date plus the number in days, a timestamp is the event time plus the number in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.columns.arrow_types import arrow_type
from catalog.values.stream import GeneratedColumn
from service.inputs.formats.conversion.values import from_text

# Any: integers or floats, depending on the column's type.
Numbers = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US

#: Default range of uniform values by type, used if the range is the dataclass's default of 0 to 1.
_DEFAULT_RANGE: Final = {
    "boolean": (0.0, 2.0),
    "int": (0.0, 1000.0),
    "bigint": (0.0, 1000.0),
    "double": (0.0, 1.0),
    "string": (0.0, 1000.0),
    "date": (0.0, 30.0),
    "timestamp": (0.0, 3600.0),
}
_INT_RANGE: Final = {"int": (-(2**31), 2**31 - 1), "bigint": (-(2**62), 2**62)}


def uniform_range(spec: GeneratedColumn, column_type: str) -> tuple[float, float]:
    """Return (low, high) of a uniform column: as given, or the default of its type."""
    if (spec.low, spec.high) != (0.0, 1.0):
        return spec.low, spec.high
    return _DEFAULT_RANGE.get(column_type, (0.0, float(10 ** min(_digits(column_type), 3))))


def draw(
    spec: GeneratedColumn, column_type: str, rng: np.random.Generator, rows: int, first_row: int
) -> Numbers:
    """Draw the numbers of one column for all rows of a chunk.

    Args:
        spec: Generator of the column.
        column_type: Canonical type of the column.
        rng: Random number generator of this column and chunk.
        rows: Number of rows of the chunk.
        first_row: Number of the chunk's first row in the stream, for ``sequence``.

    Returns:
        float64[rows] for doubles, otherwise int64[rows]: unscaled values of decimals, indexes of choices.
    """
    unit: int = 10 ** _scale(column_type)
    match spec.distribution:
        case "uniform":
            low, high = uniform_range(spec, column_type)
            if column_type == "double":
                return rng.uniform(low, high, rows)
            return rng.integers(round(low * unit), round(high * unit), rows)
        case "normal":
            values = rng.normal(spec.low, spec.high, rows) * unit
            return values if column_type == "double" else _whole(values, column_type)
        case "zipf":
            ranks = np.searchsorted(_zipf_cdf(spec.cardinality, spec.skew), rng.random(rows), side="right")
            numbers: Ints = ranks.astype(np.int64) + round(spec.low)
            return numbers * unit
        case "choice":
            return rng.integers(0, len(spec.values), rows)
        case "sequence":
            first = first_row + round(spec.low)
            return np.arange(first, first + rows, dtype=np.int64) * unit


def to_arrow(spec: GeneratedColumn, column_type: str, parts: Sequence[Numbers], times: Ints) -> pa.Array:
    """Convert the drawn numbers of a column to its type.

    Args:
        spec: Generator of the column.
        column_type: Canonical type of the column.
        parts: Numbers from `draw`, by chunk.
        times: int64[n], event times of all rows, µs UTC.
    """
    numbers: Numbers = np.concatenate(parts) if parts else np.empty(0, np.int64)
    target = arrow_type(column_type)
    if spec.distribution == "choice":
        return from_text(pa.array(spec.values, pa.string()), column_type).take(pa.array(numbers, pa.int64()))
    match column_type:
        case "double" | "int" | "bigint":
            return pa.array(numbers.astype(target.to_pandas_dtype()))
        case "boolean":
            return pa.array(numbers % 2 == 1)
        case "string":
            return pa.array(numbers, pa.int64()).cast(target)
        case "date":
            return pa.array((times // _DAY_US + numbers).astype(np.int32)).view(target)
        case "timestamp":
            return pa.array(times + numbers.astype(np.int64) * _SECOND_US).view(target)
        case _:
            return _decimals(numbers.astype(np.int64), target)


def _decimals(unscaled: Ints, target: pa.DataType) -> pa.Array:
    """Return decimal128 from unscaled values: 128-bit two's complement, low word first."""
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    return pa.Array.from_buffers(target, len(unscaled), [None, pa.py_buffer(words)])


def _whole(values: npt.NDArray[np.float64], column_type: str) -> Ints:
    low, high = _INT_RANGE.get(column_type, _INT_RANGE["bigint"])
    if column_type.startswith("decimal"):
        high = 10 ** min(_precision(column_type), 18) - 1
        low = -high
    return np.rint(np.clip(values, low, high)).astype(np.int64)


@lru_cache(maxsize=8)
def _zipf_cdf(cardinality: int, skew: float) -> npt.NDArray[np.float64]:
    """Distribution function of the Zipf law over 1 .. cardinality."""
    weights = np.arange(1, cardinality + 1, dtype=np.float64) ** -skew
    cdf: npt.NDArray[np.float64] = np.cumsum(weights)
    cdf /= cdf[-1]
    return cdf


def _precision(column_type: str) -> int:
    return int(column_type[len("decimal(") :].partition(",")[0]) if column_type.startswith("decimal") else 0


def _scale(column_type: str) -> int:
    return int(column_type.rstrip(")").partition(",")[2]) if column_type.startswith("decimal") else 0


def _digits(column_type: str) -> int:
    return _precision(column_type) - _scale(column_type)
