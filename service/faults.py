"""Faults: background work that failed with an unexpected error and is retried.

    attempt ── done ──────> works
       └────── an error ──> log, counter, /health/ready says so ── 1, 2, 4 ... 60 s ──> next attempt

The log has the traceback of an error once; further attempts that fail with the same error write one line
each.

Expected errors, such as an unreachable catalog, are handled where they occur. One thread may run several
kinds of work ("parts"). Each part has its own name and its own retries, so the failure of one part does not
stop the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from service.log import fields

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

#: Delays before the next attempt: 1, 2, 4 ... seconds.
FIRST_DELAY_S: Final = 1.0
MAX_DELAY_S: Final = 60.0
#: Parts whose failure counter is exported as 0 before the first failure.
PARTS: Final = ("listing", "heartbeats", "watcher", "sinks", "compactor", "commits", "lease", "pricing")


@dataclass(frozen=True, slots=True)
class BackgroundFault:
    """Background work that is failing at present.

    Attributes:
        part: Name of the part that fails.
        of: Object that the part works on, such as the name of a stream, or "" if it has only one object.
        reason: Text of the error.
        delay_s: Delay before the next attempt.
        until_s: Time of the next attempt on the monotonic clock, s.
    """

    part: str
    of: str
    reason: str
    delay_s: float
    until_s: float

    def __str__(self) -> str:
        return f"{self.part} of {self.of}: {self.reason}" if self.of else f"{self.part}: {self.reason}"


@dataclass(slots=True)
class Faults:
    """Faults of the background work of one process.

    Attributes:
        clock_s: Returns the monotonic time, s.
    """

    clock_s: Callable[[], float] = time.monotonic
    _now: dict[tuple[str, str], BackgroundFault] = field(default_factory=dict, init=False)
    _counts: Counter[str] = field(default_factory=Counter, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def attempt(self, part: str, work: Callable[[], _Result], *, of: str = "") -> _Result | None:
        """Do the work of a part; skip the work during the delay after its last failure.

        Args:
            part: Name of the part.
            work: Function that does the work.
            of: Object that the part works on, if the part has several.

        Returns:
            Result of the work, or None if the work failed or was skipped.
        """
        former = self._now.get((part, of))
        if former is not None and former.until_s > self.clock_s():
            return None
        try:
            result = work()
        except Exception as error:
            self.failed(part, error, of=of)
            return None
        self.works(part, of=of)
        return result

    def failed(self, part: str, error: Exception, *, of: str = "") -> None:
        """Record that a part failed with an unexpected error."""
        with self._lock:
            former = self._now.get((part, of))
            delay_s = FIRST_DELAY_S if former is None else min(2 * former.delay_s, MAX_DELAY_S)
            reason = f"{type(error).__name__}: {error}"
            self._now[part, of] = BackgroundFault(part, of, reason, delay_s, self.clock_s() + delay_s)
            self._counts[part] += 1
        told = fields(part=part, of=of, again_in_s=delay_s)
        if former is None or former.reason != reason:
            log.error("background work failed: %s", reason, extra=told, exc_info=error)
        else:
            log.error("background work still fails: %s", reason.partition("\n")[0], extra=told)

    def works(self, part: str, *, of: str = "") -> None:
        """Record that a part works."""
        with self._lock:
            former = self._now.pop((part, of), None)
        if former is not None:
            log.info("background work recovered", extra=fields(part=part, of=of))

    def keep(self, part: str, of: Collection[str]) -> None:
        """Forget a part's faults for all objects except the given ones; all other objects no longer exist."""
        with self._lock:
            self._now = {key: f for key, f in self._now.items() if f.part != part or f.of in of}

    def clear(self) -> None:
        """Forget which parts fail, since their threads have ended; the counters stay."""
        with self._lock:
            self._now = {}

    def failing(self) -> tuple[BackgroundFault, ...]:
        """Return the parts that fail at present."""
        with self._lock:
            return tuple(self._now.values())

    def counts(self) -> Mapping[str, int]:
        """Return the number of failures of each part."""
        with self._lock:
            return dict.fromkeys(PARTS, 0) | dict(self._counts)
