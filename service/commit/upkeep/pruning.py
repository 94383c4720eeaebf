"""Pruning beside the running job: now and then, off its path (``catalog.store.pruning`` says what goes)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from catalog.clock import is_due
from catalog.store.pruning import Pruned
from catalog.store.store import Store

log = logging.getLogger(__name__)

#: Looks cost a millisecond; at several changes a second a handful of rows goes with each.
INTERVAL_S = 2.0
#: So long a removed query that never gave a result can still be asked about: whoever removed it and asks
#: whether it has gone sees so.
GRACE_S = 30.0


@dataclass(slots=True)
class Pruner:
    """Prunes the catalog of a running service.

    Attributes:
        store: Catalog.
        interval_s: Least time between two looks.
        grace_s: How long a removed query without results can still be asked about.
    """

    store: Store
    interval_s: float = INTERVAL_S
    grace_s: float = GRACE_S
    _looked_us: int | None = field(default=None, init=False)

    def run_once(self, now_us: int) -> Pruned:
        """Prune if it is time; return what went."""
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
