"""Number of examples that a property test draws: all in ``make test-slow``, a part in ``make test``."""

from __future__ import annotations

from hypothesis import settings

#: Part of the examples that `make test` draws; they are the same ones every time.
_SHORT_PART = 0.25
_LEAST = 10


def examples(count: int) -> int:
    """Return how many examples to draw of a property for which the long tests draw ``count``."""
    if settings.get_current_profile_name() == "explore":
        return count
    return min(count, max(_LEAST, int(count * _SHORT_PART)))
