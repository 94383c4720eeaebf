"""Keys of clients in the catalog, which stores a hash of each key's secret instead of the secret."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, delete, func, insert, select, update

from catalog.errors import KeyExists, KeyNotFound
from catalog.store.database import tables
from catalog.store.database.repository import Repository

#: Number of newest revoked keys that are kept. An older revoked key is deleted, but refused with the same
#: error.
REVOKED_KEPT: Final = 1000

_k = tables.api_keys.c
_COLUMNS = (_k.id, _k.name, _k.scopes, _k.secret_hash, _k.rate_per_s, _k.created_at_us, _k.revoked_at_us)
_BY_ID = select(*_COLUMNS).where(_k.id == bindparam("id"))
_LIVE = select(*_COLUMNS).where(_k.revoked_at_us.is_(None))
_LIVE_NAMED = select(*_COLUMNS).where(_k.revoked_at_us.is_(None), _k.name == bindparam("name"))
_LIVE_IDS = select(_k.id).where(_k.revoked_at_us.is_(None))
_NEWEST_REVOKED = (
    select(_k.id)
    .where(_k.revoked_at_us.is_not(None))
    .order_by(_k.revoked_at_us.desc(), _k.id)
    .limit(bindparam("kept"))
)
_DROP_REVOKED = delete(tables.api_keys).where(_k.revoked_at_us.is_not(None), _k.id.not_in(_NEWEST_REVOKED))
_COUNT = select(func.count()).select_from(tables.api_keys).where(_k.revoked_at_us.is_(None))


@dataclass(frozen=True, slots=True)
class ApiKey:
    """Key of a client.

    Attributes:
        id: Public part of the key.
        name: Name of the key's holder, as shown in the plan history and the audit log.
        scopes: Scopes of the key, such as ``read``: the kinds of requests that it allows.
        secret_hash: Hash of the key's secret part.
        rate_per_s: Requests per second that a client may send with the key on average.
        created_at_us: Wall clock when the key was created, µs UTC.
        revoked_at_us: Wall clock when the key was revoked, µs UTC; None while it is valid.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    secret_hash: str
    rate_per_s: int
    created_at_us: int
    revoked_at_us: int | None = None


class ApiKeyRepository(Repository):
    """Keys by id; no two valid keys have the same name."""

    def add(self, key_id: str, name: str, scopes: tuple[str, ...], secret_hash: str, rate_per_s: int) -> None:
        """Store a key.

        Args:
            key_id: Public part of the key.
            name: Name of the key's holder.
            scopes: Scopes of the key, such as ``read``: the kinds of requests that it allows.
            secret_hash: Hash of the key's secret part.
            rate_per_s: Requests per second that a client may send with the key on average.

        Raises:
            KeyExists: A valid key has that name.
        """
        with self._database.write() as connection:
            if connection.execute(_LIVE_NAMED, {"name": name}).first() is not None:
                raise KeyExists(
                    f'key "{name}" exists', hint="Choose another name, or revoke the existing key."
                )
            connection.execute(
                insert(tables.api_keys).values(
                    id=key_id,
                    name=name,
                    scopes=json.dumps(scopes),
                    secret_hash=secret_hash,
                    rate_per_s=rate_per_s,
                    created_at_us=self._now_us(),
                )
            )

    def find(self, key_id: str) -> ApiKey | None:
        """Return a key by id, even if it is revoked; None if it does not exist or was revoked long ago."""
        with self._database.read() as connection:
            row = connection.execute(_BY_ID, {"id": key_id}).first()
        return None if row is None else _key(row)

    def valid_among(self, key_ids: Iterable[str]) -> frozenset[str]:
        """Return those of some ids whose keys exist and are not revoked."""
        wanted = frozenset(key_ids)
        with self._database.read() as connection:
            return wanted.intersection(connection.scalars(_LIVE_IDS))

    def all(self) -> tuple[ApiKey, ...]:
        """Return the valid keys, by name."""
        with self._database.read() as connection:
            live = [_key(row) for row in connection.execute(_LIVE)]
        return tuple(sorted(live, key=lambda key: key.name))  # databases sort texts differently

    def exist(self) -> bool:
        """Return whether there is any valid key."""
        with self._database.read() as connection:
            return bool(connection.execute(_COUNT).scalar())

    def revoke(self, name: str) -> None:
        """Revoke a key; this cannot be undone.

        Raises:
            KeyNotFound: No valid key has that name.
        """
        with self._database.write() as connection:
            row = connection.execute(_LIVE_NAMED, {"name": name}).first()
            if row is None:
                raise KeyNotFound(f'key "{name}" does not exist', hint="sluice key list shows valid keys.")
            connection.execute(
                update(tables.api_keys).where(_k.id == row.id).values(revoked_at_us=self._now_us())
            )
            connection.execute(_DROP_REVOKED, {"kept": REVOKED_KEPT})


def _key(row: Any) -> ApiKey:  # Any: a row of SQLAlchemy's
    return ApiKey(
        row.id,
        row.name,
        tuple(json.loads(row.scopes)),
        row.secret_hash,
        row.rate_per_s,
        row.created_at_us,
        row.revoked_at_us,
    )
