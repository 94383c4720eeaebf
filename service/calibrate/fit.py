"""Fit of the cost constants: the CPU time of many runs is explained by the amount of work in each run.

The fit minimises relative errors by non-negative least squares. A run of 2 ms therefore counts as much as a
run of 2 s, and no constant becomes negative to compensate for another. Reading and packing are timed and
fitted separately from joining.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from catalog.values.calibration import Calibration
from planner.costs.calibration.calibrated import CONSTANTS, Work

_Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

#: Constants of reading and packing; all other constants belong to joining.
PACK_CONSTANTS = frozenset(
    {"per_partition", "per_filtered_side", "per_filter_text", "per_packed_row", "per_filter"}
)
#: A run with a larger relative error gets less weight, because another process probably used the machine.
_TRUSTED_ERROR = 0.25
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A measured run, to which the constants are fitted.

    Attributes:
        name: Names of workload and strategy.
        work: Work per second of event time.
        pack_s: CPU seconds of reading and packing per second of event time.
        chain_s: CPU seconds of joining, storing and writing per second of event time.
    """

    name: str
    work: Work
    pack_s: float
    chain_s: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted constants, and how well they explain the measured runs.

    Attributes:
        calibration: The fitted constants.
        errors: Relative error per run: predicted CPU time divided by measured, minus 1.
    """

    calibration: Calibration
    errors: tuple[float, ...]


def fit(runs: Sequence[MeasuredRun], *, now_us: int) -> Fit:
    """Fit the cost constants to measured runs.

    Args:
        runs: Measured runs with different work, at least as many as there are constants.
        now_us: Wall clock of the fit, µs UTC.
    """
    works = np.array([run.work.vector() for run in runs])
    packs = np.array([name in PACK_CONSTANTS for name in CONSTANTS])
    pack_s = np.array([run.pack_s for run in runs])
    chain_s = np.array([run.chain_s for run in runs])
    constants = np.zeros(len(CONSTANTS))
    constants[packs] = relative_nnls(works[:, packs], pack_s)
    constants[~packs] = relative_nnls(works[:, ~packs], chain_s)
    errors = works @ constants / (pack_s + chain_s) - 1.0
    calibration = Calibration(
        **dict(zip(CONSTANTS, constants.tolist(), strict=True)),
        fitted_at_us=now_us,
        median_error=float(np.median(np.abs(errors))),
    )
    return Fit(calibration, tuple(errors.tolist()))


def relative_nnls(works: np.ndarray[tuple[int, int], np.dtype[np.float64]], seconds: _Floats) -> _Floats:
    """Fit constants >= 0: small relative errors count squared, large ones linearly (Huber's weights)."""
    rows = works / seconds[:, None]
    scale = np.maximum(rows.max(axis=0), np.finfo(np.float64).tiny)
    weights = np.ones(len(rows))
    for _ in range(_ROUNDS):
        found, _ = nnls(rows / scale * weights[:, None], weights)
        errors = np.abs(rows / scale @ found - 1.0)
        weights = np.sqrt(np.minimum(1.0, _TRUSTED_ERROR / np.maximum(errors, _TRUSTED_ERROR)))
    constants: _Floats = found / scale
    return constants
