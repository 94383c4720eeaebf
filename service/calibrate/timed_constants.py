"""Cost constants of rings and of the search for closed keys, measured by timing single loops.

The workloads of ``sluice calibrate`` cannot measure these constants: they contain no punctuations, and the
planner needs these constants before it can choose rings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from catalog.values.calibration import Calibration
from operators.closings.closing_rows import constants, matching
from operators.rings.ring_kernel import heads_behind, remove_expired
from operators.rings.rings import NOTHING, Arrivals, Scan
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.indexes.cell_index import CellIndex
from operators.segments.layout import SideLayout
from operators.segments.segment import Segment

#: Names in ``Calibration`` of the constants that this module times.
TIMED_CONSTANTS = ("per_ring_look", "per_scanned_row", "per_ring_row", "per_searched_row")
_ROWS, _MALES, _RINGS, _CLOSINGS, _REPEATS = 100_000, 4_000, 64, 1_000, 5
_LAYOUT = SideLayout({"k": "bigint"}, "ts", ("k",), ("bigint",), (), None)


def with_timed_constants(calibration: Calibration) -> Calibration:
    """Measure ``TIMED_CONSTANTS`` and return a calibration that contains them.

    Args:
        calibration: Calibration from which all other constants are taken.
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
        # No row is near enough to match, so only the comparisons are timed.
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
    arrays = [pa.array(each) for each in (np.sort(keys), times, times)]
    stored = Segment(pa.RecordBatch.from_arrays(arrays, names=[KEY, TS, POS]), 0, ())
    # Only every second key is closed, because closings of adjacent keys would merge into one.
    closings = constants(np.arange(0, 2 * _CLOSINGS, 2))
    search_s = _least_s(lambda: matching(stored, _LAYOUT, closings))
    return replace(
        calibration,
        per_ring_look=look_s / _MALES,
        per_scanned_row=scan_s / scanned,
        per_ring_row=sort_s / _ROWS,
        per_searched_row=search_s / _ROWS,
    )


def _least_s(work: Callable[[], object]) -> float:
    """Call a function several times and return the lowest CPU time of a call, seconds."""
    taken = []
    for _ in range(_REPEATS):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return min(taken)
