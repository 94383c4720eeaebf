"""The wall clock in microseconds, the catalog's unit of time."""

from __future__ import annotations

import time


def wall_clock_us() -> int:
    """Return the wall clock, µs UTC."""
    return time.time_ns() // 1000


def is_due(last_us: int | None, now_us: int, interval_s: float) -> bool:
    """Return whether periodic work is due: a period has passed, or the clock was set back by a period.

    >>> is_due(None, 5, 2.0), is_due(0, 1_999_999, 2.0), is_due(0, 2_000_000, 2.0)
    (True, False, True)

    Args:
        last_us: Wall clock when the work was last done, µs; None if it was never done.
        now_us: Wall clock now, µs.
        interval_s: Period of the work, seconds.
    """
    return last_us is None or abs(now_us - last_us) >= interval_s * 1e6
