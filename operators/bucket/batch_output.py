"""Output of a bucket for one batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.values.counters.batch_counters import StreamPunctuations
from catalog.values.counters.family_counters import FilterCounters, KeyCounters
from operators.lineage.routes import RouteCounts, add_up
from operators.steps.exchange import ExchangedRows


@dataclass(slots=True, eq=False)
class BatchOutput:
    """Output of a bucket for one batch.

    Attributes:
        results: Joined pairs per family id.
        routes: Routes of the joined pairs per family id.
        late: Late rows per stream id.
        filters: PACK's counters per distinct filter and partition; each partition sends its counters to one
            bucket.
        keys: Counters of the keys of this bucket's new rows.
        violating: Rows that broke a promise of their stream, with the columns of ``kept_columns``, per stream
            id, family id and side.
        received: Counts of punctuations from the partitions that report to this bucket.
        exchanged: Pairs that are sent to other buckets, which join them in the next batch.
        pack_us: CPU time of the partitions that sent their counters to this bucket, µs.
        began_us: Start time of the earliest partition that sent its counters to this bucket, µs UTC, or None
            if no partition sent its counters to this bucket.
    """

    results: dict[str, pa.RecordBatch] = field(default_factory=dict)
    routes: dict[str, RouteCounts] = field(default_factory=dict)
    late: dict[int, pa.RecordBatch] = field(default_factory=dict)
    filters: list[FilterCounters] = field(default_factory=list)
    keys: list[KeyCounters] = field(default_factory=list)
    violating: dict[tuple[int, str, str], pa.RecordBatch] = field(default_factory=dict)
    received: list[StreamPunctuations] = field(default_factory=list)
    exchanged: list[ExchangedRows] = field(default_factory=list)
    pack_us: int = 0
    began_us: int | None = None

    def add_results(self, family: str, rows: pa.RecordBatch, routes: RouteCounts) -> None:
        """Add pairs to a family's results; the pairs already there may have other queries and columns."""
        if family in self.results:
            parts = [pa.Table.from_batches([each]) for each in (self.results[family], rows)]
            whole = pa.concat_tables(parts, promote_options="default").combine_chunks()
            (rows,) = whole.to_batches()
            routes = add_up(routes.queries, [self.routes[family], routes])
        self.results[family], self.routes[family] = rows, routes

    def exchanged_rows(self) -> Counter[str]:
        """Return the number of pairs sent to other buckets, by the id of the family that joins them next."""
        rows = Counter[str]()
        for part in self.exchanged:
            rows[part.family] += part.rows.num_rows
        return rows
