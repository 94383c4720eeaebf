"""The engine's lease of the catalog: taken at a start or from another engine, renewed, and released.

    holder       renews every 2 s      ends its JVM if it could not renew for 5 s
    challenger   takes the lease after 8 s without a renewal, by its own monotonic clock

Clocks of different machines are never compared. Every write transaction of the engine renews the lease, and
is refused if another engine has it (``catalog.store.lease``). A holder that was suspended for a minute
therefore cannot make anything visible when it continues. A challenger waits only if the holder may be alive.
It does not wait if the holder has released the lease, or was a process of this machine that has ended. A
hanging holder on this machine is killed before its lease is taken.

A stand-by that must take over within 15 s thus has 6.5 s left to begin its first batch. Its JVM runs already.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from catalog.errors import CatalogDown, FencedOut
from catalog.store.lease import Holder, Lease
from catalog.store.store import Store
from service.commit.sync import boot_id
from service.errors import CatalogInUse
from service.faults import Faults

log = logging.getLogger(__name__)

#: Seconds without a renewal after which others may take the lease.
EXPIRY_S = 8.0
#: Seconds between two renewals. If one renewal fails, the holder does not give up yet; if three fail in a
#: row, the lease has not expired yet.
RENEW_S = 2.0
#: Seconds without a renewal after which the holder ends its JVM, well before another engine may take the
#: lease.
GIVE_UP_S = 5.0
#: How many times per ``EXPIRY_S`` the lease is checked by a challenger, or by the thread that watches a
#: holder's renewals.
_LOOKS = 16
#: Seconds that a killed holder may take to end.
_KILL_TIMEOUT_S = 5.0
_KILL_LOOK_S = 0.02


def this_process(directory: Path) -> Holder:
    """Return the description of this process as the holder of a lease."""
    pid = os.getpid()
    return Holder(
        host=socket.gethostname(),
        boot=boot_id(),
        processes=_process_name_space(),
        pid=pid,
        started_s=psutil.Process(pid).create_time(),
        directory=str(directory),
    )


@dataclass(slots=True)
class CatalogLease:
    """The lease of the catalog, as one engine takes, renews and releases it.

    Attributes:
        store: Catalog; the engine must write through this object.
        directory: Data directory, shown in error texts.
        lost: Called from a background thread when the lease is lost or could not be renewed in time.
        expiry_s: Seconds without a renewal after which others may take the lease.
        renew_s: Seconds between two renewals.
        give_up_s: Seconds without a renewal after which the holder calls ``lost``.
        faults: Records unexpected errors.
        unsynced: Whether the previous holder's machine may have gone down, so that writes that were not
            synced may be lost.
        former: The previous holder if it did not release the lease, otherwise None.
        fenced: Set once another engine has the lease.
    """

    store: Store
    directory: Path
    lost: Callable[[str], None]
    expiry_s: float = EXPIRY_S
    renew_s: float = RENEW_S
    give_up_s: float = GIVE_UP_S
    faults: Faults = field(default_factory=Faults)
    unsynced: bool = field(default=False, init=False)
    former: Holder | None = field(default=None, init=False)
    fenced: threading.Event = field(default_factory=threading.Event, init=False)
    _lease: Lease | None = field(default=None, init=False)
    _renewed_s: float = field(default=0.0, init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    _threads: tuple[threading.Thread, ...] = field(default=(), init=False)

    @property
    def token(self) -> str:
        """Token of the lease, or an empty text without a lease."""
        return "" if self._lease is None else self._lease.token

    @property
    def epoch(self) -> int:
        """Epoch at which the lease was taken, or 0 without a lease."""
        return 0 if self._lease is None else self._lease.epoch

    def acquire(self) -> None:
        """Take the lease. If its holder may be alive, wait first until the lease has expired.

        Raises:
            CatalogInUse: Another engine renews the lease.
            CatalogDown: The catalog cannot be used.
        """
        if not self._take(stopping=None):
            current = self.store.lease.current()
            raise _in_use(current.holder if current is not None else this_process(self.directory))

    def stand_by(self, stopping: threading.Event) -> bool:
        """Wait without limit until the lease can be taken, and take it; return False if stopped before."""
        while not stopping.is_set():
            try:
                if self._take(stopping):
                    return True
            except CatalogDown as error:
                log.warning("lease of the catalog cannot be read: %s", error)
                stopping.wait(self.renew_s)
        return False

    def check(self) -> None:
        """Renew the lease, or fail if it is lost, before work that no write transaction protects.

        Raises:
            FencedOut: Another engine has the lease.
        """
        if self._lease is not None:
            self._renew(self._lease)

    def begin_epoch(self) -> int:
        """Begin a new epoch for a start of the job, so that earlier jobs can commit nothing more.

        Raises:
            FencedOut: Another engine has the lease.
        """
        assert self._lease is not None, "a job is started only under the lease"
        return self.store.lease.begin_epoch(self._lease)

    def release(self) -> None:
        """Release the lease."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._threads = ()
        lease, self._lease = self._lease, None
        if lease is not None:
            # If the catalog is down, the lease stays until it expires.
            with suppress(CatalogDown):
                self.store.lease.release(lease)

    def _take(self, stopping: threading.Event | None) -> bool:
        """Take the lease if it is free, or once it has expired; return whether it was taken.

        Args:
            stopping: Event that ends the wait of a stand-by, which waits on if the holder renews the lease.
                With None, a renewal by the holder raises CatalogInUse.
        """
        me, expiry_ms = this_process(self.directory), int(self.expiry_s * 1000)
        over = self.store.lease.current()
        if over is not None and over.token and not _is_dead(over.holder, me):
            expired = self._expired(over, stopping)
            if expired is None:
                return False
            over = expired
        hung = over is not None and bool(over.token)
        self.unsynced = over is not None and hung and over.holder.boot != me.boot
        self.former = over.holder if over is not None and hung else None
        if self.former is not None:
            _end_hung(self.former, me)
        lease = self.store.lease.take(me, expiry_ms, over)
        if lease is None:
            return False
        self._lease, self._renewed_s = lease, time.monotonic()
        self._ended.clear()
        self.fenced.clear()
        self._threads = (
            threading.Thread(target=self._renewing, args=(lease,), name="lease", daemon=True),
            threading.Thread(target=self._watching, name="lease-watch", daemon=True),
        )
        for thread in self._threads:
            thread.start()
        return True

    def _expired(self, seen: Lease, stopping: threading.Event | None) -> Lease | None:
        """Wait until the lease was not renewed for its full duration, by this machine's monotonic clock.

        Returns:
            The expired or released lease, or None if a stand-by was stopped or there is no lease now.

        Raises:
            CatalogInUse: Another process renews the lease, and this is not a stand-by.
        """
        if stopping is None:
            log.warning(
                "catalog may be in use: waiting for its lease to expire",
                extra={"host": seen.holder.host, "pid": seen.holder.pid, "expiry_s": seen.expiry_ms / 1000},
            )
        me = this_process(self.directory)
        pause = threading.Event() if stopping is None else stopping
        looks = 0
        while looks < _LOOKS:
            # Checks are counted instead of seconds, so that a challenger that gets little CPU waits longer.
            if pause.wait(seen.expiry_ms / 1000 / _LOOKS):
                return None
            found, looks = self.store.lease.current(), looks + 1
            if found is not None and (not found.token or _is_dead(found.holder, me)):
                return found
            if found != seen:
                if stopping is None:
                    raise _in_use(found.holder if found is not None else seen.holder)
                if found is None:
                    return None
                seen, looks = found, 0
        return seen

    def _renew(self, lease: Lease) -> None:
        began_s = time.monotonic()
        try:
            self.store.lease.renew(lease)
        except FencedOut:
            self.fenced.set()
            raise
        self._renewed_s = began_s

    def _renewing(self, lease: Lease) -> None:
        while not self._ended.wait(self.renew_s):
            try:
                self._renew(lease)
            except FencedOut as error:
                log.error("lease of the catalog lost: %s", error)
                self.lost(error.primary)
                return
            except CatalogDown as error:
                log.warning("lease of the catalog not renewed: %s", error)
            except Exception as error:
                # The next renewal may succeed. If none does in time, the watching thread gives up.
                self.faults.failed("lease", error)
            else:
                self.faults.works("lease")

    def _watching(self) -> None:
        """Give up in time even if a renewal hangs, because a broken network gives no error for 10 s.

        Time in which this process was suspended does not count, because the lease is rarely lost meanwhile
        and the next renewal detects a loss.
        """
        step_s = min(self.expiry_s / _LOOKS, self.renew_s)
        seen_s, waited_s = self._renewed_s, 0.0
        while not self._ended.wait(step_s) and not self.fenced.is_set():
            # While a write transaction of this engine is open, no other engine can take the lease, and the
            # end of the transaction renews the lease.
            if self._renewed_s != seen_s or self.store.keeps_others_out:
                seen_s, waited_s = self._renewed_s, 0.0
            waited_s += step_s
            if self.give_up_s < waited_s <= self.give_up_s + step_s:
                try:
                    self.lost(f"the lease of the catalog was not renewed for {self.give_up_s:g} s")
                except Exception as error:
                    self.faults.failed("lease", error)


