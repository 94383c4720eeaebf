"""Ways to save memory in a family that follows the order of its streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Where the rows of joins without windows wait (``Memory``).
MemoryStrategy = Literal["plain", "msf", "dbf", "hybrid"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Strategy by which a family in the order of its streams saves memory (WO-Join, §4).

    Attributes:
        strategy: ``plain``: every row is in memory, and is joined in the batch in which it comes. ``msf``,
            memory-sort first: rows wait until no row before them can come, and are joined in order. ``dbf``,
            disk-buffer first: rows that no row of the other stream can meet yet wait on disk. ``hybrid``:
            both.
        read_ahead: Rows per side that may be in memory although they are beyond the other stream (C); used
            where leading rows wait on disk.
    """

    strategy: MemoryStrategy = "plain"
    read_ahead: int = 8192

    def __post_init__(self) -> None:
        if self.read_ahead < 1:
            raise ValueError(f"at least one row is read ahead, not {self.read_ahead}")

    @property
    def parks(self) -> bool:
        """Return whether leading rows wait on disk."""
        return self.strategy in ("dbf", "hybrid")

    @property
    def sorts(self) -> bool:
        """Return whether rows wait for their place in the order before they are joined."""
        return self.strategy in ("msf", "hybrid")


#: Requested way to save memory; ``auto`` lets the planner choose by the limit.
AskedMemory = MemoryStrategy | Literal["auto"]
