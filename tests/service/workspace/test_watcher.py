"""Heartbeats: an idle stream gets them, one whose rows wait does not, since they would make those late."""

from __future__ import annotations

import itertools
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.store.store import Store
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.stream import FilesSource, Stream
from service.faults import Faults
from service.inputs.inputs import Inputs
from service.inputs.sources.listed.files import list_files
from service.inputs.sources.posted.http_log import EventLog
from service.workspace.watcher import Watcher
from tests.catalog.examples import commit, manifest
from tests.epochs import begin_epoch
from tests.service.inputs.streams import stream_of

SECOND_US = 1_000_000


def heartbeats(store: Store) -> list[int]:
    return [record.heartbeat.stream_id for record in store.control_log.records(0) if record.heartbeat]


def read_up_to(store: Store, batch: int, a: Stream, b: Stream, positions: tuple[int, int]) -> None:
    """Commit a batch after which B's watermark is ahead of A's."""
    streams = (StreamCounters(a.id, 1, 0, 0, 10, 10), StreamCounters(b.id, 1, 0, 0, 50, 50))
    end = {str(a.id): positions[0], str(b.id): positions[1], "batch": batch + 1, "control": 0}
    made = manifest(batch, begin_epoch(store))
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


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), KeyError("value")])
def test_a_stream_that_cannot_be_listed_gets_no_heartbeat_and_stops_no_other(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    now_us, ticked = [0], list[int]()
    for name in ("A", "B"):
        (tmp_path / name).mkdir()
    a, b = (
        store.streams.add(
            replace(
                stream_of(FilesSource("csv", str(tmp_path / name), settle_us=0), name=name),
                idle_timeout_us=SECOND_US,
            )
        )
        for name in ("A", "B")
    )

    def listing(store: Store, stream: Stream, **options: Any) -> int:
        if stream.name == "A" and failing:
            raise error
        return list_files(store, stream, **options)

    failing = True
    monkeypatch.setattr("service.workspace.watcher.list_files", listing)
    faults = Faults(lambda: now_us[0] / 1e6)
    watcher = Watcher(
        store, Inputs(store, None), 0.0, now_us=lambda: now_us[0], ticks=(ticked.append,), faults=faults
    )
    read_up_to(store, 0, a, b, (0, 0))
    (tmp_path / "B" / "1.csv").write_text("ts,k,v\n2024-05-01,1,1\n")
    for _ in range(5):
        watcher.run_once()
        now_us[0] += 2 * SECOND_US
    assert store.source_files.count(b.id) == 1
    assert len(ticked) == 5
    assert heartbeats(store) == []
    told = [str(fault) for fault in faults.failing()]
    assert told == ([] if isinstance(error, OSError) else ["listing of A: KeyError: 'value'"])

    failing = False
    now_us[0] += 60 * SECOND_US
    for _ in range(3):
        watcher.run_once()
        now_us[0] += 2 * SECOND_US
    assert faults.failing() == ()
    assert set(heartbeats(store)) == {a.id}


def test_the_threads_go_on_after_an_unforeseen_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    again, tries = threading.Event(), [0]

    def fails_once() -> tuple[Stream, ...]:
        tries[0] += 1
        if tries[0] == 1:
            raise RuntimeError("can't start new thread")
        again.set()
        return ()

    monkeypatch.setattr(store.streams, "all", fails_once)
    faults = Faults(itertools.count(0, 10).__next__)
    watcher = Watcher(store, Inputs(store, None), 0.01, faults=faults)
    watcher.start()
    assert again.wait(60)
    watcher.stop()
    assert faults.counts()["watcher"] == 1
    assert faults.failing() == ()


def test_a_directory_of_directories_is_logged_once(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    store.streams.add(stream_of(FilesSource("csv", str(tmp_path / "in"), settle_us=0), name="A"))
    with closing(EventLog(tmp_path / "events.db")) as events:
        watcher = Watcher(store, Inputs(store, events), 1.0)
        watcher.run_once()
        (tmp_path / "in" / "day=1").mkdir()
        for _ in range(3):
            watcher.run_once()
    empty, nested = caplog.messages
    assert empty == f'stream "A" has no files: "{tmp_path}/in" holds none'
    assert nested.endswith(
        f'holds none, but 1 directory; write path: "{tmp_path}/in/**/*" to read the files in it'
    )