def _in_use(holder: Holder) -> CatalogInUse:
    return CatalogInUse(
        "the catalog is in use by another engine",
        detail=f"Process {holder.pid} on {holder.host} renews its lease, for {holder.directory}.",
        hint="Stop that process, or give this service a catalog of its own.",
    )


def _is_dead(holder: Holder, me: Holder) -> bool:
    """Return whether the process of a holder has certainly ended; False if it may run elsewhere."""
    if not holder.boot or (holder.boot, holder.processes) != (me.boot, me.processes):
        return False
    try:
        process = psutil.Process(holder.pid)
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - holder.started_s) > 1.0
    except psutil.NoSuchProcess:
        return True


def _end_hung(holder: Holder, me: Holder) -> None:
    """Kill a holder on this machine that has not renewed its lease in time, so that it never continues.

    A holder on another machine cannot be killed, but its writes are refused when it continues.
    """
    here = (holder.boot, holder.processes) == (me.boot, me.processes)
    if not here or holder.pid == me.pid or _is_dead(holder, me):
        return
    log.error("engine killed: it did not renew its lease", extra={"pid": holder.pid})
    with suppress(ProcessLookupError, PermissionError):
        os.kill(holder.pid, signal.SIGKILL)
    until_s = time.monotonic() + _KILL_TIMEOUT_S
    # A killed process may remain as a zombie if its parent does not reap it. That is enough, because a zombie
    # holds no locks.
    while not _is_dead(holder, me):
        if time.monotonic() > until_s:
            log.error("engine that did not renew its lease could not be killed", extra={"pid": holder.pid})
            return
        time.sleep(_KILL_LOOK_S)


def _process_name_space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        return ""
