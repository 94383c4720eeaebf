"""Expected results of each query: DuckDB's join of the acknowledged rows.

The rows are made again from their numbers, a stretch of A at a time with the rows of B around it. Which pairs
a visitor gets depends on the batches of both rows (semantics, "Activation"); the ends of batches and their
plan versions are what the service committed. That these ends cover the input is checked, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from tests.bench.soak.queries import STANDING, SoakQuery
from tests.bench.soak.readers import read_pairs
from tests.bench.soak.rows import DISORDER_US, STREAMS, SoakRows
from tests.bench.soak.visitors import Phase

_WIDEST_US = max(max(q.a_us, q.b_us) for q in STANDING.values())
#: Rows of A joined at a time.
_STRETCH = 1_000_000
#: Packs a pair into one number: row numbers are below.
_SHIFT = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Compared:
    """Results of a query beside what they must be.

    Attributes:
        name: The query.
        expected: Pairs that it must have.
        missing: Of these, not read.
        extra: Read, but none of these.
        doubled: Read more than once.
    """

    name: str
    expected: int
    missing: int
    extra: int
    doubled: int

    @property
    def equal(self) -> bool:
        """Tell whether each pair was read once, and nothing else."""
        return not (self.missing or self.extra or self.doubled)


@dataclass(frozen=True, slots=True, eq=False)
class SoakBatches:
    """Batches that the service committed.

    Attributes:
        versions: Plan version of each, ascending.
        ends: By stream, number after its last row in each batch.
    """

    versions: np.ndarray
    ends: Mapping[str, np.ndarray]

    def first_of(self, version: int | None) -> int:
        """Return the first batch under a plan version or a later one; None is later than all."""
        return len(self.versions) if version is None else int(np.searchsorted(self.versions, version))

    def of_rows(self, stream: str, numbers: np.ndarray) -> np.ndarray:
        """Return the batch of each row."""
        return np.searchsorted(self.ends[stream], numbers, side="right")


def batches_of(lines: Sequence[Mapping[str, object]]) -> SoakBatches:
    """Return what the sampler wrote down of batches."""
    ends = np.array([line["ends"] for line in lines], np.int64)
    versions = np.array([line["plan_version"] for line in lines], np.int64)
    return SoakBatches(versions, {name: ends[:, n] for n, name in enumerate(STREAMS)})


def compare(
    directory: Path,
    rows: SoakRows,
    acknowledged: Mapping[str, int],
    batches: SoakBatches,
    visits: Mapping[str, Sequence[Phase]],
) -> list[Compared]:
    """Compare the pairs of every query.

    Args:
        directory: Of the pairs that were read.
        rows: The rows.
        acknowledged: How many of each stream were.
        batches: The batches.
        visits: Phases of the visitors.

    Raises:
        RuntimeError: The batches do not end where the input does.
    """
    for name, end in acknowledged.items():
        if batches.ends[name][-1] != end:
            raise RuntimeError(f"the batches end at row {batches.ends[name][-1]:,} of {name}, not {end:,}")
    lives = {name: (Phase(query, "state", 0),) for name, query in STANDING.items()} | dict(visits)
    found: dict[str, list[np.ndarray]] = {name: [] for name in lives}
    for near in _near_pairs(rows, acknowledged, batches):
        for name, phases in lives.items():
            found[name] += [near.of(phase, batches) for phase in phases]
    return [_compared(name, np.concatenate(parts), directory) for name, parts in found.items()]


@dataclass(frozen=True, slots=True, eq=False)
class _Near:
    """Pairs of equal key that some window may hold, by the batch of their later row."""

    columns: Mapping[str, np.ndarray]
    older: np.ndarray
    newer: np.ndarray

    def of(self, phase: Phase, batches: SoakBatches) -> np.ndarray:
        """Return the pairs that a query gets in a phase, packed."""
        begin, end = batches.first_of(phase.from_version), batches.first_of(phase.to_version)
        part = slice(*np.searchsorted(self.newer, (begin, end)).tolist())
        d, av, bv, a, b = (self.columns[name][part] for name in ("d", "av", "bv", "a", "b"))
        query: SoakQuery = phase.query
        fits = ((d >= 0) & (d < query.a_us)) | ((d <= 0) & (-d < query.b_us))
        fits &= (av < query.a_below) & (bv < query.b_below)
        if phase.backfill == "none":
            fits &= self.older[part] >= begin
        return _packed(a[fits], b[fits])


def _near_pairs(rows: SoakRows, acknowledged: Mapping[str, int], batches: SoakBatches) -> Iterator[_Near]:
    around = (_WIDEST_US + 2 * DISORDER_US) * rows.rate_per_s // 1_000_000
    with duckdb.connect() as connection:
        for first in range(0, acknowledged["A"], _STRETCH):
            end = min(first + _STRETCH, acknowledged["A"])
            connection.register("a", _table(rows.of("A", first, end)))
            beside = max(0, first - around), min(end + around, acknowledged["B"])
            connection.register("b", _table(rows.of("B", *beside)))
            columns = connection.sql(
                f"""SELECT a.id AS a, b.id AS b, b.ts - a.ts AS d, a.v AS av, b.v AS bv
                    FROM a JOIN b USING (k) WHERE abs(b.ts - a.ts) < {_WIDEST_US}"""
            ).fetchnumpy()
            of_a, of_b = batches.of_rows("A", columns["a"]), batches.of_rows("B", columns["b"])
            older, newer = np.minimum(of_a, of_b), np.maximum(of_a, of_b)
            order = np.argsort(newer, kind="stable")
            yield _Near({n: values[order] for n, values in columns.items()}, older[order], newer[order])


def _table(columns: Mapping[str, np.ndarray]) -> pa.Table:
    return pa.table(dict(columns))


def _packed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    packed: np.ndarray = (a.astype(np.uint64) << _SHIFT) | b.astype(np.uint64)
    return packed


def _compared(name: str, expected: np.ndarray, directory: Path) -> Compared:
    pairs = read_pairs(directory, name)
    read = _packed(pairs["a"], pairs["b"])
    unique = np.unique(read)
    return Compared(
        name=name,
        expected=len(expected),
        missing=len(np.setdiff1d(expected, unique)),
        extra=len(np.setdiff1d(unique, expected)),
        doubled=len(read) - len(unique),
    )
