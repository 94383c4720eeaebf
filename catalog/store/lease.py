"""The lease of the catalog: held by one engine, and renewed in each of its write transactions.

Its epoch is the fencing epoch of the catalog. It rises whenever the lease is taken and whenever the holder
starts its job, and a batch of an earlier epoch cannot be committed.

    engine A   take ── renew ── renew ── (dead)
    engine B              look ........ look: no renewal since ── take     A's next write: FencedOut

A challenger, which is an engine that wants to take the lease, names the lease that it has seen. It fails if
that lease was renewed or taken meanwhile, so the clocks of holder and challenger need not agree. A hanging
transaction, such as on a disk that syncs for half a minute, also counts as a renewal, because no other
process can write before it ends.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sqlalchemy import Connection, Update, bindparam, delete, insert, select, update

from catalog.documents.codec import decode, encode
from catalog.errors import NEWER_JOB, FencedOut
from catalog.store.database import tables
from catalog.store.database.repository import Repository

_l = tables.lease.c
_LEASE = select(_l.epoch, _l.token, _l.holder, _l.expiry_ms, _l.renewals)
_EPOCH = select(_l.epoch)
_RENEW = update(tables.lease).where(_l.token == bindparam("held")).values(renewals=_l.renewals + 1)
_BEGIN_EPOCH = _RENEW.values(epoch=_l.epoch + 1)


@dataclass(frozen=True, slots=True)
class Holder:
    """Identity of an engine's process, by which other processes can tell whether it still runs.

    Attributes:
        host: Name of the machine, for people.
        boot: Id of the machine's last boot; processes with equal ``boot`` and ``processes`` see each other.
        processes: Id of the PID namespace that ``pid`` belongs to.
        pid: Process id.
        started_s: When the process started, s since 1970 by its machine's clock. The start time only
            distinguishes the process from a later process with the same id on the same machine.
        directory: Data directory of the engine, for people.
    """

    host: str
    boot: str
    processes: str
    pid: int
    started_s: float
    directory: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as it is stored in the catalog.

    The lease contains no wall-clock times. It ends when its holder gives it back, when the holder is known to
    be dead, or when a challenger has seen no renewal for ``expiry_ms`` on its own monotonic clock.

    Attributes:
        epoch: Fencing epoch, 1, 2, ...; it never falls, even if another engine takes the lease.
        token: Random text; the process that knows it holds the lease. The token is empty once the lease was
            given back.
        holder: Process of the engine that holds the lease.
        expiry_ms: Time without renewal after which another engine may take the lease, ms.
        renewals: How often this holder has renewed the lease.
    """

    epoch: int
    token: str
    holder: Holder
    expiry_ms: int
    renewals: int


class LeaseRepository(Repository):
    """The one lease of the catalog."""

    def current(self) -> Lease | None:
        """Return the stored lease, or None if no engine has ever taken it."""
        with self._database.read() as connection:
            return _lease(connection)

    def epoch(self) -> int:
        """Return the fencing epoch, or 0 if no engine has ever taken the lease."""
        with self._database.read() as connection:
            return _epoch(connection)

    def take(self, holder: Holder, expiry_ms: int, over: Lease | None) -> Lease | None:
        """Take the lease under a new epoch.

        From then on, every write transaction of this process renews the lease, or fails if the lease is lost.

        Args:
            holder: This process.
            expiry_ms: Time without renewal after which another engine may take the lease, ms.
            over: The lease that has ended, as ``current`` returned it.

        Returns:
            The new lease, or None if the stored lease no longer equals ``over``.
        """
        self._database.guard(None)
        with self._database.write() as connection:
            if _lease(connection) != over:
                return None
            epoch = 1 if over is None else over.epoch + 1
            lease = Lease(epoch, secrets.token_hex(16), holder, expiry_ms, 0)
            connection.execute(delete(tables.lease))
            connection.execute(
                insert(tables.lease).values(
                    id=1,
                    epoch=lease.epoch,
                    token=lease.token,
                    holder=encode(holder).decode(),
                    expiry_ms=lease.expiry_ms,
                    renewals=0,
                )
            )
        self._database.guard(lambda connection: _renew(connection, lease))
        return lease

    def renew(self, lease: Lease) -> None:
        """Renew the lease.

        Raises:
            FencedOut: Another engine has taken the lease.
        """
        with self._database.write() as connection:
            _renew(connection, lease)

    def begin_epoch(self, lease: Lease) -> int:
        """Renew the lease under a new epoch, which fences out earlier jobs of its holder.

        Returns:
            The new epoch.

        Raises:
            FencedOut: Another engine has taken the lease.
        """
        with self._database.write() as connection:
            _renew(connection, lease, _BEGIN_EPOCH)
            return _epoch(connection)

    def release(self, lease: Lease) -> None:
        """Give the lease back; nothing changes if another engine holds it."""
        self._database.guard(None)
        with self._database.write() as connection:
            connection.execute(update(tables.lease).where(_l.token == lease.token).values(token=""))


def check_epoch(connection: Connection, epoch: int, batch: int) -> None:
    """Check, inside a write transaction, that the job that writes a batch is the newest one.

    Raises:
        FencedOut: A newer job has been started, by this engine or by another one.
    """
    current = _epoch(connection)
    if epoch != current or epoch == 0:
        raise FencedOut(
            f"batch {batch} comes from epoch {epoch}, the current one is {current}",
            detail=NEWER_JOB,
        )


def _epoch(connection: Connection) -> int:
    return int(connection.execute(_EPOCH).scalar() or 0)


def _lease(connection: Connection) -> Lease | None:
    row = connection.execute(_LEASE).first()
    if row is None:
        return None
    return Lease(row.epoch, row.token, decode(Holder, row.holder), row.expiry_ms, row.renewals)


def _renew(connection: Connection, lease: Lease, change: Update = _RENEW) -> None:
    if not connection.execute(change, {"held": lease.token}).rowcount:
        found = _lease(connection)
        by = "nobody" if found is None else f"process {found.holder.pid} on {found.holder.host}"
        raise FencedOut(
            "another engine has taken the catalog over",
            detail=f"The lease is held by {by}; this engine did not renew it in time.",
            hint="A catalog has one active engine. Stop this engine, or restart it after the other stops.",
        )
