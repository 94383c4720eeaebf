"""The audit log: each request for a change, with its author and the status of the answer.

An entry is durable before the change begins, so every change has an entry. The status is added when the
request is answered. An entry without a status belongs to a request that a crash interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, delete, insert, select, update

from catalog.store.database import tables
from catalog.store.database.repository import Repository, next_id

#: Number of newest entries that are kept.
KEPT = 100_000

_a = tables.audit_log.c
_PAGE = (
    select(_a.id, _a.at_us, _a.actor, _a.address, _a.request_id, _a.method, _a.path, _a.status)
    .where(_a.id > bindparam("after"))
    .order_by(_a.id)
    .limit(bindparam("limit"))
)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One request for a change.

    Attributes:
        id: Number of the entry, ascending.
        at_us: Wall clock when the request was admitted, µs UTC.
        actor: Name of the key, certificate or token of the request.
        address: Address of the client.
        request_id: Id of the request, as in its answer and the log.
        method: HTTP method.
        path: Path of the request.
        status: HTTP status of the answer; None if the request was not answered.
    """

    id: int
    at_us: int
    actor: str
    address: str
    request_id: str
    method: str
    path: str
    status: int | None


class AuditLogRepository(Repository):
    """Entries in the order of requests."""

    def begin(self, actor: str, address: str, request_id: str, method: str, path: str) -> int:
        """Record a request before it is carried out; return the entry's number."""
        with self._database.write() as connection:
            entry = next_id(connection, "audit")
            connection.execute(
                insert(tables.audit_log).values(
                    id=entry,
                    at_us=self._now_us(),
                    actor=actor,
                    address=address,
                    request_id=request_id,
                    method=method,
                    path=path,
                )
            )
            connection.execute(delete(tables.audit_log).where(_a.id <= entry - KEPT))
        return entry

    def end(self, entry: int, status: int) -> None:
        """Record the HTTP status with which a request was answered."""
        with self._database.write() as connection:
            connection.execute(update(tables.audit_log).where(_a.id == entry).values(status=status))

    def page(self, after: int = 0, limit: int = 1000) -> tuple[AuditEntry, ...]:
        """Return the entries whose number is greater than ``after``, in order."""
        with self._database.read() as connection:
            rows = connection.execute(_PAGE, {"after": after, "limit": limit})
            return tuple(AuditEntry(*row) for row in rows)
