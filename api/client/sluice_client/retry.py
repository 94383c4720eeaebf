"""Retries: which requests are sent again, and the pauses between the attempts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

#: HTTP statuses of refused requests that may succeed when they are repeated.
_COME_BACK = (429, 502, 503, 504)
#: Problem code of a retry that arrives while the first attempt is still being served; the first attempt's
#: answer will be available soon.
_UNDER_WAY = "request-under-way"


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries of requests that got no answer or a temporary refusal (429, 502, 503, 504).

    Retrying is safe: a request that changes something has an ``Idempotency-Key``, so the service carries it
    out only once.

    Attributes:
        first_pause_s: Base pause after the first attempt; it is doubled after each further attempt, up to
            ``longest_pause_s``. The actual pause is a random 50 % to 100 % of the base pause. 0.2 s is about
            the duration of a micro-batch.
        longest_pause_s: Maximum pause; the client waits longer only if the service requests a longer pause.
        patience_s: Maximum sum of the pauses, after which the last error is raised. 30 s is longer than a
            restart of the service takes. With 0, nothing is retried.
    """

    first_pause_s: float = 0.2
    longest_pause_s: float = 5.0
    patience_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("first_pause_s", "longest_pause_s", "patience_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")

    def pauses(self) -> Iterator[float]:
        """Yield the pauses after each attempt, ignoring what the service requests."""
        pause_s = self.first_pause_s
        while True:
            yield pause_s * random.uniform(0.5, 1)
            pause_s = min(2 * pause_s, self.longest_pause_s)


#: Default of the clients.
DEFAULT_RETRY = Retry()


def is_worth_another_try(status: int, code: str) -> bool:
    """Return whether a refused request may succeed if it is repeated."""
    return status in _COME_BACK or code == _UNDER_WAY
