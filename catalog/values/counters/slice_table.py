"""Slice counters of a bucket as a table, because a plan may have thousands of slices.

chains    (family, join, side, slices)      ("s1s2", "shared", "a", 2), ("s1s2", "shared", "b", 3)
counts    int64[slices, numbers]            2 rows of the first chain, then 3 rows of the second one

With 2,000 windows, two buckets report 8,000 slices. Reading and adding up their counters as tables takes the
engine 40% of the CPU time that 8,000 counter objects take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain, repeat
from typing import Any, Final

import numpy as np

from catalog.values.counters.add_up import add_up
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.routes.query_sets import Int64s

#: Fields of ``SliceCounters`` in the order of the columns of ``counts``; the first column, ``lazy_end``,
#: contains 0 or 1.
NUMBERS: Final = (
    "lazy_end",
    *(field.name for field in fields(SliceCounters) if field.name not in SliceCounters.KEY),
)
_DECLARED: Final = tuple(field.name for field in fields(SliceCounters))

#: Family, join and side of a chain, and its number of slices.
SliceChain = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class SliceTable:
    """Counters of the slices of one bucket.

    Attributes:
        chains: The chains, in the order of their rows in ``counts``.
        counts: int64[slices, counters] as little-endian bytes: a row for each slice, chain by chain, and a
            column for each counter named in ``NUMBERS``.
    """

    chains: tuple[SliceChain, ...] = ()
    counts: bytes = b""

    def column(self, name: str) -> Int64s:
        """Return the column of ``counts`` with a name from ``NUMBERS``, int64[slices]."""
        column: Int64s = _array(self.counts)[:, NUMBERS.index(name)]
        return column

    def counters(self) -> tuple[SliceCounters, ...]:
        """Return the counters of each slice."""
        return _counters(self.chains, _array(self.counts))


def add_up_slices(tables: Sequence[SliceTable]) -> tuple[SliceCounters, ...]:
    """Add up the slice counters of several buckets, as ``add_up`` does."""
    if not tables:
        return ()
    first, arrays = tables[0], [_array(table.counts) for table in tables]
    alike = all(
        table.chains == first.chains and np.array_equal(array[:, 0], arrays[0][:, 0])
        for table, array in zip(tables, arrays, strict=True)
    )
    if not alike or list(first.chains) != sorted(first.chains):
        return add_up((each for table in tables for each in table.counters()), SliceCounters.KEY)
    total = np.sum(arrays, axis=0)
    total[:, 0] = arrays[0][:, 0]
    return _counters(first.chains, total)


def _array(counts: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.frombuffer(counts, dtype="<i8").reshape(-1, len(NUMBERS))


def _counters(
    chains: Sequence[SliceChain], counts: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> tuple[SliceCounters, ...]:
    columns: dict[str, Iterable[Any]] = dict(zip(NUMBERS, counts.T.tolist(), strict=True))
    columns["lazy_end"] = (counts[:, 0] != 0).tolist()
    lengths = [length for *_, length in chains]
    for place, name in enumerate(("family", "join", "side")):
        columns[name] = chain.from_iterable(map(repeat, [each[place] for each in chains], lengths))
    columns["slice"] = chain.from_iterable(range(1, length + 1) for length in lengths)
    return tuple(map(SliceCounters, *(columns[name] for name in _DECLARED)))
