"""Idempotency keys in the catalog: a mutation that is repeated under its key gets the stored answer."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, delete, insert, select, update

from catalog.errors import IdempotencyKeyReused
from catalog.store.database import tables
from catalog.store.database.repository import Repository

#: Time for which an answer is kept, µs: a day, much longer than any client retries a request.
KEEP_US = 24 * 3600 * 1_000_000

_k = tables.idempotency_keys.c
_BY_KEY = select(_k.fingerprint, _k.status, _k.body).where(_k.key == bindparam("key"))


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """Answer to the first request with an idempotency key.

    Attributes:
        status: HTTP status.
        body: Body, JSON text.
    """

    status: int
    body: str


class IdempotencyRepository(Repository):
    """Idempotency keys. Call ``remember`` in the transaction of the mutation itself."""

    def recall(self, key: str, fingerprint: str) -> StoredAnswer | None:
        """Return the answer that is stored under an idempotency key, if any.

        Args:
            key: Idempotency key of the request.
            fingerprint: Hash of the request (method, path, body).

        Returns:
            The answer to the first request with the key, or None.

        Raises:
            IdempotencyKeyReused: The key was used for another request.
        """
        with self._database.read() as connection:
            row = connection.execute(_BY_KEY, {"key": key}).first()
        if row is None:
            return None
        if row.fingerprint != fingerprint:
            raise IdempotencyKeyReused(
                f'idempotency key "{key}" was used for another request',
                hint="Use a new key for every new request.",
            )
        return StoredAnswer(row.status, row.body)

    def amend(self, key: str, fingerprint: str, status: int, body: str) -> None:
        """Replace the stored answer to a request by a later answer.

        Args:
            key: Idempotency key of the request.
            fingerprint: Hash of the request; nothing changes if the stored request has a different hash.
            status: HTTP status of the answer.
            body: Body of the answer, JSON text.
        """
        with self._database.write() as connection:
            connection.execute(
                update(tables.idempotency_keys)
                .where(_k.key == key, _k.fingerprint == fingerprint)
                .values(status=status, body=body)
            )

    def remember(self, key: str, fingerprint: str, status: int, body: str) -> StoredAnswer | None:
        """Store the answer to a request, unless its key already has an answer.

        Args:
            key: Idempotency key of the request.
            fingerprint: Hash of the request.
            status: HTTP status of the answer.
            body: Body of the answer, JSON text.

        Returns:
            None if this answer was stored, or the answer that another process has stored meanwhile. In the
            second case, the caller must return the stored answer and undo the changes of this request.

        Raises:
            IdempotencyKeyReused: The key was used for another request.
        """
        with self._database.write() as connection:
            now_us = self._now_us()
            connection.execute(delete(tables.idempotency_keys).where(_k.created_at_us < now_us - KEEP_US))
            stored = self.recall(key, fingerprint)
            if stored is None:
                connection.execute(
                    insert(tables.idempotency_keys).values(
                        key=key, fingerprint=fingerprint, status=status, body=body, created_at_us=now_us
                    )
                )
        return stored
