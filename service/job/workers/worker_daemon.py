"""The process that Spark's Python workers are forked from: it imports what they need, once.

    JVM ── worker daemon ──fork── worker        every task's code is loaded when the worker is born
                         └─fork── worker

Spark's own daemon forks first and imports later, so that each worker spends seconds on pandas, pyarrow and
numba. And it collects garbage after every task, over all that was imported: 0.1 s a task, half of all the CPU
time that workers used in the many-keys benchmark. What is frozen before the fork is left out, and shared.

The C library gives freed memory back to the system, a page fault for every 4 kB of it that is used again:
writing half a million rows as bytes took 7 to 13 ms, and takes 3 where workers keep what a batch needs.
Arrow's own allocator gives back, too, and takes 2 MB at a time: over batches of four million rows the kernel
zeroed pages for workers in a sixth of all CPU time. So Arrow takes its memory from the C library.
"""

from __future__ import annotations

import ctypes
import gc

import pyarrow as pa
from pyspark.daemon import manager
from pyspark.sql.streaming import stateful_processor_api_client, stateful_processor_util
from pyspark.sql.worker import plan_data_source_read

from service.job import chain_processor, source

#: Imported for the workers' sake.
LOADED = (
    chain_processor,
    source,
    stateful_processor_api_client,
    stateful_processor_util,
    plan_data_source_read,
)

#: Options of ``mallopt`` of the GNU C library (malloc.h), in bytes: free memory at the end of the heap that
#: is kept, how much the heap grows at once, and the largest block that is part of it (32 MB is the most).
_MALLOC_OPTIONS = {-1: 256 << 20, -2: 16 << 20, -3: 32 << 20}


def keep_freed_memory() -> None:
    """Let this process and its children use freed memory again; other C libraries do as they do."""
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
