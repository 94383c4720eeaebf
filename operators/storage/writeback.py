"""Writeback: starts flushing a large file to disk while the batch continues.

The sync before a batch's commit then finds most of the file written. Without writeback, the sync took 0.25 s
for ten million rows (many-keys workload, two cores); docs/reliability.md has the figures.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

#: Files of fewer bytes do not benefit from writeback.
LEAST_BYTES: Final = 256 << 10

_SYNC_FILE_RANGE_WRITE: Final = 2


def begin_writeback(path: Path) -> None:
    """Ask the system to begin writing a file to disk, without waiting for it."""
    call = _sync_file_range()
    if call is None or path.stat().st_size < LEAST_BYTES:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # The result is ignored, because code that needs the file on disk syncs it.
        call(descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)
    finally:
        os.close(descriptor)


@cache
def _sync_file_range() -> Any:  # Any: a foreign function
    """Return Linux's ``sync_file_range``, or None on other systems."""
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call
