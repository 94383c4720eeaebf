"""Identity of a data directory: a random id, stored in the catalog and in each part of the directory.

    catalog       setting "identity"     {"id": "5f0c...", "settled": true}
    directory     identity.json          {"id": "5f0c..."}
    checkpoint/   identity.json          {"id": "5f0c...", "checkpoint": "c57b7a71801e"}
    events.db     table identity          5f0c...

The catalog gets the id first, and is marked as settled once all parts have the id. Until the catalog is
settled, each start gives the id to parts without an id. Once the catalog is settled, a part with another id
or without an id does not belong to the catalog.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from catalog.store.store import Store
from service.commit.sync import sync_file
from service.errors import OtherLife

_SETTING = "identity"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a data directory, as the catalog stores it.

    Attributes:
        id: Random id.
        settled: Whether all parts have the id.
    """

    id: str
    settled: bool


def identity_of(store: Store) -> Identity | None:
    """Return the catalog's identity, or None if the catalog has no identity."""
    facts = store.settings.get(_SETTING)
    return Identity(str(facts["id"]), bool(facts["settled"])) if isinstance(facts, dict) else None


def give_identity(store: Store) -> Identity:
    """Give the catalog a new identity, which is not settled, and return it."""
    identity = Identity(uuid.uuid4().hex, settled=False)
    _store(store, identity)
    return identity


def settle(store: Store, identity: Identity) -> None:
    """Record durably that all parts have the identity."""
    _store(store, Identity(identity.id, settled=True))


def read_mark(path: Path) -> dict[str, str]:
    """Return the ids in the identity file of a part, by name; the result is empty without a file.

    Raises:
        OtherLife: The file is damaged.
    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(value) for name, value in facts.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, OSError) as error:
        raise OtherLife(
            f'"{path}" cannot be read',
            detail=f"The file names the catalog to which the directory belongs: {error}.",
            hint="Restore the file from a backup. If nothing else was damaged, remove the file; "
            "sluice repair then writes it again.",
        ) from error


def write_mark(path: Path, facts: dict[str, str]) -> None:
    """Write the identity file of a part, atomically and durably."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        partial.write_text(json.dumps(facts), encoding="utf-8")
        sync_file(partial)
        partial.replace(path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
    sync_file(path.parent)


def _store(store: Store, identity: Identity) -> None:
    store.settings.set(_SETTING, {"id": identity.id, "settled": identity.settled})
