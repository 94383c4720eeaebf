"""Epochs of jobs that a test stands for, without an engine."""

from __future__ import annotations

from typing import Final

from catalog.store.lease import Holder
from catalog.store.store import Store

_TEST: Final = Holder("test", "", "", 0, 0.0, "")


def begin_epoch(store: Store) -> int:
    """Begin the epoch of one more start of the job, and return it.

    If an engine holds the lease, it keeps the lease. Otherwise the lease is taken and released.
    """
    with store.transaction():
        lease = store.lease.current()
        if lease is not None and lease.token:
            return store.lease.begin_epoch(lease)
        twin = store.twin()  # ``store`` itself stays without a lease
        taken = twin.lease.take(_TEST, 0, lease)
        assert taken is not None
        twin.lease.release(taken)
    return taken.epoch
