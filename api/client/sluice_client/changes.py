"""Several changes of queries that take effect together or not at all.

from sluice_client import changes

client.change([changes.add("q1", cql), changes.remove("q2"), changes.pause("q3")], wait_s=30)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NewType

from msgspec import UNSET, UnsetType

Document = Mapping[str, Any]
Backfill = Literal["none", "state"]
#: A length of time: text such as "5 MINUTES", a number of seconds, or a timedelta.
Duration = str | int | float | timedelta
#: One change in a list of changes.
Change = NewType("Change", dict[str, Any])


def add(name: str, cql: str, *, backfill: Backfill = "none", sink: Document | None = None) -> Change:
    """Add a query.

    Args:
        name: Its name.
        cql: Its text.
        backfill: ``state`` also joins new rows with rows that are already in the state.
        sink: Additional destination of the results; the service keeps the results in any case.
    """
    return Change({"add": query_document(name, cql, backfill, sink)})


def update(
    name: str,
    *,
    cql: str | UnsetType = UNSET,
    window: Duration | Mapping[str, Duration] | UnsetType = UNSET,
    filters: Mapping[str, str | None] | UnsetType = UNSET,
    select: str | Sequence[str] | UnsetType = UNSET,
    backfill: Backfill = "state",
    sink: Document | UnsetType | None = UNSET,
) -> Change:
    """Make the change that gives a query a new text, parts or sink; arguments as for ``update_query``."""
    patch = patch_document(
        cql=cql, window=window, filters=filters, select=select, backfill=backfill, sink=sink
    )
    return Change({"update": {"name": name, **patch}})


def remove(name: str) -> Change:
    """Remove a query."""
    return Change({"remove": name})


def pause(name: str) -> Change:
    """Take a query out of the plan until it is resumed."""
    return Change({"pause": name})


def resume(name: str) -> Change:
    """Put a paused query into the plan again."""
    return Change({"resume": name})


def query_document(name: str, cql: str, backfill: Backfill, sink: Document | None) -> dict[str, Any]:
    """Return the request document of a query."""
    return {"name": name, "cql": cql, "backfill": backfill} | ({} if sink is None else {"sink": dict(sink)})


def patch_document(
    *,
    cql: str | UnsetType,
    window: Duration | Mapping[str, Duration] | UnsetType,
    filters: Mapping[str, str | None] | UnsetType,
    select: str | Sequence[str] | UnsetType,
    backfill: Backfill,
    sink: Document | UnsetType | None,
) -> dict[str, Any]:
    """Return the request document of an update, without the unchanged parts."""
    windows: Any = window
    if isinstance(window, Mapping):
        windows = {alias: str(duration(length)) for alias, length in window.items()}
    elif not isinstance(window, UnsetType):
        windows = str(duration(window))
    parts = {
        "cql": cql,
        "window": windows,
        "filter": filters,
        "select": select,
        "backfill": backfill,
        "sink": sink,
    }
    return {part: value for part, value in parts.items() if value is not UNSET}


def duration(length: Duration) -> str | int | float:
    """Return a length of time in the form that the service accepts.

    >>> from datetime import timedelta
    >>> duration("5 MINUTES"), duration(1.5), duration(timedelta(minutes=2, microseconds=1))
    ('5 MINUTES', 1.5, '120000001 us')
    """
    if isinstance(length, timedelta):
        return f"{length // timedelta(microseconds=1)} us"
    return length
