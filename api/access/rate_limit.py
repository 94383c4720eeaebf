"""Limits of requests per name: a token bucket for each."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

#: Capacity of a bucket, as the number of seconds in which it fills.
BURST_S = 2.0
#: Maximum number of buckets; a name whose bucket was dropped starts with a full bucket.
_REMEMBERED = 10_000


class RateLimit:
    """Token buckets; not thread-safe, for use on the event loop only.

    Args:
        clock_s: Monotonic clock.

    >>> limit = RateLimit(lambda: 0.0)
    >>> [limit.take("a", 1.0) for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, rate_per_s: float) -> float:
        """Take a token and return 0; if there is none, return the seconds until there is one.

        Args:
            name: Name of the bucket.
            rate_per_s: Tokens per second that are added to the bucket; a full bucket holds the tokens of two
                seconds.
        """
        tokens = self._tokens(name, rate_per_s)
        missing = max(0.0, 1.0 - tokens)
        self._buckets[name] = (tokens if missing else tokens - 1.0, self._clock_s())
        self._buckets.move_to_end(name)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        return missing / rate_per_s

    def look(self, name: str, rate_per_s: float) -> float:
        """Return the seconds until there is a token, without taking it; arguments as for ``take``."""
        return max(0.0, 1.0 - self._tokens(name, rate_per_s)) / rate_per_s

    def _tokens(self, name: str, rate_per_s: float) -> float:
        full, now_s = rate_per_s * BURST_S, self._clock_s()
        tokens, then_s = self._buckets.get(name, (full, now_s))
        return min(full, tokens + (now_s - then_s) * rate_per_s)
