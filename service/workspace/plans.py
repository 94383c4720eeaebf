"""Plans of a workspace: versions, their history and costs, and previews of changes."""

from __future__ import annotations

import time
from collections.abc import Mapping

from catalog.store.repositories.plan_history import HistoryEntry
from catalog.store.store import Store
from catalog.values.plan import Plan
from planner.explain.explain import FamilyReport
from planner.explain.preview import Preview
from service.config.calibration import calibration_of
from service.planning.preview import PreviewRequest, explain_version, preview_change
from service.planning.versions import Versions
from service.statistics.metrics import ExpectedCost

#: Age up to which the costs of a plan are good for metrics: pricing hundreds of queries takes seconds.
_PRICED_S = 60.0


class WorkspacePlans:
    """Plans of one workspace.

    Args:
        store: The catalog.
        versions: The objective in force, and statistics.
    """

    def __init__(self, store: Store, versions: Versions) -> None:
        self._store = store
        self._versions = versions
        self._priced: tuple[float, Mapping[str, ExpectedCost]] | None = None

    def latest(self) -> Plan | None:
        """Return the newest plan, whether or not a batch has it yet; None before the first."""
        return self._store.control_log.latest_plan()

    def version(self, version: int) -> Plan:
        """Return a plan version.

        Raises:
            PlanVersionNotFound: There is none, or it is not kept any more.
        """
        return self._store.control_log.plan(version)

    def history(self, after: int, limit: int) -> tuple[HistoryEntry, ...]:
        """Return entries of the history by version, those after ``after``."""
        return self._store.plan_history.page(after, limit)

    def history_entry(self, version: int) -> HistoryEntry | None:
        """Return a version's entry in the history, None if it has none."""
        entry = next(iter(self._store.plan_history.page(version - 1, 1)), None)
        return entry if entry is not None and entry.version == version else None

    def preview(self, request: PreviewRequest) -> Preview:
        """Return the effect of a change; nothing is changed.

        Raises:
            InvalidInput: Something in the request is invalid; its ``path`` says where.
            NameTaken: A query to be added has the name of another one.
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
        """Return the expected cost of the newest plan and of its queries ``unshared``, over all families.

        Both are computed from the same measured rates, with every window full, and are at most a minute old.
        """
        now_s = time.monotonic()
        if self._priced is None or now_s > self._priced[0] + _PRICED_S:
            plan = self.latest()
            reports = self.explain(plan).values() if plan is not None and plan.families else ()
            named = [
                ("plan" if each is report.planned else each.name, each.cost)
                for report in reports
                for each in (report.planned, *report.alternatives)
            ]
            self._priced = (
                now_s,
                {
                    name: ExpectedCost(
                        sum(cost.memory_rows for of, cost in named if of == name),
                        sum(cost.cpu_s.total for of, cost in named if of == name),
                    )
                    for name in ("plan", "unshared")
                    if named
                },
            )
        return self._priced[1]
