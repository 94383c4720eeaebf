"""Changes of sinks: find out whether a request changes a sink and whether two sinks share a directory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from catalog.store.store import Store
from catalog.values.sink import FilesSink, SetSink, Sink, WebhookSink
from service.errors import SinkInUse
from service.sinks.changes.check_sink import check_sink
from service.sinks.webhook_targets import WebhookTargets

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SinkMove:
    """Change of a query's sink.

    Attributes:
        name: Name of the query.
        series: Series of the query, or None for a new query.
        sink: Change of the query's sink: a new sink, or its removal. None leaves the sink as it is.
        leaves: Whether the query is removed.
    """

    name: str
    series: int | None
    sink: SetSink | None
    leaves: bool = False


def sink_to_set(
    store: Store, series: int | None, wanted: SetSink | None, targets: WebhookTargets
) -> SetSink | None:
    """Return the requested change of a query's sink, or None if the request changes nothing.

    Args:
        store: The catalog.
        series: Series of the query, or None for a new query.
        wanted: The requested sink, or its removal. None leaves the sink unchanged. If the request has no
            secret and the webhook's URL is unchanged, the webhook keeps its secret, because clients cannot
            read that secret.
        targets: Allowed targets of webhooks.

    Raises:
        InvalidSink: The sink is invalid.
    """
    if wanted is None:
        return None
    if wanted.sink is not None:
        check_sink(wanted.sink, targets)
    kept = () if series is None else store.sinks.of_series(series)
    now = kept[-1].sink if kept else None
    if isinstance(wanted.sink, WebhookSink) and isinstance(now, WebhookSink):
        kept_secret = now.secret if now.url == wanted.sink.url else None
        wanted = SetSink(replace(wanted.sink, secret=wanted.sink.secret or kept_secret))
    return None if wanted.sink == now else wanted


def shared_places(store: Store, moves: Sequence[SinkMove]) -> Iterator[tuple[int, SinkInUse]]:
    """Yield index and error of each move that makes a query write to another query's directory.

    The order of the moves does not matter: a move may take a directory that another move frees.
    """
    if not any(isinstance(_set(move), FilesSink) for move in moves):
        return
    moved = {move.series for move in moves if move.leaves or move.sink is not None}
    taken = {
        _folded(sink): name
        for series, name, sink in store.sinks.live()
        if isinstance(sink, FilesSink) and series not in moved
    }
    for place, move in enumerate(moves):
        sink = _set(move)
        if isinstance(sink, FilesSink) and (owner := taken.setdefault(_folded(sink), move.name)) != move.name:
            yield (
                place,
                SinkInUse(
                    f'path "{sink.path}" is in use',
                    detail=f'Query "{owner}" writes its files there.',
                    hint="Choose another path; paths that differ only by case are the same.",
                    path=("sink", "path"),
                ),
            )


def set_sinks(store: Store, moves: Iterable[tuple[SinkMove, int]], version: int | None, actor: str) -> None:
    """Set the changed sinks; call it in the transaction of the changes.

    Args:
        store: The catalog.
        moves: The changes, each with its series.
        version: Plan version that contains the changes; the sinks begin with its first batch. None if they
            begin with the next batch.
        actor: Author of the changes, written to the log because the history has only plan versions.
    """
    for move, series in moves:
        if move.sink is not None:
            sink_id = store.sinks.set(series, move.sink.sink, version)
            told = {"query": move.name, "sink": sink_id, "actor": actor, "plan_version": version}
            log.info("sink set", extra=told)


def _set(move: SinkMove) -> Sink | None:
    return None if move.sink is None else move.sink.sink


def _folded(sink: FilesSink) -> str:
    """Return the path as case-insensitive file systems compare it."""
    return sink.path.lower()
