"""Removal of old results while the job runs, a few batches at a time (``catalog.store.results.retention``).

    run 1     the manifests of old batches are removed from the catalog, so nothing names their files
    run n     the files are unlinked, after pages that were being read during run 1 have been sent

A crash between these runs leaves files that no manifest names; the sweep at the next start removes them.
Files that a manifest names are never touched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from catalog.store.store import Store
from catalog.times.clock import is_due
from operators.storage.folder import Folder, remove, written_before
from service.commit.failpoints import reached
from service.commit.upkeep.unlinking import UNLINK_AFTER_S, Unlinking

log = logging.getLogger(__name__)

#: Seconds between two searches for old results. A job processes two or three batches in that time.
INTERVAL_S = 2.0
#: Seconds between two searches for old manifests that only queries that no longer exist have needed.
THIN_INTERVAL_S = 600.0
#: Minimum time between two searches for old dead-letter files, in seconds.
DEAD_LETTER_INTERVAL_S = 600.0
#: Number of batches dropped in one transaction. With 100 queries the transaction takes 10-20 ms, during which
#: no batch can be committed.
_BATCHES_PER_STEP = 100
#: Seconds after which a run stops dropping batches, because other work waits for this thread.
_BUDGET_S = 0.5


def _nothing_needed() -> None:
    return None


@dataclass(slots=True)
class ResultRetention:
    """Removal of results that are older than their retention, in a running service.

    Attributes:
        store: Catalog.
        results_dir: Folder of result files.
        late_dir: Folder of late rows.
        retention_us: How long a batch's results are kept after its commit, wall clock µs; None keeps all.
        engine_lock: Path of the engine's lock file, for failpoints.
        needed_from: Returns the oldest batch that a reader still needs, or None if no reader needs any.
        interval_s: Minimum time between two searches for old results, in seconds.
        unlink_after_s: Seconds from the removal of results in the catalog until their files are unlinked.
        thin_interval_s: Minimum time between two calls of ``thin_manifests``, in seconds.
    """

    store: Store
    results_dir: Folder
    late_dir: Folder
    retention_us: int | None
    engine_lock: str
    needed_from: Callable[[], int | None] = _nothing_needed
    interval_s: float = INTERVAL_S
    unlink_after_s: float = UNLINK_AFTER_S
    thin_interval_s: float = THIN_INTERVAL_S
    _looked_us: int | None = field(default=None, init=False)
    _thinned_us: int | None = field(default=None, init=False)
    _unlinking: Unlinking = field(default_factory=Unlinking, init=False)

    def run_once(self, now_us: int) -> int:
        """Drop old results and unlink files dropped earlier; return how many batches lost their results."""
        if self.retention_us is None or not is_due(self._looked_us, now_us, self.interval_s):
            return 0
        self._looked_us = now_us
        self._unlinking.run_once(now_us, self.unlink_after_s)
        batches = self._drop(now_us, self.retention_us)
        if is_due(self._thinned_us, now_us, self.thin_interval_s):
            self._thinned_us = now_us
            self.store.retention.thin_manifests()
        return batches

    def _drop(self, now_us: int, retention_us: int) -> int:
        """Drop results of old batches step by step, until none is old enough or the run's time is used up."""
        batches, results, deadline_s = 0, 0, time.monotonic() + _BUDGET_S
        while True:
            dropped = self.store.retention.drop(
                now_us - retention_us, before=self.needed_from(), limit=_BATCHES_PER_STEP
            )
            if not dropped:
                break
            reached("after-drop", dropped.kept_from, self.engine_lock)
            self._unlinking.add(now_us, self.results_dir, dropped.files)
            self._unlinking.add(now_us, self.late_dir, dropped.late_files)
            batches += dropped.batches
            results += dropped.results
            if time.monotonic() > deadline_s:
                break
        if batches:
            log.debug("results dropped", extra={"batches": batches, "results": results})
        return batches


@dataclass(slots=True)
class DeadLetterRetention:
    """Removal of dead-letter files that are older than their retention, in a running service.

    Attributes:
        folder: Folder of dead-letter files.
        retention_us: How long a file is kept after it was written, wall clock µs; None keeps all.
        interval_s: Minimum time between two searches for old files, in seconds.
    """

    folder: Folder
    retention_us: int | None
    interval_s: float = DEAD_LETTER_INTERVAL_S
    _looked_us: int | None = field(default=None, init=False)

    def run_once(self, now_us: int) -> None:
        """Remove the files that are older than the retention."""
        if self.retention_us is None or not is_due(self._looked_us, now_us, self.interval_s):
            return
        self._looked_us = now_us
        old = written_before(self.folder, now_us - self.retention_us)
        remove(self.folder, old)
        if old:
            log.info("dead-letter files removed", extra={"files": len(old)})
