"""Retries of the Spark job: how long to wait after a failure, and when a person must act.

    cause can pass     disk full, a database away, an executor lost   retried forever: after 1, 2, 4 ... 60 s
    batch at fault     the same reason at the same batch              retried twice, then failed

Once the job has committed a batch or has run for a while, earlier failures are forgotten: they are not
counted "in a row" with later ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

#: Number of failures of a batch in a row, in the same way, after which retries are useless and a person must
#: act.
MAX_FAILURES_AT_A_BATCH: Final = 3
#: Pause before the first restart, so that a broken machine is not kept busy with restarts.
RESTART_DELAY_S: Final = 1.0
#: Longest pause: a service runs again at most a minute after the cause has passed.
MAX_DELAY_S: Final = 60.0
#: Seconds after which a running job counts as successfully started; the causes of earlier failures have
#: passed.
FORGET_AFTER_S: Final = 300.0

#: Reasons that can pass without a change of the input or of Sluice, as they appear in Spark's traces.
_PASSING: Final = re.compile(
    r"The JVM has gone|No space left on device|Disk quota exceeded|Read-only file system|Input/output error"
    r"|Too many open files|Cannot allocate memory|Connection (refused|reset)|CatalogDown|EventLogDown"
    r"|KafkaDown|SecretMissing|of stream \".*\" cannot be read|cannot be read from topic"
    r"|ExecutorLostFailure|FetchFailed|Master removed our application|SparkContext was shut down"
    r"|StorageDown|(event log|storage) \".*\" cannot be used|catalog (cannot be used|is busy)",
)
#: Parts that differ between two failures of one kind: numbers, addresses, names of files.
_VARIABLE: Final = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of the job.

    Attributes:
        batch: Last batch that was committed before the failure; None before the first batch, or if unknown.
        reason: Reason that users are shown.
        passes: Whether the cause can pass without a change of the input.
    """

    batch: int | None
    reason: str
    passes: bool


@dataclass(slots=True)
class Failures:
    """Consecutive failures of a job.

    Attributes:
        count: Number of failures, whatever their cause.
        same: Number of the latest failures in a row at the same batch and of the same kind.
    """

    count: int = 0
    same: int = 0
    _last: tuple[int | None, str] | None = field(default=None, init=False)

    def add(self, failure: Failure, *, ran_s: float) -> float | None:
        """Record a failure.

        Args:
            failure: The failure.
            ran_s: Seconds that the job ran before the failure.

        Returns:
            Seconds until the next try; None if a retry is useless.
        """
        moved = self._last is not None and failure.batch not in (None, self._last[0])
        if moved or ran_s >= FORGET_AFTER_S:
            self.count = self.same = 0
            self._last = None
        kind = (failure.batch, _VARIABLE.sub("#", failure.reason))
        self.same = self.same + 1 if kind == self._last else 1
        self._last = kind
        self.count += 1
        if not failure.passes and self.same >= MAX_FAILURES_AT_A_BATCH:
            return None
        return min(RESTART_DELAY_S * 2.0 ** min(self.count - 1, 30), MAX_DELAY_S)


def can_pass(reason: str) -> bool:
    """Return whether a cause can pass without a change of the input.

    >>> can_pass("No space left on device"), can_pass("Conversion Error: no number")
    (True, False)
    """
    return _PASSING.search(reason) is not None
