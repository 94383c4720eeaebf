"""Join-size sketches: the basic sketch of AGMS and the hash sketch.

A sketch is a few random linear projections of a stream's frequency vector f. An atomic sketch is
X = Σ_v f(v) ξ(v) with four-wise independent signs ξ; for two streams sketched with the same signs,
E[X_F X_G] = Σ_v f(v) g(v), the size of the join.

    AgmsSketch     medians x averages counters     every key changes every counter
    HashSketch     tables x buckets counters       every key changes one counter per table

Invariant: counters depend on f alone and linearly, so order does not matter, a negative count takes a row
back, and the sketch of two streams together is the sum of theirs (``merge``). Sketches of the same shape and
seed, and no others, can be compared.

Source: Alon, Gibbons, Matias, Szegedy, *Tracking Join and Self-Join Sizes in Limited Storage* (PODS 1999);
the hash sketch is COUNTSKETCH of Charikar, Chen, Farach-Colton (ICALP 2002), as used in Ganguly, Garofalakis,
Rastogi (EDBT 2004, §4) and, without skimming, as Fast-AGMS by Cormode and Garofalakis (VLDB 2005).
"""

from __future__ import annotations

import numpy as np

from operators.kernels.keys import Int64s
from tests.sketches.sketch_kernel import (
    Int64Matrix,
    UInt64Matrix,
    UInt64s,
    add_to_atomic_sketches,
    add_to_tables,
    cubes_of,
    median_frequencies,
    reaching_keys,
    sums_by_table,
)

Float64s = np.ndarray[tuple[int], np.dtype[np.float64]]


class AgmsSketch:
    """The basic sketch: the median of several averages of products of atomic sketches.

    With s1 averages the standard deviation is at most sqrt(2 F2(f) F2(g) / s1), F2 being the self-join size;
    s2 medians make a far miss exponentially rare in s2.

    Attributes:
        averages: Atomic sketches per average (s1).
        medians: Averages of which the median is taken (s2).
        seed: Where the signs come from. An atomic sketch depends on the seed and its own place alone, so
            the first rows and columns of the counters are those of a smaller sketch.
        counters: int64[medians, averages].

    >>> a, b = AgmsSketch(200, 5, seed=1), AgmsSketch(200, 5, seed=1)
    >>> a.update(np.array([1, 2, 3])), b.update(np.array([3]), np.array([100]))
    (None, None)
    >>> 60 < a.join_size(b) < 140
    True
    """

    __slots__ = ("_signs", "averages", "counters", "medians", "seed")

    def __init__(self, averages: int, medians: int, *, seed: int) -> None:
        _check_shape(averages=averages, medians=medians)
        self.averages, self.medians, self.seed = averages, medians, seed
        self.counters: Int64Matrix = np.zeros((medians, averages), dtype=np.int64)
        self._signs = np.concatenate(
            [_draw(np.random.default_rng((seed, group)), averages) for group in range(medians)]
        )

    def update(self, keys: Int64s, counts: Int64s | None = None) -> None:
        """Add rows, or whole frequency vectors.

        Args:
            keys: int64[n], in any order, repeated or not.
            counts: int64[n], rows per key, negative to take rows back; None: one each.
        """
        update_together([self], keys, [_counts(keys, counts)])

    def merge(self, other: AgmsSketch) -> AgmsSketch:
        """Return the sketch of both streams together.

        Raises:
            ValueError: The other's shape or seed is another.
        """
        self._check_comparable(other)
        merged = AgmsSketch(self.averages, self.medians, seed=self.seed)
        np.add(self.counters, other.counters, out=merged.counters)
        return merged

    def join_size(self, other: AgmsSketch) -> float:
        """Estimate the number of pairs of rows with equal keys; may be negative.

        Raises:
            ValueError: The other's shape or seed is another.
        """
        self._check_comparable(other)
        products = self.counters.astype(np.float64) * other.counters
        return float(np.median(products.mean(axis=1)))

    def _check_comparable(self, other: AgmsSketch) -> None:
        if (self.averages, self.medians, self.seed) != (other.averages, other.medians, other.seed):
            raise ValueError("sketches of different shapes or seeds cannot be compared")


def update_together(sketches: list[AgmsSketch], keys: Int64s, counts: list[Int64s]) -> None:
    """Add frequencies to several sketches with the same signs, making every sign once.

    Args:
        sketches: Sketches of the same shape and seed.
        keys: int64[n].
        counts: One int64[n] per sketch.

    Raises:
        ValueError: The sketches differ in shape or seed.
    """
    first = sketches[0]
    for other in sketches[1:]:
        first._check_comparable(other)
    unsigned = _unsigned(keys)
    counters = np.zeros((len(sketches), first.counters.size), dtype=np.int64)
    add_to_atomic_sketches(unsigned, cubes_of(unsigned), np.stack(counts), first._signs, counters)
    for sketch, row in zip(sketches, counters, strict=True):
        sketch.counters += row.reshape(sketch.counters.shape)


