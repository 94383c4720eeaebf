"""Where batches' input ends in the catalog, for those that go on behind the offset that Spark logged.

Written once per batch, before any of it is read, by the engine that owns the data; so whoever replays the
batch, or begins the next one, finds the same end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import bindparam, delete, insert, select

from catalog.store import tables
from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.repositories.epochs import check_epoch
from catalog.store.repository import Repository

_e = tables.input_ends.c
_ENDS = select(_e.ends).where(_e.batch == bindparam("batch"))
_DROP = delete(tables.input_ends).where(_e.batch < bindparam("oldest"))


class InputEndRepository(Repository):
    """Ends of batches' input, by stream id; those that no batch can replay any more are dropped."""

    def set(self, batch: int, ends: Mapping[int, int], epoch: int) -> None:
        """Say where the input of a batch ends.

        Args:
            batch: Batch number.
            ends: Position after the batch of each stream that goes on behind the batch's offset, by id.
            epoch: Fencing epoch of the engine.

        Raises:
            FencedOut: Another engine has taken over.
            InvariantBroken: It was said before.
        """
        with self._database.write() as connection:
            check_epoch(connection, epoch, batch)
            text = json.dumps({str(stream_id): end for stream_id, end in sorted(ends.items())})
            connection.execute(insert(tables.input_ends).values(batch=batch, ends=text))
            # The oldest batch that may replay starts where the one before it ended.
            connection.execute(_DROP, {"oldest": batch - REPLAYED_BATCHES - 1})

    def get(self, batch: int) -> dict[int, int]:
        """Return where the input of a batch ends, by stream id; streams that end at its offset are missing.

        Args:
            batch: Batch number.
        """
        with self._database.read() as connection:
            text = connection.execute(_ENDS, {"batch": batch}).scalar()
        return {} if text is None else {int(stream_id): end for stream_id, end in json.loads(text).items()}
