"""What the clients of a simulated service were told; the judge takes it for the truth."""

from __future__ import annotations

from dataclasses import dataclass, field

from catalog.values.batch import BatchManifest
from catalog.values.control import Heartbeat
from catalog.values.query import Query
from catalog.values.stream import Stream
from tests.operators.queries import Row


@dataclass(slots=True)
class Reading:
    """A client that follows the results of a series.

    Attributes:
        series: The series.
        place: Results before its cursor.
        got: Ids of the rows of each result, by its place among those of the series.
        ended: Whether the series was gone when it asked last.
    """

    series: int
    cursor: str | None = None
    place: int = 0
    got: dict[int, tuple[int, int]] = field(default_factory=dict)
    ended: bool = False


@dataclass(slots=True)
class Ledger:
    """What was acknowledged, and what was visible.

    Attributes:
        streams: Every stream that there ever was, by id.
        rows: Rows by stream id and position.
        ids: Their ids.
        heads: Offset after the last event, by stream id.
        queries: Queries that run, by the plan version that brought them.
        series: Series of each query, by its id.
        beats: Heartbeats by their number in the control log.
        controls: Number of the last record of the control log that was looked at.
        manifests: What each batch was committed with.
        readings: By series.
        sinks: Directory of the sink of a series.
        removed: Series that were removed.
    """

    streams: dict[int, Stream] = field(default_factory=dict)
    rows: dict[int, dict[int, Row]] = field(default_factory=dict)
    ids: dict[tuple[int, int], int] = field(default_factory=dict)
    heads: dict[int, int] = field(default_factory=dict)
    queries: dict[int, tuple[Query, ...]] = field(default_factory=dict)
    series: dict[int, int] = field(default_factory=dict)
    beats: dict[int, Heartbeat] = field(default_factory=dict)
    controls: int = 0
    manifests: dict[int, BatchManifest] = field(default_factory=dict)
    readings: dict[int, Reading] = field(default_factory=dict)
    sinks: dict[int, str] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
