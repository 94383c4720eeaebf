"""Models of the audit log's entries in answers."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from api.timestamps import timestamp
from catalog.store.clients.audit_log import AuditEntry


class AuditEntryOut(BaseModel):
    """One request for a change."""

    id: int = Field(description="Number of the entry, in ascending order.")
    at: str = Field(description="Time at which the request was admitted.")
    actor: str = Field(
        description="Name of the client's key, certificate or token; `anonymous` if it sent none."
    )
    address: str = Field(description="Address from which the request was sent.")
    request_id: str = Field(description="`X-Request-Id` of the answer.")
    method: str = Field(description="HTTP method.")
    path: str = Field(description="Path.")
    status: int | None = Field(description="HTTP status of the answer; null if no answer was sent.")

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        """Build the response model of an audit entry."""
        return cls(
            id=entry.id,
            at=timestamp(entry.at_us),
            actor=entry.actor,
            address=entry.address,
            request_id=entry.request_id,
            method=entry.method,
            path=entry.path,
            status=entry.status,
        )


class AuditPage(BaseModel):
    """A page of the audit log."""

    items: list[AuditEntryOut]
    next_cursor: str | None = Field(description="Send as `after` for the next page; null on the last one.")
    has_more: bool
