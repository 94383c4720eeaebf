"""Heartbeats: an idle stream gets them, one whose rows wait does not, since they would make those late."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from catalog.store.store import Store
from catalog.values.batch import StreamCounters
from catalog.values.stream import Stream
from service.inputs.inputs import Inputs
from service.inputs.sources.http_log import EventLog
from service.workspace.watcher import Watcher
from tests.catalog.examples import commit, manifest
from tests.service.inputs.streams import stream_of

SECOND_US = 1_000_000


def heartbeats(store: Store) -> list[int]:
    return [record.heartbeat.stream_id for record in store.control_log.records(0) if record.heartbeat]


def read_up_to(store: Store, batch: int, a: Stream, b: Stream, positions: tuple[int, int]) -> None:
    """Commit a batch after which B's watermark is ahead of A's."""
    streams = (StreamCounters(a.id, 1, 0, 0, 10, 10), StreamCounters(b.id, 1, 0, 0, 50, 50))
    end = {str(a.id): positions[0], str(b.id): positions[1], "batch": batch + 1, "control": 0}
    made = manifest(batch, store.epochs.begin("test"))
    assert commit(store, replace(made, streams=streams, input_end=tuple(sorted(end.items()))))


def test_rows_that_wait_are_not_overtaken_by_a_heartbeat(store: Store, tmp_path: Path) -> None:
    now_us = [0]
    with closing(EventLog(tmp_path / "events.db")) as events:
        a, b = (
            store.streams.add(replace(stream_of(name=name, stream_id=0), idle_timeout_us=SECOND_US))
            for name in ("A", "B")
        )
        watcher = Watcher(store, Inputs(store, events), 1.0, now_us=lambda: now_us[0])
        for stream in (a, b):
            events.append(stream, [{"ts": 1, "k": 1}])
        read_up_to(store, 0, a, b, (1, 1))
        events.append(a, [{"ts": 2, "k": 2}])  # waits: the engine is paused, or the disk nearly full
        for _ in range(5):
            watcher.run_once()
            now_us[0] += 2 * SECOND_US
        assert heartbeats(store) == []
        read_up_to(store, 1, a, b, (2, 1))
        watcher.run_once()  # it is idle from here on
        assert heartbeats(store) == []
        now_us[0] += 2 * SECOND_US
        watcher.run_once()
        assert heartbeats(store) == [a.id]
