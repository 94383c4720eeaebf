"""One engine on a catalog at a time, whatever its directory, its machine and its clock."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import FencedOut, SluiceError
from catalog.store.lease import Holder
from catalog.store.store import Store
from service.config.data_dir import open_data_dir
from service.config.settings import Settings
from service.engine.engine import Engine
from service.engine.ownership import catalog_lease
from service.engine.ownership.catalog_lease import CatalogLease, this_process
from service.errors import CatalogInUse
from tests.catalog.examples import manifest
from tests.empty_catalog import prepared
from tests.waiting import until

EXPIRY_S, RENEW_S, GIVE_UP_S = 1.0, 0.1, 0.5
#: Of a lease that does not end while its engine lives, on a busy machine, too.
LASTING_S, LASTING_GIVE_UP_S = 12.0, 10.0


@contextmanager
def an_engine(
    url: str,
    directory: Path,
    name: str,
    *,
    expiry_s: float = LASTING_S,
    give_up_s: float = LASTING_GIVE_UP_S,
) -> Iterator[tuple[Store, CatalogLease, list[str]]]:
    """Open the catalog as one more engine does, which says why it gave up."""
    reasons: list[str] = []
    with Store.open(prepared(url)) as store:
        lease = CatalogLease(store, directory / name, reasons.append, expiry_s, RENEW_S, give_up_s)
        yield store, lease, reasons
        lease.release()


def a_hasty_engine(url: str, directory: Path, name: str) -> Any:
    """Return an engine whose lease ends soon after it is not renewed."""
    return an_engine(url, directory, name, expiry_s=EXPIRY_S, give_up_s=GIVE_UP_S)


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
    for thread in lease._threads:
        thread.join()


@pytest.mark.usefixtures("elsewhere")
def test_a_second_engine_on_another_machine_is_refused_as_long_as_the_first_renews(
    either_url: str, tmp_path: Path
) -> None:
    with (
        an_engine(either_url, tmp_path, "one") as (_, first, _),
        an_engine(either_url, tmp_path, "other") as (_, second, _),
    ):
        first.acquire()
        with pytest.raises(CatalogInUse, match="in use by another engine") as refused:
            second.acquire()
        assert str(tmp_path / "one") in str(refused.value)
        first.release()
        second.acquire()
        assert not second.unsynced


@pytest.mark.usefixtures("elsewhere")
def test_an_engine_that_hung_is_replaced_and_makes_nothing_visible(either_url: str, tmp_path: Path) -> None:
    with (
        a_hasty_engine(either_url, tmp_path, "one") as (first_store, first, reasons),
        an_engine(either_url, tmp_path, "other") as (second_store, second, _),
    ):
        first.acquire()
        epoch = first.begin_epoch()
        assert first_store.batches.commit(manifest(0, epoch))
        stopped(first)
        began_s = time.monotonic()
        second.acquire()
        assert time.monotonic() - began_s >= EXPIRY_S
        assert second.unsynced
        for write in (
            lambda: first_store.batches.commit(manifest(1, epoch)),
            lambda: first_store.settings.set("a", 1),
            first.begin_epoch,
        ):
            with pytest.raises(FencedOut, match="another engine has taken the catalog over"):
                write()
        assert second_store.batches.last() == 0
        assert second_store.batches.commit(manifest(1, second.begin_epoch()))
        assert reasons == []


@pytest.mark.usefixtures("elsewhere")
def test_of_two_that_wait_one_gets_it(either_url: str, tmp_path: Path) -> None:
    with a_hasty_engine(either_url, tmp_path, "dead") as (_, dead, _):
        dead.acquire()
        stopped(dead)
        got: list[str] = []

        def wait(name: str) -> None:
            with an_engine(either_url, tmp_path, name) as (_, lease, _):
                try:
                    lease.acquire()
                except CatalogInUse:
                    return
                got.append(name)
                done.wait(120)

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
    either_url: str, tmp_path: Path, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with an_engine(either_url, tmp_path, "one") as (_, first, _):
        first.acquire()
        now_s = time.time()
        monkeypatch.setattr(time, "time", lambda: now_s + days * 86_400)
        with an_engine(either_url, tmp_path, "other") as (_, second, _), pytest.raises(CatalogInUse):
            second.acquire()


def test_a_holder_that_this_machine_knows_to_be_dead_is_not_waited_for(
    either_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with an_engine(either_url, tmp_path, "one") as (store, second, _):
        dead = replace(this_process(tmp_path), started_s=1.0)
        store.lease.take(dead, 3_600_000, None)
        second.acquire()
        assert not second.unsynced


def test_an_engine_that_cannot_renew_gives_up_before_others_begin(
    either_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_hasty_engine(either_url, tmp_path, "one") as (_, lease, reasons):
        lease.acquire()
        with Store.open(prepared(either_url)) as other, other.transaction():
            # Another writer keeps the database for itself.
            lease.store._database._busy_timeout_s = 0.05
            monkeypatch.setattr(lease.store.lease, "renew", _down)
            until(lambda: reasons)
        assert reasons == ["the lease of the catalog was not renewed for 0.5 s"]


@pytest.mark.usefixtures("elsewhere")
def test_an_engine_whose_own_transaction_hangs_keeps_its_lease(sqlite_url: str, tmp_path: Path) -> None:
    with (
        a_hasty_engine(sqlite_url, tmp_path, "one") as (store, lease, reasons),
        an_engine(sqlite_url, tmp_path, "two") as (_, other, _),
    ):
        lease.acquire()
        store._database._busy_timeout_s = 0.05
        others: list[Exception] = []
        waiting = threading.Thread(target=lambda: others.append(_error_of(other.acquire)))
        with store.transaction():
            waiting.start()
            time.sleep(2 * lease.give_up_s)
        waiting.join()
        assert [type(error) for error in others] == [CatalogInUse]
        assert not reasons


def _error_of(action: Callable[[], None]) -> Exception:
    with pytest.raises(SluiceError) as found:
        action()
    return found.value


def _down(lease: object) -> None:
    from catalog.errors import CatalogDown

    raise CatalogDown("catalog cannot be used")


def test_two_directories_on_one_catalog_have_one_engine(either_url: str, tmp_path: Path) -> None:
    with Store.open(prepared(either_url)) as store:
        engines = [Engine(Settings(), open_data_dir(tmp_path / name), store) for name in ("one", "other")]
        engines[0].acquire()
        with pytest.raises(CatalogInUse):
            engines[1].acquire()
        engines[0].close()
        engines[1].acquire()
        engines[1].close()


def test_a_stand_by_waits_and_is_next(url: str, tmp_path: Path) -> None:
    """Three engines one after the other: given back, dead, given back."""
    taken: list[str] = []
    stopping = threading.Event()

    def wait(name: str) -> None:
        with an_engine(url, tmp_path, name) as (_, lease, _):
            if lease.stand_by(stopping):
                taken.append(name)
                stopping.wait(0.1)

    with an_engine(url, tmp_path, "first") as (store, first, _):
        first.acquire()
        threads = [threading.Thread(target=wait, args=(name,)) for name in ("one", "other")]
        for thread in threads:
            thread.start()
        time.sleep(EXPIRY_S)
        assert taken == [], "the first one renews"
        first.release()
        for thread in threads:
            thread.join(120)
        found = store.lease.current()
    assert sorted(taken) == ["one", "other"]
    assert found is not None
    assert (found.epoch, found.token) == (3, "")


def test_a_stand_by_that_is_told_to_stop_stops(either_url: str, tmp_path: Path) -> None:
    stopping = threading.Event()
    with (
        an_engine(either_url, tmp_path, "one") as (_, first, _),
        an_engine(either_url, tmp_path, "other") as (_, second, _),
    ):
        first.acquire()
        threading.Timer(0.2, stopping.set).start()
        assert not second.stand_by(stopping)


_HUNG = """
import sys, threading
from pathlib import Path
from catalog.store.store import Store
from service.engine.ownership.catalog_lease import CatalogLease
store = Store.open(sys.argv[1])
CatalogLease(store, Path("/data"), print, float(sys.argv[2]), 0.1, 60.0).acquire()
print("held", flush=True)
with store.transaction():
    print("writing", flush=True)
    threading.Event().wait()
