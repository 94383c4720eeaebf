"""Spark's logs of a checkpoint, read without Spark: which batches were begun, and which are done.

    offsets/7    v2            commits/7    v1
                 {metadata}                 {"nextBatchWatermarkMs": 0}
                 sluice:{"1": 12, "batch": 8, "control": 3}

Spark writes an entry to ``.7.<uuid>.tmp`` and renames it. It does not sync, so that power that fails can
leave an entry without its bytes: such an entry is torn, and counts as not written.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

#: Spark's offset at the end of a batch: positions by stream id, and ``batch`` and ``control``.
Offset = dict[str, int]

#: What a writer that died leaves: never read, and in the way where Spark wants an empty directory.
_LEFTOVER = re.compile(r"\.\d+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")
_ENTRY = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class SparkLog:
    """Offset log and commit log.

    Attributes:
        checkpoint: Spark's checkpoint.
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

    def begun(self) -> tuple[int, ...]:
        """Return the batches of the offset log, ascending."""
        return _entries(self.offsets)

    def done(self) -> tuple[int, ...]:
        """Return the batches of the commit log, ascending."""
        return _entries(self.commits)

    def input_end(self, batch: int) -> Offset | None:
        """Return the offset at the end of a batch; None where its entry is torn or not there."""
        return _parsed(self.offsets / str(batch))

    def is_whole(self, batch: int) -> bool:
        """Tell whether the commit log's entry of a batch has all its bytes."""
        return _parsed(self.commits / str(batch)) is not None

    def forget_begun(self, batch: int) -> None:
        """Remove a batch from the offset log."""
        (self.offsets / str(batch)).unlink(missing_ok=True)

    def forget_done(self, batch: int) -> None:
        """Remove a batch from the commit log, so that Spark repeats it."""
        (self.commits / str(batch)).unlink(missing_ok=True)

    def leftovers(self) -> tuple[Path, ...]:
        """Return the files that writers of entries left half written; nobody reads them."""
        found = (path for directory in (self.offsets, self.commits) for path in _listed(directory))
        return tuple(path for path in found if _LEFTOVER.fullmatch(path.name))


def _entries(directory: Path) -> tuple[int, ...]:
    return tuple(sorted(int(path.name) for path in _listed(directory) if _ENTRY.fullmatch(path.name)))


def _listed(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


def _parsed(entry: Path) -> Offset | None:
    """Return the last line's object; None where the entry is not whole."""
    try:
        version, *lines = entry.read_text(encoding="utf-8").splitlines()
        if not re.fullmatch(r"v\d+", version) or not lines:
            return None
        # Of a named source the line begins with its name.
        return dict(json.loads(lines[-1][lines[-1].index("{") :]))
    except (FileNotFoundError, ValueError):
        return None
