"""Periodic pruning of the catalog while the job runs (``catalog.store.pruning`` lists the pruned records)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from catalog.store.pruning import Pruned
from catalog.store.store import Store
from catalog.times.clock import is_due

log = logging.getLogger(__name__)

#: Minimum time between two prunings, in seconds. A pruning takes a millisecond. At several changes per
#: second, it removes a handful of rows.
INTERVAL_S = 2.0
#: Seconds for which a removed query without results can still be looked up, so that the client that removed
#: the query sees its state "removed".
GRACE_S = 30.0


@dataclass(slots=True)
class Pruner:
    """Periodic pruning of the catalog of a running service.

    Attributes:
        store: Catalog.
        interval_s: Minimum time between two prunings, in seconds.
        grace_s: Seconds for which a removed query without results can still be looked up.
    """

    store: Store
    interval_s: float = INTERVAL_S
    grace_s: float = GRACE_S
    _looked_us: int | None = field(default=None, init=False)

    def run_once(self, now_us: int) -> Pruned:
        """Prune if ``interval_s`` has passed since the last pruning; return the numbers of pruned records."""
        if not is_due(self._looked_us, now_us, self.interval_s):
            return Pruned()
        self._looked_us = now_us
        pruned = self.store.pruning.prune(grace_us=round(self.grace_s * 1_000_000))
        if pruned:
            log.debug(
                "pruned",
                extra={"records": pruned.records, "plans": pruned.plans, "queries": pruned.queries},
            )
        return pruned
