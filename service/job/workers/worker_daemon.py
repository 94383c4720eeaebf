"""Daemon that forks Spark's Python workers, after it has imported the workers' modules once.

    JVM ── worker daemon ──fork── worker        has the code of all tasks when it starts
                         └─fork── worker

Spark's own daemon forks first and imports later, so each worker spends seconds on importing pandas, pyarrow
and numba. Spark's daemon also collects garbage after every task, scanning all imported objects. This takes
0.1 s per task, half of all the CPU time that workers used in the many-keys benchmark. Objects that are frozen
before the fork (``gc.freeze``) are not scanned, and are shared by the workers.

By default, the C library returns freed memory to the system, and reusing it costs a page fault per 4 kB.
Writing half a million rows as bytes took 7 to 13 ms, and takes 3 ms if workers keep the memory that a batch
needs. Arrow's own allocator also returns memory to the system, and requests it in blocks of 2 MB. With
batches of four million rows, the kernel spent a sixth of all CPU time on zeroing pages for workers. So Arrow
takes its memory from the C library.
"""

from __future__ import annotations

import ctypes
import gc

import pyarrow as pa
from pyspark.daemon import manager
from pyspark.sql.streaming import stateful_processor_api_client, stateful_processor_util
from pyspark.sql.worker import plan_data_source_read

from service.job import chain_processor, source

#: Modules imported here only so that the workers have them.
LOADED = (
    chain_processor,
    source,
    stateful_processor_api_client,
    stateful_processor_util,
    plan_data_source_read,
)

#: Options of ``mallopt`` of the GNU C library (malloc.h) and their values in bytes: how much free memory at
#: the end of the heap is kept, by how much the heap grows at once, and the largest block that is taken from
#: the heap (at most 32 MB).
_MALLOC_OPTIONS = {-1: 256 << 20, -2: 16 << 20, -3: 32 << 20}


def keep_freed_memory() -> None:
    """Let this process and its children keep freed memory for reuse, if they use the GNU C library."""
    pa.set_memory_pool(pa.system_memory_pool())
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        for option, size in _MALLOC_OPTIONS.items():
            set_option(option, size)


if __name__ == "__main__":
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    manager()
