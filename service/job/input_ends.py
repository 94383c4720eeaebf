"""Where a batch's input ends: at the offset that Spark logged, or behind it, with what came meanwhile.

    asked for the end     logged, planned      asked for partitions          readers begin
    |---------------------|===== rows that come now =====|-------------------|------> time

From the first to the last are 60 of the 150 to 200 ms of a small batch, half of them before Spark asks for
partitions. So a batch that is not full is moved on then, and the catalog says how far before any is read.

Invariant: what a batch reads is settled once. Who replays it finds the entry, or none, and then it ends at
its offset: for nobody moves it on but the process that was asked for that end, when it is asked for
partitions the first time, and that of an engine before, held up somewhere, is fenced out. The next batch
starts where this one really ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from catalog.store.store import Store
from catalog.values.stream import Stream
from service.inputs.admission import admit, is_aligned
from service.inputs.inputs import Inputs

Offset = dict[str, int]


@dataclass(frozen=True, slots=True)
class Room:
    """Room in a batch that took all there was.

    Attributes:
        batch: Its number.
        rows: Rows of aligned streams in it so far.
        max_rows: How many it may have.
    """

    batch: int
    rows: int
    max_rows: int


@dataclass(slots=True)
class InputEnds:
    """Knows where batches' input ends, and moves it on.

    Attributes:
        store: Catalog.
        epoch: Fencing epoch of the engine.
    """

    store: Store
    epoch: int
    _known: dict[int, Mapping[int, int]] = field(default_factory=dict)

    def true(self, offset: Offset) -> Offset:
        """Return an offset with the positions at which the batch that ends there really ended."""
        moved = {str(stream_id): end for stream_id, end in self._of(offset["batch"] - 1).items()}
        # Beside a checkpoint that is older than the catalog, an entry can be from a life before.
        return offset | {key: max(end, offset.get(key, end)) for key, end in moved.items()}

    def move_on(self, room: Room, end: Offset, streams: Sequence[Stream], inputs: Inputs) -> bool:
        """Let a batch take what came since Spark was given its end, as far as it fits.

        Args:
            room: Room in the batch.
            end: The end that Spark was given.
            streams: Streams of the batch; one that takes so many files per batch takes no more of them.
            inputs: What is available.

        Returns:
            Whether it takes more; not where it was asked before.

        Raises:
            FencedOut: Another engine has taken over.
        """
        if self._of(room.batch):
            return False
        aligned = [stream for stream in streams if is_aligned(stream)]
        before = positions(aligned, end)
        found = admit(aligned, before, inputs, max_rows=room.max_rows, rows=room.rows).positions
        ends = {stream_id: position for stream_id, position in found.items() if position != before[stream_id]}
        # Rows may be there because a change was acknowledged, and then it is on record by now: they must not
        # overtake it, for this batch is without it.
        if not ends or self.store.control_log.head() != end["control"]:
            return False
        self.store.input_ends.set(room.batch, ends, self.epoch)
        self._know(room.batch, ends)
        return True

    def _of(self, batch: int) -> Mapping[int, int]:
        if batch not in self._known:
            self._know(batch, self.store.input_ends.get(batch))
        return self._known[batch]

    def _know(self, batch: int, ends: Mapping[int, int]) -> None:
        # Of the batch in hand and of the one before.
        self._known = {b: known for b, known in self._known.items() if b == batch - 1} | {batch: ends}


def positions(streams: Sequence[Stream], offset: Offset) -> dict[int, int]:
    """Return where streams stand at an offset, by id; a stream that is not in it has not moved."""
    return {s.id: offset.get(str(s.id), s.initial_position) for s in streams}
