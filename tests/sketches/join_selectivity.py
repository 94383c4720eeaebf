"""Join selectivity of two streams of keys, estimated from sketches of bounded memory.

A ``KeySketch`` takes a stream's keys in batches of any size: a hash sketch, and beside it the frequent keys,
which tell skimming where to look. The domain is that of 64-bit hashes, so it cannot be scanned as in the
paper. The paper's other way, a sketch per level of a dyadic tree, would cost 64 sketches and 64 updates per
row here; the distinct keys of a sample are complete but grow with it. A Misra-Gries summary with as many
counters as a table has buckets takes the memory of two tables more, and cannot miss a key with more than
n / s1 rows, where even the paper's threshold is 2 n / sqrt(s1).
"""

from __future__ import annotations

import numpy as np

from operators.kernels.keys import Int64s
from tests.sketches.frequent_keys import FrequentKeys
from tests.sketches.sketch import HashSketch
from tests.sketches.skimmed_sketch import JoinSize, SkimmedSketch, skim_dense, skimmed_join_size

#: 0.3 MB per stream with the frequent keys. For two samples of 200,000 rows whose keys are all different, the
#: standard deviation is 2e5 / sqrt(4096) = 3,100 pairs in a table, 8e-8 of all pairs.
BUCKETS = 4096
TABLES = 7
#: One seed for all streams, for only sketches of the same seed can be compared.
SEED = 20040314


class KeySketch:
    """The keys of a stream.

    Attributes:
        rows: Rows seen.
        sketch: Their hash sketch.
        frequent: Their frequent keys.
    """

    __slots__ = ("frequent", "rows", "sketch")

    def __init__(self, *, buckets: int = BUCKETS, tables: int = TABLES, seed: int = SEED) -> None:
        self.rows = 0
        self.sketch = HashSketch(buckets, tables, seed=seed)
        self.frequent = FrequentKeys(buckets)

    def update(self, keys: Int64s) -> None:
        """Add rows.

        Args:
            keys: int64[n], join keys (``operators.kernels.keys.join_key``) of rows that have one.
        """
        distinct, counts = np.unique(keys, return_counts=True)
        self.rows += len(keys)
        self.sketch.update(distinct, counts)
        self.frequent.update(distinct, counts)

    def merge(self, other: KeySketch) -> KeySketch:
        """Return the sketch of both streams together.

        Raises:
            ValueError: The other's shape or seed is another.
        """
        merged = KeySketch.__new__(KeySketch)
        merged.rows = self.rows + other.rows
        merged.sketch = self.sketch.merge(other.sketch)
        merged.frequent = self.frequent.merge(other.frequent)
        return merged

    def skimmed(self) -> SkimmedSketch:
        """Return the dense keys and a sketch of the rest."""
        return skim_dense(self.sketch, self.frequent.keys)

    def join_size(self, other: KeySketch) -> JoinSize:
        """Estimate the number of pairs of rows with equal keys.

        Raises:
            ValueError: The other's shape or seed is another.
        """
        return skimmed_join_size(self.skimmed(), other.skimmed())

    def selectivity(self, other: KeySketch) -> float:
        """Estimate the fraction of all pairs of rows that have equal keys (State-Slice's S_1).

        Returns:
            0 to 1; 0 also where the estimate is below zero, which happens when the matches are lost in the
            sketches' noise.

        Raises:
            ValueError: A stream has no rows, or the other's shape or seed is another.
        """
        if not self.rows or not other.rows:
            raise ValueError("a stream without rows has no join selectivity")
        pairs = self.join_size(other).pairs
        return min(max(pairs / (float(self.rows) * other.rows), 0.0), 1.0)


def join_selectivity(
    keys_a: Int64s, keys_b: Int64s, *, buckets: int = BUCKETS, tables: int = TABLES
) -> float:
    """Estimate the fraction of pairs of rows of two samples that have equal keys (State-Slice's S_1).

    For samples that come in batches, keep a ``KeySketch`` of each.

    Args:
        keys_a: int64[n], join keys of rows of one stream that have one, in any order.
        keys_b: int64[m], the same for the other.
        buckets: Counters per table of the sketches.
        tables: Tables.

    Returns:
        0 to 1. Expected for all rows of the streams what it is for the samples, if they are random.

    Raises:
        ValueError: There are no keys in one of them.

    >>> round(join_selectivity(np.repeat(np.arange(4), 50), np.arange(8)), 3)
    0.125
    """
    a, b = KeySketch(buckets=buckets, tables=tables), KeySketch(buckets=buckets, tables=tables)
    a.update(keys_a)
    b.update(keys_b)
    return a.selectivity(b)
