"""Ways to save memory in a family that follows the order of its streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Strategy by which the rows of joins without windows wait (``Memory``).
MemoryStrategy = Literal["plain", "msf", "dbf", "hybrid"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory policy of a family of joins in the order of their streams, without windows (WO-Join, §4).

    Attributes:
        strategy: ``plain``: every row is in memory and is joined in the batch in which it arrives. ``msf``,
            memory-sort first: rows wait until no earlier row of the order can arrive, and are joined in
            order. ``dbf``, disk-buffer first: rows wait on disk until rows of the other stream can match
            them. ``hybrid``: ``msf`` and ``dbf`` together.
        read_ahead: Most rows of a side that are in memory although the other stream has not reached them (C
            in the paper); used only if leading rows wait on disk.
    """

    strategy: MemoryStrategy = "plain"
    read_ahead: int = 8192

    def __post_init__(self) -> None:
        if self.read_ahead < 1:
            raise ValueError(f"read_ahead is at least 1, not {self.read_ahead}")

    @property
    def parks(self) -> bool:
        """Return whether leading rows wait on disk."""
        return self.strategy in ("dbf", "hybrid")

    @property
    def sorts(self) -> bool:
        """Return whether rows wait for earlier rows of the order before they are joined."""
        return self.strategy in ("msf", "hybrid")


#: Requested way to save memory; ``auto`` lets the planner choose by the memory limit.
AskedMemory = MemoryStrategy | Literal["auto"]
