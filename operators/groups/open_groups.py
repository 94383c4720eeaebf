"""Open groups of one family in one bucket: partials of groups that may still get pairs.

    event time   --|---- 9:00 ----|---- 10:00 ----|---- 11:00 --->
                                  min of both watermarks
                    closed: emitted now           open

The event time of a pair is the event time of its later row. The row of a pair that arrives last is not late:
its event time is at least the watermark of its stream at the start of the batch. So the pair's event time is
at least the smaller of the two watermarks. Once the smaller watermark has passed the end of an interval, no
later batch adds a pair to the interval. Then the groups of the interval are emitted, once for each query, in
the same batch under every strategy. The open groups of a query are also emitted when it leaves the plan.

All pairs of a key are in one bucket, because families with groups are never replicated.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.values.groups.grouping import CLOSED_BY, ClosedBy
from catalog.values.routes.query_sets import QuerySets
from catalog.values.routes.route_table import RouteTable, combined
from operators.groups.compiled_groups import CompiledGroups
from operators.kernels.keys import Int64s, bucket_of
from operators.lineage.routes import RouteCounts, query_key
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.segment import Segment, timestamps

#: Two segments are merged if the older segment has at most this many times the partials of the newer segment.
_MERGED_RATIO = 2


@dataclass(slots=True, eq=False)
class OpenGroups:
    """Open groups of one family in one bucket.

    Attributes:
        compiled: Groups of the family, compiled for the plan version in force.
        segments: Partials, older ones first; ``_ts`` is the end of the group's interval.
        routes: Routes of the partials; None before the first partial.
        given: Number of groups emitted in the last batch, over all queries.
    """

    compiled: CompiledGroups
    segments: list[Segment] = field(default_factory=list)
    routes: RouteTable | None = None
    given: int = 0

    def take_over(self, former: OpenGroups) -> None:
        """Continue with the groups that were open under the previous plan version."""
        self.segments, self.routes = former.segments, former.routes

    def take_rows(self, other: OpenGroups, number: int, buckets: int) -> None:
        """Take over the groups of another bucket whose keys belong to this bucket now.

        Args:
            other: The groups of the other bucket.
            number: Number of this bucket.
            buckets: Number of all buckets.
        """
        if other.routes is None:
            return
        self.routes = other.routes if self.routes is None else combined([self.routes, other.routes])
        for segment in other.segments:
            own = segment.filter(bucket_of(segment.key, buckets) == number)
            if len(own):
                self.segments.append(Segment(own.rows, 0, ()))

    def add(self, pairs: pa.RecordBatch, routes: RouteTable) -> None:
        """Add the pairs of a batch to their groups.

        Args:
            pairs: Pairs with the columns of a result file.
            routes: Routes of the pairs.
        """
        self.routes = routes if self.routes is None else combined([self.routes, routes])
        self.segments.append(Segment(self.compiled.partials(pairs, routes), 0, ()))
        while len(self.segments) > 1:
            older, newer = self.segments[-2:]
            if len(older) > _MERGED_RATIO * len(newer):
                return
            self.segments[-2:] = [Segment(self.compiled.merged([older.rows, newer.rows]), 0, ())]

    def close_keys(self, finished: pa.Table) -> pa.Table | None:
        """Remove and return the groups without intervals whose keys are finished, or None if there are none.

        Args:
            finished: The keys: ``_key`` and, for hashed keys, ``0``, ``1`` ...

        Returns:
            The values of the groups, in the form of ``CompiledGroups.closed``.
        """
        keys = finished.column(KEY).to_numpy()
        due: list[Segment] = []
        staying: list[Segment] = []
        for segment in self.segments:
            if not np.isin(segment.key, keys).any():
                staying.append(segment)
                continue
            for chosen, target in ((True, due), (False, staying)):
                part = self.compiled.of_keys(segment.rows, finished, chosen=chosen)
                if part.num_rows:
                    target.append(Segment(part, 0, ()))
        self.segments = staying
        return self._closed(due, "punctuation") if due else None

    def close(self, watermarks: Iterable[int | None]) -> pa.Table | None:
        """Remove and return the groups whose intervals get no more pairs, or None if there are none.

        Args:
            watermarks: Watermarks of both streams at the end of the batch, µs.

        Returns:
            The values of the groups, in the form of ``CompiledGroups.closed``.
        """
        known = [watermark for watermark in watermarks if watermark is not None]
        if len(known) < 2:
            return None
        until = min(known)
        due = [s.filter(s.ts <= until) for s in self.segments if s.t_min <= until]
        if not due:
            return None
        self.segments = [
            s if s.t_min > until else s.filter(s.ts > until) for s in self.segments if s.t_max > until
        ]
        closed = self._closed(due, "watermark")
        self._forget_routes()
        return closed

    def leave(self, query_ids: Iterable[int]) -> pa.Table | None:
        """Return the values of the open groups of queries that leave the plan, or None if they have none."""
        leaving = {i: self.compiled.queries[i] for i in query_ids}
        if not leaving or not self.segments:
            return None
        former = self.compiled
        self.compiled = replace(former, queries=leaving)
        found = self._closed(self.segments, "leave")
        self.compiled = former
        return found

    def open(self) -> int:
        """Return the number of open groups."""
        if not self.segments:
            return 0
        places = [np.stack([s.key, s.ts, _numbers(s, "width")]) for s in self.segments]
        return int(np.unique(np.concatenate(places, axis=1), axis=1).shape[1])

    def facts(self) -> dict[str, Any]:
        """Return the routes in the form of the bucket's manifest, which lists the segments separately."""
        return {"routes": None if self.routes is None else b64encode(self.routes.encode()).decode()}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the routes from the result of ``facts``."""
        routes = facts["routes"]
        self.routes = None if routes is None else RouteTable.decode(b64decode(routes))

    def _closed(self, parts: Sequence[Segment], closed_by: ClosedBy) -> pa.Table:
        assert self.routes is not None, "partials have routes"
        closed = self.compiled.closed([part.rows for part in parts], self.routes)
        return closed.append_column(f"g_{CLOSED_BY}", pa.array([closed_by] * closed.num_rows, pa.string()))

    def _forget_routes(self) -> None:
        """Drop the routes that no partial uses any more."""
        if self.routes is None:
            return
        numbers = [_numbers(s, "route") for s in self.segments]
        used = (
            np.isin(self.routes.numbers, np.concatenate(numbers)) if numbers else np.zeros(0, dtype=np.bool_)
        )
        self.routes = self.routes.take(used) if used.any() else None


def group_results(
    parts: Sequence[pa.Table], plan_version: int, batch: int
) -> tuple[pa.RecordBatch, RouteCounts] | None:
    """Return closed groups as rows of a result file, and their routes, or None if there are no groups.

    Args:
        parts: Results of ``OpenGroups.close`` and ``leave``.
        plan_version: Plan version in force.
        batch: Batch number.
    """
    groups = pa.concat_tables(parts, promote_options="default") if parts else None
    if groups is None or not groups.num_rows:
        return None
    query = groups.column("query").to_numpy()
    ids, place, counts = np.unique(query, return_inverse=True, return_counts=True)
    numbers: Int64s = np.array([query_key(query_id) for query_id in ids.tolist()], dtype=np.int64)
    rows = groups.num_rows
    columns = {
        "_route": pa.array(numbers[place]),
        "_plan_version": pa.array(np.full(rows, plan_version, dtype=np.int32)),
        "_batch": pa.array(np.full(rows, batch, dtype=np.int64)),
        "_event_time": timestamps(groups.column(TS).to_numpy()),
        "_pos_a": groups.column(POS),
        "_pos_b": pa.nulls(rows, pa.int64()),
    }
    columns |= {name: groups.column(name) for name in groups.column_names if name.startswith("g_")}
    sets = QuerySets.of(tuple(ids.tolist()), [1 << number for number in range(len(ids))])
    batches = pa.table(columns).combine_chunks().to_batches()
    return batches[0], RouteCounts.of(RouteTable(numbers, sets), counts)


def _numbers(segment: Segment, name: str) -> Int64s:
    """Return a column of whole numbers that are never NULL."""
    column = segment.column(name)
    assert column is not None, "all partials have it"
    values: Int64s = column.to_numpy()
    return values
