"""Waiting for a condition, with a limit that only a hanging program reaches."""

from __future__ import annotations

import time
from collections.abc import Callable

#: What takes a second on an idle machine may take so long on a busy one.
LIMIT_S = 120.0
_STEP_S = 0.05


def until(
    holds: Callable[[], object], told: Callable[[], object] = lambda: "", limit_s: float = LIMIT_S
) -> None:
    """Wait until something holds.

    Args:
        holds: Whether it does.
        told: What to say where it never does.
        limit_s: Seconds after which it never will.
    """
    deadline_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {limit_s:.0f} s: {told()}"
        time.sleep(_STEP_S)
