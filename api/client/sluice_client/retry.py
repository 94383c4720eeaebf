"""Repetition of requests: which are sent again, and how long the client waits before that."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

#: Statuses of requests that may succeed later.
_COME_BACK = (429, 502, 503, 504)
#: The first attempt is still being served; its answer is there soon.
_UNDER_WAY = "request-under-way"


@dataclass(frozen=True, slots=True)
class Retry:
    """Repetition of requests without an answer, or refused for now (429, 502, 503, 504).

    Repeating is safe: requests that change something have an ``Idempotency-Key``, so that the service does
    them once.

    Attributes:
        first_pause_s: Pause after the first attempt; each one is twice as long as the one before, less a
            random part up to half. 0.2 s is about a micro-batch.
        longest_pause_s: Longest pause; one that the service asks for may be longer.
        patience_s: Pauses in all, after which the error is raised. 30 s is more than a restart of the service
            takes. 0 repeats nothing.
    """

    first_pause_s: float = 0.2
    longest_pause_s: float = 5.0
    patience_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("first_pause_s", "longest_pause_s", "patience_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")

    def pauses(self) -> Iterator[float]:
        """Yield the pauses after each attempt, without what a service asks for."""
        pause_s = self.first_pause_s
        while True:
            yield pause_s * random.uniform(0.5, 1)
            pause_s = min(2 * pause_s, self.longest_pause_s)


#: What clients do that are given nothing else.
DEFAULT_RETRY = Retry()


def is_worth_another_try(status: int, code: str) -> bool:
    """Return whether a refused request may succeed when it is repeated."""
    return status in _COME_BACK or code == _UNDER_WAY
