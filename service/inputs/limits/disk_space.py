"""Free space of the data directory's file system, and the limits below which input waits.

    free   |xxxxxxxxxxx|-----------|----------------------------->
           0      least / 2      least
              no batch      posted events     no restriction
              takes input   are refused

The space between the two limits is reserved for batches that read events already accepted: for their state,
results and catalog entries. With less than half of ``least`` free, batches take no input, so that no batch
runs out of space midway. Work that needs little space or frees some (results, removals, retention) continues.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Default of the space to keep free, bytes. A batch of four million rows of ten columns writes about as much:
#: 0.7 GB of segments, and its results.
LEAST_FREE_BYTES: Final = 1 << 30
#: Percentage of a small file system (below 20 GB) to keep free instead; batches are smaller there, too.
LEAST_FREE_PERCENT: Final = 5
#: Seconds between two measurements of the free space.
LOOK_S: Final = 1.0


class DiskSpace:
    """Free space of one file system, measured at most once a second; threads may share the object.

    Args:
        directory: Any directory of the file system.
        least_mb: Space to keep free, MB; 0 for no limit. None for a gigabyte, or for 5% of a file system
            below 20 GB.
        clock_s: Monotonic clock.
    """

    def __init__(
        self, directory: Path, least_mb: int | None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.directory = directory
        self._least_mb = least_mb
        self._clock_s = clock_s
        self._looked: tuple[float, int, int] | None = None

    @property
    def free_bytes(self) -> int:
        """Space that may be written, bytes."""
        return self._look()[1]

    @property
    def least_bytes(self) -> int:
        """Free space below which posted events are refused, bytes."""
        if self._least_mb is not None:
            return self._least_mb << 20
        return min(LEAST_FREE_BYTES, self._look()[2] * LEAST_FREE_PERCENT // 100)

    @property
    def held_below_bytes(self) -> int:
        """Free space below which batches take no input, bytes."""
        return self.least_bytes // 2

    @property
    def is_low(self) -> bool:
        """Return whether posted events are refused."""
        return self.free_bytes < self.least_bytes

    @property
    def is_out(self) -> bool:
        """Return whether batches take no input."""
        return self.free_bytes < self.held_below_bytes

    def told(self, needed_bytes: int) -> str:
        """Return a sentence with the free space and the space that is needed."""
        free, needed = shown_bytes(self.free_bytes), shown_bytes(needed_bytes)
        return f'The file system of "{self.directory}" has {free} free, and should have {needed}.'

    def _look(self) -> tuple[float, int, int]:
        """Return the time of the last measurement, the free bytes, and the bytes of the file system."""
        now_s = self._clock_s()
        if self._looked is None or now_s - self._looked[0] >= LOOK_S:
            found = os.statvfs(self.directory)
            self._looked = (now_s, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
        return self._looked


def shown_bytes(count: int) -> str:
    """Return a number of bytes in a readable unit.

    >>> shown_bytes(1 << 30), shown_bytes(3_400_000), shown_bytes(12)
    ('1.1 GB', '3.4 MB', '12 bytes')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
