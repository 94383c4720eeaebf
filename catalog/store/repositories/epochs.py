"""Epochs in the catalog: they fence out old engines.

Every start of an engine takes a new epoch, and writes under an older epoch are refused. So an engine that was
believed dead cannot make anything visible.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, func, insert, select

from catalog.errors import FencedOut
from catalog.store.database import tables
from catalog.store.database.repository import Repository, next_id

#: Number of newest epochs that are kept for people to read, besides the epochs that batches name. Older
#: epochs are dropped only once in this many starts of an engine, because all batches must be read to find the
#: epochs that they name.
KEPT: Final = 1000

_EPOCH = select(func.coalesce(func.max(tables.epochs.c.epoch), 0))


def check_epoch(connection: Connection, epoch: int, batch: int) -> None:
    """Check, inside a write transaction, that the engine that writes a batch is the newest one.

    Raises:
        FencedOut: Another engine has taken over.
    """
    current = connection.execute(_EPOCH).scalar_one()
    if epoch != current or epoch == 0:
        raise FencedOut(
            f"batch {batch} comes from epoch {epoch}, the current one is {current}",
            detail="Another engine owns the data directory.",
        )


class EpochRepository(Repository):
    """Epochs, one for every start of an engine."""

    def begin(self, owner: str) -> int:
        """Take over: begin a new epoch, which fences out every earlier engine.

        Args:
            owner: Who takes over, for people.

        Returns:
            The epoch: 1, 2, ...
        """
        with self._database.write() as connection:
            epoch = next_id(connection, "epoch")
            connection.execute(
                insert(tables.epochs).values(epoch=epoch, owner=owner, started_at_us=self._now_us())
            )
            if epoch % KEPT == 0:
                named = select(tables.batches.c.epoch).distinct()
                connection.execute(
                    delete(tables.epochs).where(
                        tables.epochs.c.epoch <= epoch - KEPT, tables.epochs.c.epoch.not_in(named)
                    )
                )
        return epoch

    def current(self) -> int:
        """Return the newest epoch, 0 before the first."""
        with self._database.read() as connection:
            return int(connection.execute(_EPOCH).scalar_one())
