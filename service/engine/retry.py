"""Retries of the Spark job: how long to wait after a failure, and when a person must act.

    passing cause      disk full, a database down, an executor lost   always retried, after 1, 2, 4 ... 60 s
    faulty batch       the same reason at the same batch              retried twice, then failed

Once the job has committed a batch or has run for some minutes, earlier failures are no longer counted as
consecutive with later failures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

#: Number of consecutive failures of a batch, all of the same kind, after which retries are useless and a
#: person must act.
MAX_FAILURES_AT_A_BATCH: Final = 3
#: Seconds before the first restart, so that restarts do not keep a broken machine busy.
RESTART_DELAY_S: Final = 1.0
#: Maximum seconds before a restart, so that a service runs again at most a minute after the cause has passed.
MAX_DELAY_S: Final = 60.0
#: Seconds after which a running job counts as successfully started, so that earlier failures are forgotten.
FORGET_AFTER_S: Final = 300.0

#: Texts in Spark's traces of causes that can pass without a change of the input or of Sluice.
_PASSING: Final = re.compile(
    r"The JVM has gone|No space left on device|Disk quota exceeded|Read-only file system|Input/output error"
    r"|Too many open files|Cannot allocate memory|Connection (refused|reset)|CatalogDown|EventLogDown"
    r"|KafkaDown|SecretMissing|of stream \".*\" cannot be read|cannot be read from topic"
    r"|ExecutorLostFailure|FetchFailed|Master removed our application|SparkContext was shut down"
    r"|StorageDown|(event log|storage) \".*\" cannot be used|catalog (cannot be used|is busy)",
)
#: Parts of a reason that differ between two failures of one kind: numbers, addresses, names of files.
_VARIABLE: Final = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of the job.

    Attributes:
        batch: Last batch that was committed before the failure, or None if there is none or it is unknown.
        reason: Reason of the failure, in the words that users see.
        passes: Whether the cause can pass without a change of the input.
    """

    batch: int | None
    reason: str
    passes: bool


@dataclass(slots=True)
class Failures:
    """Consecutive failures of a job.

    Attributes:
        count: Number of consecutive failures of any kind.
        same: Number of the latest consecutive failures of the same kind at the same batch.
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
            Seconds until the next try, or None if a retry is useless.
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
    """Return whether the cause in a reason or trace can pass without a change of the input.

    >>> can_pass("No space left on device"), can_pass("Conversion Error: no number")
    (True, False)
    """
    return _PASSING.search(reason) is not None