class HashSketch:
    """Hash tables of atomic sketches: table p adds ξ_p(v) to counter h_p(v).

    Attributes:
        buckets: Counters per table (s1).
        tables: Tables, of which medians are taken (s2); odd is best.
        seed: Where signs and buckets come from.
        counters: int64[tables, buckets].

    >>> sketch = HashSketch(64, 7, seed=1)
    >>> sketch.update(np.array([5, 6, 7]), np.array([1000, 20, 3]))
    >>> sketch.frequencies(np.array([5]))
    array([1000])
    """

    __slots__ = ("_hashing", "_signs", "buckets", "counters", "seed", "tables")

    def __init__(self, buckets: int, tables: int, *, seed: int) -> None:
        _check_shape(buckets=buckets, tables=tables)
        self.buckets, self.tables, self.seed = buckets, tables, seed
        self.counters: Int64Matrix = np.zeros((tables, buckets), dtype=np.int64)
        random = np.random.default_rng(seed)
        self._signs, self._hashing = _draw(random, tables), _draw(random, tables)

    def update(self, keys: Int64s, counts: Int64s | None = None) -> None:
        """Add rows, or whole frequency vectors.

        Args:
            keys: int64[n], in any order, repeated or not.
            counts: int64[n], rows per key, negative to take rows back; None: one each.
        """
        unsigned = _unsigned(keys)
        add_to_tables(
            unsigned, cubes_of(unsigned), _counts(keys, counts), self._signs, self._hashing, self.counters
        )

    def copy(self) -> HashSketch:
        """Return a sketch that can be changed without changing this one."""
        copied = HashSketch(self.buckets, self.tables, seed=self.seed)
        copied.counters[:] = self.counters
        return copied

    def merge(self, other: HashSketch) -> HashSketch:
        """Return the sketch of both streams together.

        Raises:
            ValueError: The other's shape or seed is another.
        """
        self._check_comparable(other)
        merged = self.copy()
        merged.counters += other.counters
        return merged

    def frequencies(self, keys: Int64s) -> Int64s:
        """Estimate how many rows have each key.

        Args:
            keys: int64[n].

        Returns:
            int64[n], medians over the tables. Each table's estimate is unbiased and has a standard deviation
            of at most ``noise()``.
        """
        unsigned = _unsigned(keys)
        found: Int64s = median_frequencies(
            unsigned, cubes_of(unsigned), self._signs, self._hashing, self.counters
        )
        return found

    def frequent_among(self, keys: Int64s, at_least: float, *, cubes: UInt64s | None = None) -> Int64s:
        """Find the keys with an estimated frequency of at least ``at_least``, faster than ``frequencies``.

        Args:
            keys: int64[n].
            at_least: Rows.
            cubes: uint64[n], cubes of the keys, for a caller that asks for the same keys again.

        Returns:
            int64[m], indices of keys, ascending.
        """
        unsigned = _unsigned(keys)
        if cubes is None:
            cubes = cubes_of(unsigned)
        found: Int64s = reaching_keys(unsigned, cubes, at_least, self._signs, self._hashing, self.counters)
        return found

    def self_join_size(self) -> float:
        """Estimate F2 = Σ_v f(v)², as the median over the tables of the sum of squares."""
        return float(np.median(np.square(self.counters.astype(np.float64)).sum(axis=1)))

    def noise(self) -> float:
        """Estimate the standard deviation of a table's frequencies: sqrt(F2 / buckets), in rows."""
        return float(np.sqrt(self.self_join_size() / self.buckets))

    def join_sizes(self, other: HashSketch) -> Float64s:
        """Estimate the number of pairs of rows with equal keys, once per table; each is unbiased.

        Returns:
            float64[tables]. Standard deviation of each is at most sqrt(2 F2(f) F2(g) / buckets).

        Raises:
            ValueError: The other's shape or seed is another.
        """
        self._check_comparable(other)
        sizes: Float64s = (self.counters.astype(np.float64) * other.counters).sum(axis=1)
        return sizes

    def join_size(self, other: HashSketch) -> float:
        """Estimate the number of pairs of rows with equal keys: the median over tables; may be negative."""
        return float(np.median(self.join_sizes(other)))

    def join_sizes_with(self, keys: Int64s, counts: Int64s) -> Float64s:
        """Estimate the join size with a stream whose frequencies are known, once per table.

        Args:
            keys: int64[n], distinct.
            counts: int64[n], its rows per key.

        Returns:
            float64[tables], each unbiased.

        Source: Ganguly, Garofalakis, Rastogi (EDBT 2004, §4): the subjoin of dense with skimmed frequencies.
        """
        unsigned = _unsigned(keys)
        sums: Float64s = sums_by_table(
            unsigned, cubes_of(unsigned), counts, self._signs, self._hashing, self.counters
        )
        return sums

    def _check_comparable(self, other: HashSketch) -> None:
        if (self.buckets, self.tables, self.seed) != (other.buckets, other.tables, other.seed):
            raise ValueError("sketches of different shapes or seeds cannot be compared")


def _draw(random: np.random.Generator, rows: int) -> UInt64Matrix:
    return random.integers(0, 2**64, size=(rows, 3), dtype=np.uint64)


def _unsigned(keys: Int64s) -> UInt64s:
    return np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)


def _counts(keys: Int64s, counts: Int64s | None) -> Int64s:
    if counts is None:
        return np.ones(len(keys), dtype=np.int64)
    if len(counts) != len(keys):
        raise ValueError(f"{len(counts)} counts for {len(keys)} keys")
    return np.ascontiguousarray(counts, dtype=np.int64)


def _check_shape(**sizes: int) -> None:
    for name, size in sizes.items():
        if not 1 <= size < 2**31:
            raise ValueError(f"{name} must be at least 1 and below 2^31, not {size}")
