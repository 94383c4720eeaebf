"""``sluice key``: API keys of clients in the catalog of a service. The audit log records each change."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from catalog.wording.outside import printable
from service.access import api_keys
from service.recovery.opening import open_catalog

if TYPE_CHECKING:
    from catalog.store.clients.api_keys import ApiKey
    from catalog.store.store import Store
    from service.config.settings import StorageSettings


def create_key(storage: StorageSettings, name: str, scopes: Sequence[str], rate_per_s: int) -> str:
    """Make a key, store it and return it; raises as ``service.access.api_keys.create_key``."""
    with _catalog(storage) as store:
        _write_audit_log(store, "CREATE", name)
        return api_keys.create_key(store.api_keys, name, scopes, rate_per_s)


def good_keys(storage: StorageSettings) -> tuple[ApiKey, ...]:
    """Return the keys that are not revoked, in order of their names."""
    with _catalog(storage) as store:
        return store.api_keys.all()


def revoke_key(storage: StorageSettings, name: str) -> None:
    """Revoke a key; raises ``NotFound`` if no key has the name."""
    with _catalog(storage) as store:
        _write_audit_log(store, "REVOKE", name)
        store.api_keys.revoke(name)


@contextmanager
def _catalog(storage: StorageSettings) -> Iterator[Store]:
    """Open the catalog of a service for one transaction."""
    store = open_catalog(storage.open_data_dir(), storage.catalog_url)
    try:
        with store.transaction():
            yield store
    finally:
        store.close()


def _write_audit_log(store: Store, verb: str, name: str) -> None:
    # No key, token or certificate has a name that begins so.
    actor = f"user:{getpass.getuser()}"
    entry = store.audit_log.begin(actor, "", "", verb, f"key {printable(name)}")
    store.audit_log.end(entry, 200)
