"""Errors that nobody foresaw do not end the threads that keep the engine at work."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from pathlib import Path

import pytest

from catalog.errors import CatalogDown
from catalog.store.lease import Lease
from catalog.store.store import Store
from planner.build.objective import Objective
from service.config.data_dir import DataDir, open_data_dir
from service.config.settings import load_settings
from service.engine import retry
from service.engine.engine import Engine
from service.engine.ownership.catalog_lease import CatalogLease
from service.inputs.reading.sample import CatalogRows
from service.inputs.sources.posted.http_log import EventLog
from service.planning.preview import Statistician
from service.planning.versions import Versions
from service.workspace import engine_part
from service.workspace.engine_part import EnginePart, EngineParts
from service.workspace.plans import WorkspacePlans

#: Limit of a wait that takes milliseconds.
LONG_S = 120.0


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    return open_data_dir(tmp_path)


@pytest.fixture
def url(data_dir: DataDir) -> str:
    return data_dir.catalog_url


def test_an_engine_that_fails_in_an_unforeseen_way_is_started_again_twice(
    data_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def launch(_: Engine) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Engine, "launch", launch)
    monkeypatch.setattr(retry, "RESTART_DELAY_S", 0.0)
    engine = Engine(load_settings(data_dir=data_dir.root), data_dir, store)
    states: list[tuple[str, bool]] = []

    def changed() -> None:
        status = engine.status()
        if (now := (status.state, status.error is not None)) not in states[-1:]:
            states.append(now)

    engine.changed = changed
    engine.acquire()
    with caplog.at_level(logging.ERROR, "service.engine.engine"):
        engine.start()
        assert engine._thread is not None
        engine._thread.join(LONG_S)
    status = engine.status()
    assert states == [("starting", False), *[("failed", True), ("starting", True)] * 2, ("failed", True)]
    engine.close()
    assert (status.state, status.failures, status.retry_at_us) == ("failed", 3, None)
    assert status.error == "RuntimeError: can't start new thread"
    assert [record.exc_info is not None for record in caplog.records] == [True] * 3


def test_a_stand_by_outlives_a_term_that_cannot_even_begin(
    data_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    again = threading.Event()

    def stand_by(_: Engine, stopping: threading.Event) -> bool:
        if len(begun) == 1:
            raise CatalogDown("the catalog cannot be used")
        again.set()
        stopping.wait(LONG_S)
        return False

    def parts() -> EngineParts:
        begun.append(len(begun))
        if len(begun) == 2:
            raise RuntimeError("can't start new thread")
        settings = load_settings(data_dir=data_dir.root)
        versions = Versions(store, Statistician(store, CatalogRows(store), buckets=1), Objective())
        return EngineParts(settings, data_dir, store, events, versions, WorkspacePlans(store, versions))

    monkeypatch.setattr(Engine, "stand_by", stand_by)
    monkeypatch.setattr(engine_part, "RETRY_S", 0.0)
    with closing(EventLog(data_dir.events_url(None))) as events:
        part = EnginePart(parts)
        part.start(stand_by=True)
        assert again.wait(LONG_S)
        part.stop()
    assert len(begun) == 3


def test_a_lease_is_renewed_again_after_an_unforeseen_error(
    data_dir: DataDir, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew, tries, renewed = store.lease.renew, [0], threading.Event()

    def fails_once(lease: Lease) -> None:
        tries[0] += 1
        if tries[0] == 1:
            raise RuntimeError("can't start new thread")
        renew(lease)
        renewed.set()

    given_up: list[str] = []
    lease = CatalogLease(store, data_dir.root, given_up.append, expiry_s=LONG_S, renew_s=0.01)
    monkeypatch.setattr(store.lease, "renew", fails_once)
    lease.acquire()
    assert renewed.wait(LONG_S)
    lease.release()
    assert given_up == []
