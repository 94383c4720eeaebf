"""Plans of a workspace: versions, their history and costs, and previews of changes."""

from __future__ import annotations

from catalog.store.repositories.plan_history import HistoryEntry
from catalog.store.store import Store
from catalog.values.plan import Plan
from planner.explain.explain import FamilyReport
from planner.explain.preview import Preview
from service.config.calibration import calibration_of
from service.planning.preview import PreviewRequest, explain_version, preview_change
from service.planning.versions import Versions


class WorkspacePlans:
    """Plans of one workspace.

    Args:
        store: The catalog.
        versions: The objective in force, and statistics.
    """

    def __init__(self, store: Store, versions: Versions) -> None:
        self._store = store
        self._versions = versions

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
