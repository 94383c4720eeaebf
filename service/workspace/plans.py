"""Plans of a workspace: versions, their history and costs, and previews of changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from catalog.errors import CatalogDown
from catalog.store.repositories.plan_history import HistoryEntry
from catalog.store.store import Store
from catalog.values.plan import Plan
from planner.explain.explain import FamilyReport
from planner.explain.preview import Preview
from service.config.calibration import calibration_of
from service.faults import Faults
from service.planning.preview import PreviewRequest, explain_version, preview_change, price_version
from service.planning.versions import Versions
from service.statistics.metrics import ExpectedCost

log = logging.getLogger(__name__)

#: Seconds between two checks for new plans.
LOOK_S = 1.0
#: Seconds for which the costs of a plan are current enough for metrics.
PRICED_S = 60.0
#: Maximum fractions of the time spent on pricing: on new plans, and on an unchanged plan.
SHARE_NEW, SHARE_AGAIN = 0.05, 0.01


class WorkspacePlans:
    """Plans of one workspace.

    Args:
        store: The catalog.
        versions: Source of the objective in force and of statistics.
    """

    def __init__(self, store: Store, versions: Versions) -> None:
        self._store = store
        self._versions = versions
        self._priced: Mapping[str, ExpectedCost] = {}

    def latest(self) -> Plan | None:
        """Return the newest plan, even if no batch has run under it yet, or None before the first plan."""
        return self._store.control_log.latest_plan()

    def version(self, version: int) -> Plan:
        """Return a plan version.

        Raises:
            PlanVersionNotFound: The version does not exist, or is no longer kept.
        """
        return self._store.control_log.plan(version)

    def history(self, after: int, limit: int) -> tuple[HistoryEntry, ...]:
        """Return the history's entries after version ``after``, ascending."""
        return self._store.plan_history.page(after, limit)

    def history_entry(self, version: int) -> HistoryEntry | None:
        """Return a version's entry in the history, or None if the history has no such entry."""
        entry = next(iter(self._store.plan_history.page(version - 1, 1)), None)
        return entry if entry is not None and entry.version == version else None

    def preview(self, request: PreviewRequest) -> Preview:
        """Return the effect that a change would have; change nothing.

        Raises:
            InvalidInput: A part of the request is invalid; the error's ``path`` names it.
            NameTaken: A query to be added has the name of another query.
        """
        versions = self._versions
        calibration = calibration_of(self._store)
        return preview_change(self._store, versions.statistician, versions.objective, calibration, request)

    def explain(self, plan: Plan) -> dict[str, FamilyReport]:
        """Return the costs of a plan version's families, by present statistics."""
        versions = self._versions
        calibration = calibration_of(self._store)
        return explain_version(self._store, versions.statistician, versions.objective, calibration, plan)

    def expected_costs(self) -> Mapping[str, ExpectedCost]:
        """Return the expected cost of the plan and of its queries ``unshared``, from the last pricing."""
        return self._priced

    def price(self) -> Plan | None:
        """Compute the costs of the newest plan, over all families; return the plan, or None without a plan.

        The costs of the plan and of the unshared queries are computed from the same measured rates, with
        every window full.
        """
        plan, versions = self.latest(), self._versions
        if plan is None:
            return None
        calibration = calibration_of(self._store)
        costs = price_version(self._store, versions.statistician, versions.objective, calibration, plan)
        self._priced = {
            name: ExpectedCost(
                sum(cost.memory_rows for cost in by_family), sum(cost.cpu_s.total for cost in by_family)
            )
            for name, by_family in zip(("plan", "unshared"), zip(*costs.values(), strict=True), strict=False)
        }
        return plan


@dataclass(slots=True)
class PlanPricing:
    """A thread that prices each new plan for metrics, and the same plan again as statistics change.

    Pricing a thousand queries takes seconds. Scrapes of the metrics must not wait for it, and must not fail
    because of its errors.

    Attributes:
        plans: Plans of the workspace.
        faults: Records unexpected errors.
        clock_s: Monotonic clock.
    """

    plans: WorkspacePlans
    faults: Faults
    clock_s: Callable[[], float] = time.monotonic
    _version: int | None = field(default=None, init=False)
    _due_s: float = field(default=0.0, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="pricing", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the plan that is being priced."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def run_once(self) -> float:
        """Price the newest plan if it is new or its costs are too old; return the seconds to rest."""
        began_s = self.clock_s()
        try:
            newest = self.plans.latest()
            if newest is None or (newest.version == self._version and began_s < self._due_s):
                return LOOK_S
            priced = self.plans.price()
        except CatalogDown as error:
            log.debug("plans cannot be priced: %s", error)
            return LOOK_S
        took_s = self.clock_s() - began_s
        self._version = None if priced is None else priced.version
        self._due_s = began_s + max(PRICED_S, took_s / SHARE_AGAIN)
        return max(LOOK_S, took_s / SHARE_NEW)

    def _run(self) -> None:
        rest_s = 0.0
        while not self._stop.wait(rest_s):
            rest_s = self.faults.attempt("pricing", self.run_once) or LOOK_S
