"""The engine's lease of the catalog: taken at the start, renewed by a thread, given back at the end.

    holder       renews every 5 s      ends its JVM once it could not for 10 s
    challenger   takes the lease after 15 s without a renewal, by its own monotonic clock

No clock is compared with another one's. Every write transaction of the holder's process checks the lease
(``catalog.store.lease``), so that a holder that was stopped for a minute and goes on makes nothing visible. A
challenger waits only where the holder may live: not where it gave the lease back, or was a process of this
machine that has gone.
"""

from __future__ import annotations

import logging
import os
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
from service.errors import CatalogInUse

log = logging.getLogger(__name__)

#: Without a renewal for so long the lease is over for others.
EXPIRY_S = 15.0
#: Between two renewals; two may fail before the lease is over.
RENEW_S = 5.0
#: Without a renewal for so long the holder ends its JVM: well before anybody else may begin.
GIVE_UP_S = 10.0
#: How often a challenger looks.
_LOOK_S = 0.5


def this_process(directory: Path) -> Holder:
    """Return this process as the holder of a lease."""
    pid = os.getpid()
    return Holder(
        host=socket.gethostname(),
        boot=_read(Path("/proc/sys/kernel/random/boot_id")),
        processes=_process_name_space(),
        pid=pid,
        started_s=psutil.Process(pid).create_time(),
        directory=str(directory),
    )


@dataclass(slots=True)
class CatalogLease:
    """The lease of one engine.

    Attributes:
        store: Catalog.
        directory: Data directory, for people.
        lost: Called from the renewing thread when the lease is lost or could not be renewed in time.
        expiry_s: See ``EXPIRY_S``.
        renew_s: See ``RENEW_S``.
        give_up_s: See ``GIVE_UP_S``.
        unsynced: Whether the holder before went with its machine: what it had not synced may be gone.
    """

    store: Store
    directory: Path
    lost: Callable[[str], None]
    expiry_s: float = EXPIRY_S
    renew_s: float = RENEW_S
    give_up_s: float = GIVE_UP_S
    unsynced: bool = field(default=False, init=False)
    _lease: Lease | None = field(default=None, init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def acquire(self) -> None:
        """Take the lease, after the holder's expiry where that may still live.

        Raises:
            CatalogInUse: An engine renews it.
            CatalogDown: The catalog cannot be used.
        """
        me, expiry_ms = this_process(self.directory), int(self.expiry_s * 1000)
        over = self.store.lease.current()
        if over is not None and over.token and not _is_dead(over.holder, me):
            over = self._wait_for_expiry(over)
        self.unsynced = over is not None and bool(over.token) and over.holder.boot != me.boot
        lease = self.store.lease.take(me, expiry_ms, over)
        if lease is None:
            current = self.store.lease.current()
            raise _in_use(current.holder if current is not None else me)
        self._lease = lease
        self._ended.clear()
        self._thread = threading.Thread(target=self._renew, args=(lease,), name="lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Give the lease back."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        lease, self._lease = self._lease, None
        if lease is not None:
            # A catalog that is down keeps it until it expires.
            with suppress(CatalogDown):
                self.store.lease.release(lease)

    def _wait_for_expiry(self, seen: Lease) -> Lease:
        """Wait until nobody has renewed the lease for its whole expiry, by this machine's monotonic clock."""
        log.warning(
            "catalog may be in use: waiting for its lease to expire",
            extra={"host": seen.holder.host, "pid": seen.holder.pid, "expiry_s": seen.expiry_ms / 1000},
        )
        until_s = time.monotonic() + seen.expiry_ms / 1000
        while time.monotonic() < until_s:
            time.sleep(_LOOK_S if self.expiry_s >= EXPIRY_S else self.expiry_s / 10)
            found = self.store.lease.current()
            if found is not None and not found.token:
                return found
            if found != seen:
                raise _in_use(found.holder if found is not None else seen.holder)
        return seen

    def _renew(self, lease: Lease) -> None:
        renewed_s = time.monotonic()
        told = False
        while not self._ended.wait(self.renew_s):
            try:
                began_s = time.monotonic()
                self.store.lease.renew(lease)
                renewed_s, told = began_s, False
            except FencedOut as error:
                log.error("lease of the catalog lost: %s", error)
                self.lost(error.primary)
                return
            except CatalogDown as error:
                log.warning("lease of the catalog not renewed: %s", error)
                if time.monotonic() - renewed_s > self.give_up_s and not told:
                    told = True
                    self.lost(f"the lease of the catalog was not renewed for {self.give_up_s:g} s")


def _in_use(holder: Holder) -> CatalogInUse:
    return CatalogInUse(
        "the catalog is in use by another engine",
        detail=f"Process {holder.pid} on {holder.host} renews its lease, for {holder.directory}.",
        hint="Stop that process, or give this one a catalog of its own.",
    )


def _is_dead(holder: Holder, me: Holder) -> bool:
    """Tell whether a holder has gone for sure: it was a process that this one would see."""
    if not holder.boot or (holder.boot, holder.processes) != (me.boot, me.processes):
        return False
    try:
        process = psutil.Process(holder.pid)
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - holder.started_s) > 1.0
    except psutil.NoSuchProcess:
        return True


def _process_name_space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # not Linux
        return ""
