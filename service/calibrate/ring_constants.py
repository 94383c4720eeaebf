"""Constants of the search in rings, timed on the loops themselves.

The runs of ``sluice calibrate`` have no rings, because the planner chooses rings by these very constants.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from catalog.values.calibration import Calibration
from operators.rings.ring_kernel import heads_behind, remove_expired
from operators.rings.rings import NOTHING, Arrivals, Scan
from operators.segments.cell_index import CellIndex

#: Names of these constants in ``Calibration``.
RING_CONSTANTS = ("per_ring_look", "per_scanned_row", "per_ring_row")
_ROWS, _MALES, _RINGS, _REPEATS = 100_000, 4_000, 64, 5


def with_ring_constants(calibration: Calibration) -> Calibration:
    """Return a calibration with constants of rings that are timed now.

    Args:
        calibration: All other constants.
    """
    random = np.random.default_rng(1)
    keys, times = random.integers(0, 1_000, _ROWS), np.arange(_ROWS)
    index = CellIndex.of(keys, times, _RINGS)
    males = Arrivals.of(random.integers(0, 1_000, _MALES), np.arange(_MALES) + 2 * _ROWS, _RINGS)
    buffers = np.empty(1, dtype=np.int64), np.empty(1, dtype=np.int64)
    limits, gone = np.full(_MALES, NOTHING), np.full(_RINGS, NOTHING)
    scanned = 0

    def scan() -> None:
        nonlocal scanned
        # No row is near enough, so only the comparisons are timed.
        found = Scan(index, males, index.offsets[males.cells])
        found.fill(*buffers, 1, 1)
        scanned = found.scanned

    def look() -> None:
        heads = heads_behind(index.times, index.offsets, gone)
        looked, first = np.zeros(_MALES, dtype=np.bool_), np.empty(_MALES, dtype=np.int64)
        counts = np.zeros(2, dtype=np.int64)
        remove_expired(
            index.times, index.oldest, index.offsets, heads, males.cells, limits, False, looked, first, counts
        )

    scan_s, look_s = _least_s(scan), _least_s(look)
    sort_s = _least_s(lambda: CellIndex.of(keys, times, _RINGS))
    return replace(
        calibration,
        per_ring_look=look_s / _MALES,
        per_scanned_row=scan_s / scanned,
        per_ring_row=sort_s / _ROWS,
    )


def _least_s(work: Callable[[], object]) -> float:
    """Return the least CPU time of several repeats, seconds."""
    taken = []
    for _ in range(_REPEATS):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return min(taken)
