"""Expected results of each query: DuckDB's join of the acknowledged rows.

The rows are made again from their numbers, a stretch of A at a time with the rows of B around it. Which pairs
a visitor gets depends on the batches of both rows (semantics, "Activation"); the ends of batches and their
plan versions are what the service committed. That these ends cover the input is checked, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from tests.bench.feeding import STREAMS
from tests.bench.soak.queries import STANDING, Phase
from tests.bench.soak.soak import Soaked

_WIDEST_US = max(query.window_us for query in STANDING.values())
#: Rows of A joined at a time.
_STRETCH = 1_000_000
#: Packs a pair into one number: row numbers are below.
_SHIFT = np.uint64(32)


def compare(soaked: Soaked) -> pd.DataFrame:
    """Return of each query how many pairs it must have, and how many are missing, extra or doubled.

    Raises:
        RuntimeError: The batches do not end where the input does.
    """
    for name in STREAMS:
        end, posted = soaked.batches[f"end {name}"].iloc[-1], soaked.posted[name]["end"][-1]
        if end != posted:
            raise RuntimeError(f"the batches end at row {end:,} of {name}, not {posted:,}")
    expected: dict[str, list[np.ndarray]] = {name: [] for name in soaked.phases}
    for near in _near_pairs(soaked):
        for name, phases in soaked.phases.items():
            expected[name] += [near.of(phase, soaked.batches["plan_version"]) for phase in phases]
    found = {}
    for name, parts in expected.items():
        wanted, pairs = np.concatenate(parts), soaked.pairs.get(name)
        read = np.empty(0, np.uint64) if pairs is None else _packed(pairs["a"], pairs["b"])
        unique = np.unique(read)
        found[name] = {
            "expected": len(wanted),
            "missing": len(np.setdiff1d(wanted, unique)),
            "extra": len(np.setdiff1d(unique, wanted)),
            "doubled": len(read) - len(unique),
        }
    return pd.DataFrame(found).T


@dataclass(frozen=True, slots=True, eq=False)
class _Near:
    """Pairs of equal key that some window may hold, by the batch of their later row."""

    columns: dict[str, np.ndarray]
    older: np.ndarray
    newer: np.ndarray

    def of(self, phase: Phase, versions: pd.Series) -> np.ndarray:
        """Return the pairs that a query gets in a phase, packed."""
        # The first batch under a plan version or a later one.
        begin = int(versions.searchsorted(phase.from_version))
        end = len(versions) if phase.to_version is None else int(versions.searchsorted(phase.to_version))
        part = slice(*np.searchsorted(self.newer, (begin, end)).tolist())
        apart, av, bv, a, b = (self.columns[name][part] for name in ("apart", "av", "bv", "a", "b"))
        query = phase.query
        fits = (apart < query.window_us) & (av < (query.a_below or 1.0)) & (bv < (query.b_below or 1.0))
        if phase.backfill == "none":
            fits &= self.older[part] >= begin
        return _packed(a[fits], b[fits])


def _near_pairs(soaked: Soaked) -> Iterator[_Near]:
    rows, (end_a, end_b) = soaked.rows, (int(soaked.posted[name]["end"][-1]) for name in STREAMS)
    around = int((_WIDEST_US + 2 * rows.disorder_us) * rows.rate_per_s / 1e6)
    with duckdb.connect() as connection:
        for first in range(0, end_a, _STRETCH):
            end = min(first + _STRETCH, end_a)
            connection.register("a", pa.table(rows.of("A", first, end)))
            connection.register("b", pa.table(rows.of("B", max(0, first - around), min(end + around, end_b))))
            columns = connection.sql(
                f"""SELECT a.id AS a, b.id AS b, abs(b.ts - a.ts) AS apart, a.v AS av, b.v AS bv
                    FROM a JOIN b USING (k) WHERE abs(b.ts - a.ts) < {_WIDEST_US}"""
            ).fetchnumpy()
            of_a, of_b = (
                np.searchsorted(soaked.batches[f"end {name}"], columns[name.lower()], side="right")
                for name in STREAMS
            )
            older, newer = np.minimum(of_a, of_b), np.maximum(of_a, of_b)
            order = np.argsort(newer, kind="stable")
            yield _Near({n: values[order] for n, values in columns.items()}, older[order], newer[order])


def _packed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    packed: np.ndarray = (a.astype(np.uint64) << _SHIFT) | b.astype(np.uint64)
    return packed
