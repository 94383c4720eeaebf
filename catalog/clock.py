"""The wall clock in the catalog's unit."""

from __future__ import annotations

import time


def wall_clock_us() -> int:
    """Return the wall clock, µs UTC."""
    return time.time_ns() // 1000
