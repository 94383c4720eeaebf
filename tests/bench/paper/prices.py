"""What things cost on this machine, read off the measurements by least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from tests.bench.paper.measure import Measurement


@dataclass(frozen=True, slots=True)
class Prices:
    """CPU time of one micro-batch as a sum; fitted, never negative.

    Attributes:
        batch_us: Per batch.
        slice_us: Per one-way slice.
        segment_us: Per segment held, which every batch of males probes.
        touched_ns: Per pair of equal key that is looked at.
        pair_ns: Per pair that is written.
        row_ns: Per input row.
        median_error: Median relative error of the sum.
    """

    batch_us: float
    slice_us: float
    segment_us: float
    touched_ns: float
    pair_ns: float
    row_ns: float
    median_error: float

    def shares(self, m: Measurement) -> dict[str, float]:
        """Return the part of a measurement's CPU time that each kind of work takes."""
        parts = dict(zip(_NAMES, _work(m) * np.array(self._constants()), strict=True))
        whole = sum(parts.values())
        return {name: part / whole for name, part in parts.items()}

    def _constants(self) -> tuple[float, ...]:
        us, ns = 1e-6, 1e-9
        return (
            self.batch_us * us,
            self.slice_us * us,
            self.segment_us * us,
            self.touched_ns * ns,
            self.pair_ns * ns,
            self.row_ns * ns,
        )


_NAMES = ("batch", "slices", "segments", "pairs looked at", "pairs written", "input rows")


def fitted_prices(rows: Sequence[Measurement]) -> Prices:
    """Fit the prices to CPU times, each weighing the same whatever its size."""
    work = np.array([_work(m) for m in rows])
    cpu_s = np.array([m.cpu_s / m.batches for m in rows])
    constants, _ = nnls(work / cpu_s[:, None], np.ones(len(rows)))
    error = float(np.median(np.abs(work @ constants / cpu_s - 1)))
    batch, slices, segment, touched, pair, row = (float(c) for c in constants)
    return Prices(1e6 * batch, 1e6 * slices, 1e6 * segment, 1e9 * touched, 1e9 * pair, 1e9 * row, error)


def _work(m: Measurement) -> np.ndarray:
    """Return how much of each there is in a batch."""
    per_batch = m.seconds / m.batches
    return np.array(
        [
            1.0,
            2.0 * m.slices,
            m.segments,
            m.touched * per_batch,
            m.pairs * per_batch,
            m.input_rows / m.batches,
        ]
    )