"""


def test_a_holder_that_hangs_on_this_machine_is_killed_and_replaced(either_url: str, tmp_path: Path) -> None:
    """It hangs in a write transaction, which keeps everybody else from writing for as long as it lives."""
    with (
        subprocess.Popen(
            [sys.executable, "-c", _HUNG, either_url, str(EXPIRY_S)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[4],
        ) as hung,
        ExitStack() as ending,
        an_engine(either_url, tmp_path, "next") as (_, lease, _),
    ):
        ending.callback(hung.kill)
        assert hung.stdout is not None
        assert [hung.stdout.readline() for _ in range(2)] == [b"held\n", b"writing\n"]
        hung.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        assert lease.stand_by(threading.Event())
        assert time.monotonic() - began_s >= EXPIRY_S
        assert lease.former is not None
        assert lease.former.pid == hung.pid
        assert hung.wait(120) == -signal.SIGKILL


def test_a_renewal_that_hangs_does_not_keep_an_engine_from_giving_up(
    either_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the network to the server was cut, which tells so after ten seconds."""
    cut = threading.Event()
    with a_hasty_engine(either_url, tmp_path, "one") as (_, lease, reasons):
        lease.acquire()
        monkeypatch.setattr(lease.store.lease, "renew", lambda _: cut.wait())
        until(lambda: reasons)
        assert reasons == ["the lease of the catalog was not renewed for 0.5 s"]
        cut.set()
