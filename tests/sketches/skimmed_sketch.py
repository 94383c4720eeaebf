"""Skimmed sketches: join sizes without the noise of the dense frequencies.

The error of a sketched join grows with both streams' self-join sizes, which a few dense keys make up. Their
frequencies can be read from a hash sketch, so they are skimmed off it, and the join is the sum of four:

                      g dense (known)         g sparse (sketched)
    f dense           Σ f̂ ĝ, exactly          Σ f̂ ξ C_G[h], per table
    f sparse          Σ ĝ ξ C_F[h], per table  Σ_q C_F[q] C_G[q], per table

Each sketched part is the median over the tables. Invariant: what is taken off the counters is exactly what is
listed as dense; an estimate f̂ that is off by some rows leaves just these in the sparse part.

Source: Ganguly, Garofalakis, Rastogi, *Processing Data-Stream Join Aggregates Using Skimmed Sketches* (EDBT
2004, §4): SKIMDENSE and the estimate of the join. We differ in the threshold T; a key with 2 T rows or more
is dense. The paper proves its bounds for T = Θ(n / sqrt(s1)), which bounds the error of an estimated
frequency whatever the stream. That error is sqrt(F2 / s1), and F2 can be read from the sketch: this is T
here, and again for what the first skimming left, until it hardly falls. On Zipf 1.0 the paper's T skims one
key or none at the sizes measured, this one tens to hundreds (``docs/bench/sketches.md`` has both).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from operators.kernels.keys import Int64s
from tests.sketches.sketch import HashSketch
from tests.sketches.sketch_kernel import cubes_of

#: A round that lowers the noise by less than this part of it is the last. Measured on Zipf 1.5, 100 and 400
#: buckets, 11 seeds: median error 3.6% and 0.7%; with 0.1 instead 5.5% and 0.9%.
_WORTHWHILE = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class SkimmedSketch:
    """A stream as dense frequencies and a sketch of the rest.

    Attributes:
        keys: int64[d], dense keys, ascending.
        frequencies: int64[d], their estimated rows.
        sparse: Sketch of all other rows, and of the errors of the estimates.
        threshold: T of the last round, in rows: every key with an estimate of 2 T or more is dense.
    """

    keys: Int64s
    frequencies: Int64s
    sparse: HashSketch
    threshold: float


@dataclass(frozen=True, slots=True)
class JoinSize:
    """An estimated number of pairs, in its four parts; each but the first may be negative.

    Attributes:
        dense_dense: Dense keys of a with dense keys of b.
        dense_sparse: Dense keys of a with the rest of b.
        sparse_dense: The rest of a with dense keys of b.
        sparse_sparse: The rest of a with the rest of b.
    """

    dense_dense: float
    dense_sparse: float
    sparse_dense: float
    sparse_sparse: float

    @property
    def pairs(self) -> float:
        """The estimate."""
        return self.dense_dense + self.dense_sparse + self.sparse_dense + self.sparse_sparse


def skim_dense(sketch: HashSketch, candidates: Int64s, *, threshold: float | None = None) -> SkimmedSketch:
    """Skim the dense frequencies off a sketch (SKIMDENSE); the sketch given stays as it is.

    Args:
        sketch: Sketch of the stream.
        candidates: int64[n], keys among which the dense ones are: the whole domain, as in the paper, or a
            superset of the frequent keys (``sketches.frequent_keys``). A dense key that is not among them
            stays in the sparse part, which costs accuracy and nothing else.
        threshold: T in rows, for a single round (the paper's: ``paper_threshold``); None: the noise of the
            sketch, in rounds.

    Returns:
        Dense keys, at least 2 T each, and the sketch of the rest.
    """
    sparse = sketch.copy()
    keys = _distinct(candidates)
    cubes = cubes_of(keys.view(np.uint64))
    dense = np.zeros(len(keys), dtype=np.int64)
    limit = sparse.noise() if threshold is None else threshold
    while True:
        # Keys skimmed before are read again, for their first estimates had the noise of all the others in
        # them; one that was taken for dense by mistake mostly ends with next to nothing.
        skimmed = dense != 0
        skimmed[sparse.frequent_among(keys, 2 * limit, cubes=cubes)] = True
        found = np.flatnonzero(skimmed)
        left = sparse.frequencies(keys[found])
        sparse.update(keys[found], -left)
        dense[found] += left
        lower = sparse.noise()
        if threshold is not None or lower >= limit * (1 - _WORTHWHILE):
            break
        limit = lower
    kept = np.flatnonzero(dense)
    return SkimmedSketch(keys[kept], dense[kept], sparse, limit)


def paper_threshold(rows: int, buckets: int) -> float:
    """Return T = n / sqrt(s1), in rows, for which the paper proves its bounds.

    >>> paper_threshold(4_000_000, 400)
    200000.0
    """
    return float(rows / np.sqrt(buckets))


def skimmed_join_size(a: SkimmedSketch, b: SkimmedSketch) -> JoinSize:
    """Estimate the number of pairs of rows of two streams with equal keys.

    Args:
        a: One stream, skimmed.
        b: The other, from a sketch of the same shape and seed.

    Raises:
        ValueError: The sketches differ in shape or seed.
    """
    sparse_sparse = a.sparse.join_size(b.sparse)
    _, at_a, at_b = np.intersect1d(a.keys, b.keys, assume_unique=True, return_indices=True)
    dense_dense = np.dot(a.frequencies[at_a].astype(np.float64), b.frequencies[at_b].astype(np.float64))
    return JoinSize(
        dense_dense=float(dense_dense),
        dense_sparse=float(np.median(b.sparse.join_sizes_with(a.keys, a.frequencies))),
        sparse_dense=float(np.median(a.sparse.join_sizes_with(b.keys, b.frequencies))),
        sparse_sparse=sparse_sparse,
    )


def _distinct(keys: Int64s) -> Int64s:
    """Sort and drop repetitions: 1.3 ms for 262,144 keys; np.unique of numpy 2.4, which hashes, 90 ms."""
    ascending = np.sort(keys)
    first = np.ones(len(keys), dtype=np.bool_)
    first[1:] = ascending[1:] != ascending[:-1]
    distinct: Int64s = ascending[first]
    return distinct
