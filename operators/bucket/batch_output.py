"""Output of a bucket for one batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from catalog.values.batch import FilterCounters, KeyCounters, StreamPunctuations
from operators.lineage.route_counts import RouteCounts


@dataclass(slots=True, eq=False)
class BatchOutput:
    """Output of a bucket for one batch.

    Attributes:
        results: Joined pairs per family id.
        routes: Routes of these pairs per family id.
        late: Late rows per stream id.
        filters: PACK's counters per distinct filter and partition, in the one bucket that they are sent to.
        keys: Keys of this bucket's rows.
        violating: Rows that broke a promise, per stream id, family id and side: their kept columns.
        received: Counts of punctuations from the partitions that report to this bucket.
        pack_us: CPU time of the partitions that sent their counters to this bucket, µs.
        began_us: Wall clock when the first of them began, µs UTC; None if none sent its counters here.
    """

    results: dict[str, pa.RecordBatch] = field(default_factory=dict)
    routes: dict[str, RouteCounts] = field(default_factory=dict)
    late: dict[int, pa.RecordBatch] = field(default_factory=dict)
    filters: list[FilterCounters] = field(default_factory=list)
    keys: list[KeyCounters] = field(default_factory=list)
    violating: dict[tuple[int, str, str], pa.RecordBatch] = field(default_factory=dict)
    received: list[StreamPunctuations] = field(default_factory=list)
    pack_us: int = 0
    began_us: int | None = None
