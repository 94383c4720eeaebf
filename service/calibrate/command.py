"""``sluice calibrate``: measure, fit, store and print the cost constants of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace

import numpy as np

from catalog.times.clock import wall_clock_us
from catalog.values.calibration import Calibration
from planner.costs.calibration.calibrated import CONSTANTS
from planner.costs.calibration.shipped import SHIPPED
from service.calibrate.fit import Fit, MeasuredRun, fit
from service.calibrate.runs import calibration_runs
from service.calibrate.timed_constants import TIMED_CONSTANTS, with_timed_constants
from service.config.calibration import store_calibration
from service.config.settings import StorageSettings
from service.recovery.opening import open_catalog

#: Number of random workloads besides the corner workloads, and batches measured per workload. A whole
#: calibration takes about five minutes.
RANDOM_WORKLOADS, BATCHES = 28, 20
#: Numbers of random workloads and of batches with ``--quick``, which takes well below a minute.
QUICK_RANDOM_WORKLOADS, QUICK_BATCHES = 4, 4


def calibrate_command(storage: StorageSettings, *, quick: bool, say: Callable[[str], None]) -> Calibration:
    """Measure this machine's cost constants, store them in the data directory's catalog and print them.

    Args:
        storage: Settings that locate the data directory and its catalog.
        quick: Take fewer and shorter runs, which makes the constants less accurate.
        say: Prints a line.

    Returns:
        The cost constants of this machine.

    Raises:
        DataDirUnusable: The data directory cannot be created.
        CatalogDown: The catalog cannot be opened.
    """
    store = open_catalog(storage.open_data_dir(), storage.catalog_url)
    try:
        workloads, batches = (QUICK_RANDOM_WORKLOADS, QUICK_BATCHES) if quick else (RANDOM_WORKLOADS, BATCHES)
        runs = calibration_runs(workloads, batches, say=say)
        fitted = fit(runs, now_us=wall_clock_us())
        fitted = replace(fitted, calibration=with_timed_constants(fitted.calibration))
        store_calibration(store, fitted.calibration)
    finally:
        store.close()
    for line in report(fitted, runs):
        say(line)
    return fitted.calibration


def report(fitted: Fit, runs: list[MeasuredRun]) -> list[str]:
    """Return the lines to print: this machine's and the shipped constants, and the errors of the fit."""
    errors = np.abs(fitted.errors)
    lines = ["", f"{'constant':<20} {'this machine':>14} {'shipped':>14}"]
    for name, own, shipped in zip(CONSTANTS, astuple(fitted.calibration), astuple(SHIPPED), strict=False):
        lines.append(f"{name:<20} {_time(own):>14} {_time(shipped):>14}")
    worst = int(np.argmax(errors))
    for name in TIMED_CONSTANTS:
        own, shipped = getattr(fitted.calibration, name), getattr(SHIPPED, name)
        lines.append(f"{name:<20} {_time(own):>14} {_time(shipped):>14}")
    lines += [
        "",
        f"{len(runs)} runs; relative error: median {np.median(errors):.1%}, "
        f"9 of 10 within {np.quantile(errors, 0.9):.1%}, worst {errors[worst]:.1%} ({runs[worst].name})",
    ]
    return lines


def _time(seconds: float) -> str:
    """Format a duration in ms, µs or ns, whichever suits its size."""
    for factor, unit in ((1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e9:.2f} ns"
