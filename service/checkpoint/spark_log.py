"""Spark's logs of a checkpoint, read without Spark: which batches were begun, and which are done.

    offsets/7    v2            commits/7    v1
                 {metadata}                 {"nextBatchWatermarkMs": 0}
                 sluice:{"1": 12, "batch": 8, "control": 3}

The name of an entry is Spark's number of the batch. Spark counts the empty first batch of a service and
Sluice does not, so Spark's batch numbers are one higher than Sluice's. The ``batch`` in the offset of an
entry is Sluice's number of the next batch.

The checkpoint of a data directory that was moved (``recovery.moving``) continues from the old checkpoint:
``begin.json`` has the offset at which it continues. Spark's numbers begin with 0 again, so they are then
lower than Sluice's.

Spark writes an entry to ``.7.<uuid>.tmp`` and renames it. It does not sync the file, so a power failure can
leave an entry without its bytes. Such a torn entry counts as not written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

#: Spark's offset at the end of a batch: the position by stream id, and the keys ``batch`` and ``control``.
Offset = dict[str, int]

#: Names of temporary files left by a writer that died. No process reads such files, but they must be removed
#: where Spark requires an empty directory.
_LEFTOVER = re.compile(r"\.\d+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")
_ENTRY = re.compile(r"\d+")

#: Name of the file in a moved checkpoint with the offset at which the checkpoint continues.
BEGIN = "begin.json"


@dataclass(frozen=True, slots=True)
class SparkLog:
    """Spark's offset log and commit log.

    Attributes:
        checkpoint: Directory of Spark's checkpoint.
    """

    checkpoint: Path

    @property
    def offsets(self) -> Path:
        """Directory of the offset log."""
        return self.checkpoint / "offsets"

    @property
    def commits(self) -> Path:
        """Directory of the commit log."""
        return self.checkpoint / "commits"

    def begin(self) -> Offset | None:
        """Return the offset at which a moved checkpoint continues, or None if it was not moved."""
        try:
            return dict(json.loads((self.checkpoint / BEGIN).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def first(self) -> int:
        """Return the number of the first batch that was begun in this checkpoint."""
        begin = self.begin()
        return 0 if begin is None else begin["batch"]

    def begun(self) -> tuple[int, ...]:
        """Return the numbers of the batches in the offset log, ascending. -1 is Spark's empty first batch."""
        ahead = self.ahead()
        return tuple(number - ahead for number in _entries(self.offsets))

    def done(self) -> tuple[int, ...]:
        """Return the numbers of the batches in the commit log, ascending."""
        ahead = self.ahead()
        return tuple(number - ahead for number in _entries(self.commits))

    def ahead(self) -> int:
        """Return Spark's batch number minus Sluice's, taken from the newest complete entry."""
        for number in reversed(_entries(self.offsets)):
            end = _parsed(self.offsets / str(number))
            if end is not None and "batch" in end:
                return number + 1 - end["batch"]
        return 0

    def input_end(self, batch: int) -> Offset | None:
        """Return the offset at the end of a batch, or None if the batch's entry is torn or missing."""
        begin = self.begin()
        if begin is not None and batch == begin["batch"] - 1:
            return begin
        return _parsed(self._begun(batch))

    def input_range(self, batch: int) -> tuple[Offset, Offset] | None:
        """Return the offsets at start and end of a batch, or None if Spark has not begun the batch."""
        end = self.input_end(batch)
        if end is None or end.get("batch") != batch + 1:
            return None
        return (self.input_end(batch - 1) or {}) if batch else {}, end

    def is_whole(self, batch: int) -> bool:
        """Return whether the commit log's entry for a batch is complete."""
        return _parsed(self._done(batch)) is not None

    def cut(self, done: int, begun: Collection[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Remove entries of batches from the logs, so that Spark repeats these batches at its next start.

        If a batch stays in the offset log, Spark repeats it with the same input, else with new input.

        Args:
            done: Last batch that stays in the commit log.
            begun: Batches that stay in the offset log.

        Returns:
            The batches that were removed from commit log and offset log.
        """
        not_done = tuple(batch for batch in self.done() if batch > done)
        not_begun = tuple(batch for batch in self.begun() if batch not in begun)
        # Paths are computed before any entry is removed, because they depend on the entries. The newest
        # entries are removed first, so that a crash leaves no gap.
        paths = [*map(self._done, reversed(not_done)), *map(self._begun, reversed(not_begun))]
        for path in paths:
            path.unlink(missing_ok=True)
        return not_done, not_begun

    def forget_after(self, batch: int) -> None:
        """Remove the entries of all batches after a batch, which may be -1 (Spark's empty first batch)."""
        self.cut(batch, [begun for begun in self.begun() if begun <= batch])

    def _begun(self, batch: int) -> Path:
        return self.offsets / str(batch + self.ahead())

    def _done(self, batch: int) -> Path:
        return self.commits / str(batch + self.ahead())

    def leftovers(self) -> tuple[Path, ...]:
        """Return the temporary files of half-written log entries, which no process reads."""
        found = (path for directory in (self.offsets, self.commits) for path in _listed(directory))
        return tuple(path for path in found if _LEFTOVER.fullmatch(path.name))


def _entries(directory: Path) -> tuple[int, ...]:
    return tuple(sorted(int(path.name) for path in _listed(directory) if _ENTRY.fullmatch(path.name)))


def _listed(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


def _parsed(entry: Path) -> Offset | None:
    """Return the JSON object in the last line of an entry, or None if the entry is not complete."""
    try:
        version, *lines = entry.read_text(encoding="utf-8").splitlines()
        if not re.fullmatch(r"v\d+", version) or not lines:
            return None
        # If the source has a name, the line begins with this name.
        return dict(json.loads(lines[-1][lines[-1].index("{") :]))
    except (FileNotFoundError, ValueError):
        return None
