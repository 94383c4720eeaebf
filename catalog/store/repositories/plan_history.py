"""The plan history: short records of who changed a plan and how, which stay when plans are pruned."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, insert, select

from catalog.store.database import tables
from catalog.store.database.repository import Repository

_h = tables.plan_history.c
_ENTRIES = (
    select(_h.version, _h.seq, _h.created_at_us, _h.actor, _h.cause, _h.document)
    .where(_h.version > bindparam("after"))
    .order_by(_h.version)
    .limit(bindparam("limit"))
)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One plan version in the history.

    Attributes:
        version: The plan version.
        seq: Number of its record in the control log.
        created_at_us: Wall clock when the version was made, µs UTC.
        actor: Who changed the plan.
        cause: Description of the change.
        document: Details of the change, JSON text.
    """

    version: int
    seq: int
    created_at_us: int
    actor: str
    cause: str
    document: str


class PlanHistoryRepository(Repository):
    """Entries of the plan history, which are written with their plan version and never change."""

    def add(self, version: int, seq: int, actor: str, cause: str, document: str = "{}") -> None:
        """Record who made a plan version and why, in the transaction that adds the version to the log."""
        with self._database.write() as connection:
            connection.execute(
                insert(tables.plan_history).values(
                    version=version,
                    seq=seq,
                    created_at_us=self._now_us(),
                    actor=actor,
                    cause=cause,
                    document=document,
                )
            )

    def page(self, after_version: int = 0, limit: int = 1000) -> tuple[HistoryEntry, ...]:
        """Return the entries of the versions after ``after_version``, in order."""
        with self._database.read() as connection:
            rows = connection.execute(_ENTRIES, {"after": after_version, "limit": limit})
            return tuple(HistoryEntry(*row) for row in rows)
