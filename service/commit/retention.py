"""Retention beside the running job: old results go, a few batches at a time (``catalog.store.retention``).

    look 1     the catalog forgets batches: no manifest names their files any more
    look n     the files are unlinked, once a page that was being read then has been sent

A crash in between leaves files that no manifest names; the sweep at the next start removes them. Files that a
manifest names are never touched.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from catalog.store.retention import Dropped
from catalog.store.store import Store
from service.config.failpoints import reached

log = logging.getLogger(__name__)

#: A job makes two or three batches in that time.
INTERVAL_S = 2.0
#: Longer than a page or an export of some batches takes to open the files that it was told of.
UNLINK_AFTER_S = 60.0
#: How often manifests are looked through for those that only departed queries had kept.
THIN_INTERVAL_S = 600.0
#: Batches in one transaction: 10-20 ms with 100 queries, in which no batch can be committed.
_BATCHES_PER_STEP = 100
#: After that the next look goes on, since others wait for this thread.
_BUDGET_S = 0.5


def _nothing_needed() -> None:
    return None


@dataclass(slots=True)
class ResultRetention:
    """Drops results of a running service that are older than people want to keep them.

    Attributes:
        store: Catalog.
        results_dir: Directory of result files.
        late_dir: Directory of late rows.
        retention_us: How long a batch's results are kept after its commit, wall clock µs; None keeps all.
        engine_lock: Path of the engine's lock file, for failpoints.
        needed_from: Tells the oldest batch that a reader is not done with, None if there is no such reader.
        interval_s: Least time between two looks.
        unlink_after_s: How long the files of what was dropped stay.
        thin_interval_s: Least time between two looks through old manifests.
    """

    store: Store
    results_dir: Path
    late_dir: Path
    retention_us: int | None
    engine_lock: str
    needed_from: Callable[[], int | None] = _nothing_needed
    interval_s: float = INTERVAL_S
    unlink_after_s: float = UNLINK_AFTER_S
    thin_interval_s: float = THIN_INTERVAL_S
    _looked_us: int | None = field(default=None, init=False)
    _thinned_us: int | None = field(default=None, init=False)
    _waiting: deque[tuple[int, list[Path]]] = field(default_factory=deque, init=False)

    def run_once(self, now_us: int) -> int:
        """Drop and unlink what it is time for; return how many batches lost their results."""
        if self.retention_us is None or not _due(self._looked_us, now_us, self.interval_s):
            return 0
        self._looked_us = now_us
        self._unlink(now_us)
        batches = self._drop(now_us, self.retention_us)
        if _due(self._thinned_us, now_us, self.thin_interval_s):
            self._thinned_us = now_us
            self.store.retention.thin_manifests()
        return batches

    def _drop(self, now_us: int, retention_us: int) -> int:
        """Drop step by step, until nothing is old enough or the time of a look is over."""
        batches, results, deadline_s = 0, 0, time.monotonic() + _BUDGET_S
        while True:
            dropped = self.store.retention.drop(
                now_us - retention_us, before=self.needed_from(), limit=_BATCHES_PER_STEP
            )
            if not dropped:
                break
            reached("after-drop", dropped.kept_from, self.engine_lock)
            self._waiting.append((now_us, self._paths(dropped)))
            batches += dropped.batches
            results += dropped.results
            if time.monotonic() > deadline_s:
                break
        if batches:
            log.debug("results dropped", extra={"batches": batches, "results": results})
        return batches

    def _unlink(self, now_us: int) -> None:
        while self._waiting and _due(self._waiting[0][0], now_us, self.unlink_after_s):
            _, paths = self._waiting[0]
            while paths:
                try:
                    paths[-1].unlink(missing_ok=True)
                except OSError as error:
                    # It may work at the next look; if not, the sweep of the next start will say so, too.
                    log.warning("file of dropped results cannot be removed: %s", error)
                    return
                paths.pop()
            self._waiting.popleft()

    def _paths(self, dropped: Dropped) -> list[Path]:
        results = [self.results_dir / path for path in dropped.files]
        return results + [self.late_dir / path for path in dropped.late_files]


def _due(last_us: int | None, now_us: int, interval_s: float) -> bool:
    """Tell whether it is time again; a wall clock may be set back."""
    return last_us is None or abs(now_us - last_us) >= interval_s * 1e6
