"""The process that Spark's Python workers are forked from: it imports what they need, once.

    JVM ── worker daemon ──fork── worker        every task's code is loaded when the worker is born
                         └─fork── worker

Spark's own daemon forks first and imports later, so that each worker spends seconds on pandas, pyarrow and
numba. And it collects garbage after every task, over all that was imported: 0.1 s a task, half of all the CPU
time that workers used in the many-keys benchmark. What is frozen before the fork is left out, and shared.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager
from pyspark.sql.streaming import stateful_processor_api_client, stateful_processor_util
from pyspark.sql.worker import plan_data_source_read

from service import chain_processor, source, stand_ins

#: Imported for the workers' sake.
LOADED = (
    chain_processor,
    source,
    stand_ins,
    stateful_processor_api_client,
    stateful_processor_util,
    plan_data_source_read,
)

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
