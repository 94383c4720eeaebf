"""Repetition of requests: which requests are sent again, and after which pauses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

#: Statuses of requests that may succeed later.
_COME_BACK = (429, 502, 503, 504)
#: Code of the problem while the first attempt is still being served; its answer will follow soon.
_UNDER_WAY = "request-under-way"


@dataclass(frozen=True, slots=True)
class Retry:
    """Repetition of requests that had no answer or were refused temporarily (429, 502, 503, 504).

    Repeating is safe: requests that change something have an ``Idempotency-Key``, so the service carries them
    out once.

    Attributes:
        first_pause_s: Pause after the first attempt; each pause is twice as long as the pause before, less a
            random part up to half. 0.2 s is about the duration of a micro-batch.
        longest_pause_s: Longest pause; a pause that the service requests may be longer.
        patience_s: Sum of the pauses after which the error is raised. 30 s is more than a restart of the
            service takes. 0 repeats nothing.
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
