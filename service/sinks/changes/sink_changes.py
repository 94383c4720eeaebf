"""Changes of sinks: whether a requested one is new, and whether two would share a place."""

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
        series: Its series; None if it is to come.
        sink: Change of its sink: a new sink or none; None leaves the sink as it is.
        leaves: Whether the query leaves for good.
    """

    name: str
    series: int | None
    sink: SetSink | None
    leaves: bool = False


def sink_to_set(
    store: Store, series: int | None, wanted: SetSink | None, targets: WebhookTargets
) -> SetSink | None:
    """Return the change of a query's sink that a request asks for; None if there is nothing to change.

    Args:
        store: The catalog.
        series: Series of the query; None for a new query.
        wanted: The sink asked for, or its removal; None leaves it as it is. A webhook with the URL of the
            present one keeps its secret if none is given, since no client can read the one it has.
        targets: Where webhooks may go.

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
    """Yield what would write to the directory of another query once all moves are made, with its place.

    The order of the moves does not count: one may take what another gives up.
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
                    hint="Choose another path; case does not count.",
                    path=("sink", "path"),
                ),
            )


def set_sinks(store: Store, moves: Iterable[tuple[SinkMove, int]], version: int | None, actor: str) -> None:
    """Set the sinks that change, in the transaction of the changes.

    Args:
        store: The catalog.
        moves: What changes, and the series that it is about.
        version: Plan version that the same changes make, in whose first batch the sinks begin; None makes
            them begin with the next batch.
        actor: Who changes them, for the log: the history is one of plan versions.
    """
    for move, series in moves:
        if move.sink is not None:
            sink_id = store.sinks.set(series, move.sink.sink, version)
            told = {"query": move.name, "sink": sink_id, "actor": actor, "plan_version": version}
            log.info("sink set", extra=told)


def _set(move: SinkMove) -> Sink | None:
    return None if move.sink is None else move.sink.sink


def _folded(sink: FilesSink) -> str:
    """A path as file systems see it that take letters without regard to case."""
    return sink.path.lower()
