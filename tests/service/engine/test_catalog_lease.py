"""One engine on a catalog at a time, whatever its directory, its machine and its clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errors import FencedOut
from catalog.store.lease import Holder
from catalog.store.store import Store
from service.config.data_dir import open_data_dir
from service.config.settings import Settings
from service.engine import catalog_lease
from service.engine.catalog_lease import CatalogLease, this_process
from service.engine.engine import Engine
from service.errors import CatalogInUse
from tests.catalog.examples import manifest

EXPIRY_S, RENEW_S = 0.6, 0.1


@contextmanager
def an_engine(directory: Path, name: str) -> Iterator[tuple[Store, CatalogLease, list[str]]]:
    """Open the catalog as one more engine does, which says why it gave up."""
    reasons: list[str] = []
    with Store.open(f"sqlite:///{directory / 'catalog.db'}") as store:
        lease = CatalogLease(store, directory / name, reasons.append, EXPIRY_S, RENEW_S, 2 * RENEW_S)
        yield store, lease, reasons
        lease.release()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every engine be on a machine of its own, none of which sees another's processes."""
    boots = (f"boot {n}" for n in range(100))

    def holder(directory: Path) -> Holder:
        return replace(this_process(directory), boot=next(boots))

    monkeypatch.setattr(catalog_lease, "this_process", holder)


def stopped(lease: CatalogLease) -> None:
    """Let an engine hang: it renews no more, and does not know."""
    lease._ended.set()


@pytest.mark.usefixtures("elsewhere")
def test_a_second_engine_on_another_machine_is_refused_as_long_as_the_first_renews(tmp_path: Path) -> None:
    with an_engine(tmp_path, "one") as (_, first, _), an_engine(tmp_path, "other") as (_, second, _):
        first.acquire()
        with pytest.raises(CatalogInUse, match="in use by another engine") as refused:
            second.acquire()
        assert str(tmp_path / "one") in str(refused.value)
        first.release()
        second.acquire()
        assert not second.unsynced


@pytest.mark.usefixtures("elsewhere")
def test_an_engine_that_hung_is_replaced_and_makes_nothing_visible(tmp_path: Path) -> None:
    with (
        an_engine(tmp_path, "one") as (first_store, first, reasons),
        an_engine(tmp_path, "other") as (second_store, second, _),
    ):
        first.acquire()
        epoch = first_store.epochs.begin("first")
        assert first_store.batches.commit(manifest(0, epoch))
        stopped(first)
        began_s = time.monotonic()
        second.acquire()
        assert time.monotonic() - began_s >= EXPIRY_S
        assert second.unsynced
        for write in (
            lambda: first_store.batches.commit(manifest(1, epoch)),
            lambda: first_store.settings.set("a", 1),
            lambda: first_store.epochs.begin("first again"),
        ):
            with pytest.raises(FencedOut, match="another engine has taken the catalog over"):
                write()
        assert second_store.batches.last() == 0
        assert second_store.batches.commit(manifest(1, second_store.epochs.begin("second")))
        assert reasons == []


@pytest.mark.usefixtures("elsewhere")
def test_of_two_that_wait_one_gets_it(tmp_path: Path) -> None:
    with an_engine(tmp_path, "dead") as (_, dead, _):
        dead.acquire()
        stopped(dead)
        got: list[str] = []

        def wait(name: str) -> None:
            with an_engine(tmp_path, name) as (_, lease, _):
                try:
                    lease.acquire()
                except CatalogInUse:
                    return
                got.append(name)
                done.wait(5)

        done = threading.Event()
        threads = [threading.Thread(target=wait, args=(name,)) for name in ("one", "other")]
        for thread in threads:
            thread.start()
        while all(thread.is_alive() for thread in threads):
            time.sleep(0.02)
        done.set()
        for thread in threads:
            thread.join()
        assert len(got) == 1


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("days", [-400, 400])
def test_a_wrong_clock_gives_nobody_a_lease_that_is_renewed(
    tmp_path: Path, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with an_engine(tmp_path, "one") as (_, first, _):
        first.acquire()
        now_s = time.time()
        monkeypatch.setattr(time, "time", lambda: now_s + days * 86_400)
        with an_engine(tmp_path, "other") as (_, second, _), pytest.raises(CatalogInUse):
            second.acquire()


def test_a_holder_that_this_machine_knows_to_be_dead_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with an_engine(tmp_path, "one") as (store, second, _):
        dead = replace(this_process(tmp_path), started_s=1.0)
        store.lease.take(dead, 3_600_000, None)
        second.acquire()
        assert not second.unsynced


def test_an_engine_that_cannot_renew_gives_up_before_others_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with an_engine(tmp_path, "one") as (_, lease, reasons):
        lease.acquire()
        with Store.open(f"sqlite:///{tmp_path / 'catalog.db'}") as other, other.transaction():
            # Another writer keeps the database for itself.
            lease.store._database._busy_timeout_s = 0.05
            monkeypatch.setattr(lease.store.lease, "renew", _down)
            deadline_s = time.monotonic() + 5
            while not reasons and time.monotonic() < deadline_s:
                time.sleep(0.01)
        assert reasons == ["the lease of the catalog was not renewed for 0.2 s"]


def _down(lease: object) -> None:
    from catalog.errors import CatalogDown

    raise CatalogDown("catalog cannot be used")


def test_two_directories_on_one_catalog_have_one_engine(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'catalog.db'}") as store:
        engines = [Engine(Settings(), open_data_dir(tmp_path / name), store) for name in ("one", "other")]
        engines[0].acquire()
        with pytest.raises(CatalogInUse):
            engines[1].acquire()
        engines[0].close()
        engines[1].acquire()
        engines[1].close()
