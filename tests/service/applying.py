"""Changes of queries in tests that store nothing else in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.values.change import Change
from service.planning.changes import Changed, changing
from service.planning.versions import Versions


def apply_changes(
    versions: Versions,
    changes: Change | Sequence[Change],
    *,
    actor: str = "service",
    if_match: int | None = None,
) -> Changed:
    """Make changes as one plan version; arguments and errors of ``changing``."""
    with changing(versions, changes, actor=actor, if_match=if_match) as changed:
        return changed
