"""The state of a bucket in Spark's store, which processes that only plan declare too.

    manifest   ValueState   what the bucket holds, rewritten every batch (small)

Nothing else: each further variable costs every task 4 to 8 ms, in which the JVM makes encoders for it
(PySpark 4.3), and what is large has files of its own (``operators.segments.segment_files``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # StatefulProcessorHandle imports it where it is used, and with it pandas.
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, ValueState


def open_state(handle: StatefulProcessorHandle) -> ValueState:
    """Declare and open a bucket's state."""
    return handle.getValueState("manifest", "value binary")
