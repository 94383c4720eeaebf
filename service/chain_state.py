"""The state of a bucket in Spark's store, which processes that only plan declare too.

manifest  ValueState   bucket manifest, rewritten every batch (small)
plan      ValueState   plan in force, rewritten when it changes
segments  MapState     stored id -> bytes of a segment or a patch, written once
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # StatefulProcessorHandle imports it where it is used, and with it pandas.
    from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, ValueState


@dataclass(frozen=True, slots=True)
class ChainState:
    """The opened state of one bucket; see the module's table."""

    manifest: ValueState
    plan: ValueState
    segments: MapState


def open_state(handle: StatefulProcessorHandle) -> ChainState:
    """Declare and open a bucket's state."""
    return ChainState(
        manifest=handle.getValueState("manifest", "value binary"),
        plan=handle.getValueState("plan", "version int, value binary"),
        segments=handle.getMapState("segments", "id string", "value binary"),
    )
