"""Answers from a sample: rates, filter selectivity, keys, row width; questions are hashable values.

FilterAsked('"v" < 0.2')  ──> Answer(0.2)  ──> kept until the stream has grown by a quarter
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from catalog.values.statistics import (
    Measure,
)
from catalog.values.stream import Stream
from operators.kernels.keys import Int64s, join_key
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.segment import COLUMN, LINEAGE, Segment
from service.inputs.reading.sample import RowSample

#: Maximum number of frequent keys examined one by one; if more keys are equally frequent, hashing spreads
#: them well enough.
MAX_FREQUENT: Final = 256
#: Rows of a key in a sample that suffice to estimate the key's share with an error of about a quarter.
LEAST_ROWS: Final = 16
#: Sample rows per stream whose pairs are all tested against a band; enough to measure a share of 1 in 1,000.
COMPARED_ROWS: Final = 2_000
#: Rows encoded to measure the bytes per row; enough that the fixed part of a segment hardly matters.
ENCODED_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class RatesAsked:
    """Asks for the rates of a stream."""


@dataclass(frozen=True, slots=True)
class FilterAsked:
    """Asks for the selectivity of a filter."""

    sql: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyAsked:
    """Asks for the keys of a stream: columns, and their types in the join."""

    columns: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WidthAsked:
    """Asks for the bytes per stored row of a family's side."""

    key: KeyAsked
    stored: tuple[str, ...]
    lineage_words: int


@dataclass(frozen=True, slots=True)
class RowsAsked:
    """Asks for some rows, spread over the sample."""

    columns: tuple[str, ...]


Question = RatesAsked | FilterAsked | KeyAsked | WidthAsked | RowsAsked


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Estimates from a sample.

    Attributes:
        value: Rate, selectivity or width; NaN if the sample does not determine the value.
        at_us: Time of the sample, µs UTC.
        keys: Keys, or None if the question was not about keys, or if no row has a key.
        file_s: Event time per file, seconds; only for a question about rates.
        files: Number of files; only for a question about rates.
        rows: Rows, or None if the question was not about rows.
    """

    value: float
    at_us: int
    keys: SampledKeys | None = None
    file_s: float | None = None
    files: int = 0
    rows: pa.Table | None = None

    @property
    def measure(self) -> Measure | None:
        """The value as a measure, or None if there is no value."""
        return None if math.isnan(self.value) else Measure(self.value, "sampled", self.at_us)


@dataclass(frozen=True, slots=True, eq=False)
class SampledKeys:
    """Keys of a sample.

    Attributes:
        distinct: int64[n], the keys, ascending.
        rows: int64[n], number of rows of each key.
        skew: Self-join size of the rows, divided by the size if all keys had equal shares.
        frequent: Share of the rows by key, for the frequent keys.
    """

    distinct: Int64s
    rows: Int64s
    skew: float
    frequent: Mapping[int, float]

    def selectivity(self, other: SampledKeys) -> float:
        """Return the fraction of all pairs of rows that have equal keys (State-Slice's S_1)."""
        _, mine, theirs = np.intersect1d(
            self.distinct, other.distinct, assume_unique=True, return_indices=True
        )
        pairs = self.rows[mine].astype(np.float64) @ other.rows[theirs]
        return float(pairs / (self.rows.sum(dtype=np.float64) * other.rows.sum()))


def columns_asked(question: Question) -> tuple[str, ...]:
    """Return the columns of a sample that a question needs."""
    match question:
        case FilterAsked(columns=columns) | KeyAsked(columns=columns) | RowsAsked(columns=columns):
            return columns
        case WidthAsked(key=key, stored=stored):
            return (*key.columns, *stored)
        case _:
            return ()


def answered(
    question: RatesAsked | KeyAsked | WidthAsked | RowsAsked, stream: Stream, sample: RowSample, at_us: int
) -> Answer:
    """Return the answer to a question from the rows of a sample.

    Args:
        question: The question.
        stream: The stream.
        sample: Rows of the stream.
        at_us: Time at which the rows were read, µs UTC.
    """
    match question:
        case RatesAsked():
            rate = math.nan if sample.rate_per_s is None else sample.rate_per_s
            return Answer(rate, at_us, file_s=sample.file_s, files=sample.files)
        case KeyAsked():
            return Answer(math.nan, at_us, keys=_keys(sample.table, question))
        case RowsAsked(columns=columns):
            places = np.unique(np.linspace(0, sample.table.num_rows - 1, COMPARED_ROWS).astype(np.int64))
            return Answer(math.nan, at_us, rows=sample.table.select(columns).take(pa.array(places)))
        case WidthAsked():
            return Answer(_row_bytes(sample.table, question, stream), at_us)


def _keys(table: pa.Table, question: KeyAsked) -> SampledKeys | None:
    """Return the keys of the rows that have a key, or None if no row has a key."""
    key, valid = join_key(table, question.columns, question.types)
    key = key[valid]
    if not len(key):
        return None
    distinct, rows = np.unique(key, return_counts=True)
    counts = rows.astype(np.float64)
    top = np.argsort(-rows, kind="stable")[:MAX_FREQUENT]
    top = top[rows[top] >= LEAST_ROWS]
    return SampledKeys(
        distinct,
        rows,
        float((counts**2).sum() * len(counts) / counts.sum() ** 2),
        dict(zip(distinct[top].tolist(), (counts[top] / counts.sum()).tolist(), strict=True)),
    )


def _row_bytes(table: pa.Table, question: WidthAsked, stream: Stream) -> float:
    """Return the bytes per row of some rows, encoded as in the state; NaN if no row has a key."""
    head = table.slice(0, ENCODED_ROWS).combine_chunks()
    key, valid = join_key(head, question.key.columns, question.key.types)
    index = np.flatnonzero(valid)
    if not len(index):
        return math.nan
    index = index[np.argsort(key[index], kind="stable")]
    rows = len(index)
    ts = head.column(stream.event_time).cast(pa.int64()).to_numpy()
    arrays = {KEY: pa.array(key[index]), TS: pa.array(ts[index]), POS: pa.array(index)}
    for word in range(question.lineage_words):
        arrays[f"{LINEAGE}{word}"] = pa.array(np.zeros(rows, dtype=np.uint64))
    for name in question.stored:
        arrays[COLUMN + name] = head.column(name).combine_chunks().take(pa.array(index))
    batch = pa.table(arrays).combine_chunks().to_batches()[0]
    return len(Segment(batch, 1, ()).encode()) / rows
