"""The wall clock in the catalog's unit."""

from __future__ import annotations

import time


def wall_clock_us() -> int:
    """Return the wall clock, µs UTC."""
    return time.time_ns() // 1000


def is_due(last_us: int | None, now_us: int, interval_s: float) -> bool:
    """Return whether work that is done at intervals is due again; a wall clock may be set back.

    >>> is_due(None, 5, 2.0), is_due(0, 1_999_999, 2.0), is_due(0, 2_000_000, 2.0)
    (True, False, True)

    Args:
        last_us: When it was done last, wall clock µs; None: never.
        now_us: Wall clock now, µs.
        interval_s: Time between two.
    """
    return last_us is None or abs(now_us - last_us) >= interval_s * 1e6
