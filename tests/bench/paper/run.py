"""Runs settings in processes of their own, as many at a time as there are cores to spare."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.bench.paper.measure import Measurement
from tests.bench.paper.setting import Setting
from tests.bench.paper.worker import leave_with_parent

Measure = Callable[[Setting], list[Measurement]]


def run_settings(title: str, settings: Sequence[Setting], measure: Measure, jobs: int) -> list[Measurement]:
    """Measure all settings and return the rows in the order of the settings.

    Args:
        title: What is printed while they run.
        settings: The settings.
        measure: Measures one, in another process.
        jobs: Processes at a time; all strategies of a setting run in one and the same.
    """
    began = time.monotonic()
    done: dict[int, list[Measurement]] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=leave_with_parent) as pool:
        # The longest first, so that no core is left alone with one at the end.
        order = sorted(range(len(settings)), key=lambda n: -settings[n].arrivals_per_s)
        futures = {pool.submit(measure, settings[n]): n for n in order}
        for future in as_completed(futures):
            done[futures[future]] = future.result()
            _tell(f"{title}: {len(done)} of {len(settings)}, {time.monotonic() - began:.0f} s")
    sys.stderr.write("\n")
    return [row for n in range(len(settings)) for row in done[n]]


def _tell(text: str) -> None:
    sys.stderr.write(f"\r{text}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()
