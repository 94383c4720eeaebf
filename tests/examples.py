"""Number of examples that a property test draws: all in ``make test-slow``, a part in ``make test``."""

from __future__ import annotations

import pytest
from hypothesis import settings

#: Part of the examples that `make test` draws; they are the same ones every time.
_SHORT_PART = 0.25
_LEAST = 10


def examples(count: int, short: int | None = None) -> int:
    """Return how many examples to draw of a property.

    Args:
        count: Number that the long tests draw.
        short: Number that ``make test`` draws where an example takes long; None: a part of ``count``.
    """
    if settings.get_current_profile_name() == "explore":
        return count
    if short is not None:
        return short
    return min(count, max(_LEAST, int(count * _SHORT_PART)))


def seeds(count: int, short: int = 2) -> list[object]:
    """Return parameters ``0 .. count-1`` of a test, of which ``make test`` runs the first ``short``."""
    return [n if n < short else pytest.param(n, marks=pytest.mark.slow) for n in range(count)]
