"""Closed keys that are not finished yet: a later result of a query can still have such a key.

Suppose side a has closed key k. Let T be the newest event time of the rows of a with key k that a query may
use, and let w be the query's window on a. No later row of a has k, so no row of b can match a new row of a.
Once b's watermark has passed T + w, no later row of b can match an old row of a within the window:

    b's watermark   ------------------------------|----------->
    rows of a with k    x     x  T
                                 |<---- w ------->| k is finished for the query

If b has also closed k, or if there is no such row of a, k is finished at once. T does not change after a has
closed k. T depends on event times, not on the slices that store the rows, so a key finishes in the same batch
under every strategy.

Source: PWJoin (Ding et al., CIKM 2004), Theorem 3.1 (both sides close the key) and Theorem 4.1 (one side
closes it, and its window passes), and PJoin (same authors, EDBT 2004), Theorem 1 (one side closes it, and the
state has no row).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from catalog.sql_text import quoted
from operators.filters.expressions import select_table
from operators.kernels.keys import Bools, Int64s, bucket_of
from operators.segments.encoding.row_codec import KEY, POS, TS
from operators.segments.segment import COLUMN, Segment

#: Finish time of keys without rows: earlier than any watermark.
AT_ONCE_US = -(2**62)

#: Sides by the lowest bit of ``_pos``.
_SIDES = ("a", "b")


@dataclass(slots=True, eq=False)
class WaitingKeys:
    """Keys that are closed but not finished, one entry per query and per side that closed the key.

    Attributes:
        columns: Number of stored key columns, if keys are hashed; else 0.
        segments: The keys, in at most one segment: ``_ts`` is the other side's watermark at which the key is
            finished; ``_pos`` is twice the query id, plus 1 for side b.
        entering: Queries that enter the plan in this batch.
        closings: Number of closings since finished keys were last emitted.
    """

    columns: int
    segments: list[Segment] = field(default_factory=list)
    entering: frozenset[int] = frozenset()
    closings: int = 0

    def take_over(self, former: WaitingKeys, queries: Collection[int], sides: Collection[str]) -> None:
        """Continue with the keys that waited under the previous plan version.

        Args:
            former: The keys that waited under the previous plan version.
            queries: Queries of this version that have result punctuations.
            sides: Sides whose closings are still remembered.
        """
        self.closings = former.closings
        for segment in former.segments:
            kept = np.isin(segment.pos >> 1, np.array(sorted(queries), dtype=np.int64))
            kept &= np.isin(segment.pos & 1, [_SIDES.index(side) for side in sides])
            if kept.any():
                self.segments.append(Segment(segment.filter(kept).rows, 0, ()))

    def take_rows(self, other: WaitingKeys, number: int, buckets: int) -> None:
        """Take over the keys of another bucket that belong to bucket ``number`` of ``buckets`` now."""
        self.closings = max(self.closings, other.closings)
        for segment in other.segments:
            own = segment.filter(bucket_of(segment.key, buckets) == number)
            if len(own):
                self._keep([*self.segments, Segment(own.rows, 0, ())])

    def add(self, side: str, closings: pa.RecordBatch, due_us: Int64s, queries: Int64s, known: Bools) -> None:
        """Add keys that a side has closed.

        Args:
            side: ``a`` or ``b``.
            closings: The n keys, in the form of ``closing_rows``.
            due_us: int64[n, q], the other side's watermark at which each key is finished for each query.
            queries: int64[q], ids of the queries.
            known: bool[n], whether the other side closed the key in an earlier batch. If such a key no longer
                waits for a query, it is already finished for that query.
        """
        rows, count = closings.num_rows, len(queries)
        if not rows or not count:
            return
        of_row = np.repeat(np.arange(rows), count)
        arrays = {
            KEY: closings.column(KEY).take(pa.array(of_row)),
            TS: pa.array(np.ascontiguousarray(due_us).reshape(-1)),
            POS: pa.array(np.tile(queries * 2 + _SIDES.index(side), rows)),
        }
        names = [f"{COLUMN}{n}" for n in range(self.columns)]
        arrays |= {name: closings.column(name).take(pa.array(of_row)) for name in names}
        added = pa.RecordBatch.from_pydict(arrays)
        if known.any():
            added = self._without_finished(added, known[of_row])
        if added.num_rows:
            self._keep([*self.segments, Segment(added, 0, ())])

    def finish(self, watermarks: Mapping[str, int | None], *, together: bool = False) -> pa.Table | None:
        """Remove the finished keys and return them, or return None if no key is finished.

        Args:
            watermarks: Watermark per side at the end of the batch, µs.
            together: True: return a key only when it is finished for all queries that it waits for.

        Returns:
            A row per key: ``_key``; the columns ``0``, ``1`` ... of hashed keys; and ``queries``, the
            ascending ids, as text, of the queries for which the key is finished. Rows are sorted by key.
        """
        if not self.segments:
            return None
        if not self._may_finish(watermarks):
            return None
        passed = ["false"]
        for number, other in ((0, "b"), (1, "a")):
            now = watermarks[other]
            if now is not None:
                passed.append(f"(_pos & 1 = {number} AND _ts <= {now})")
        waiting = self.segments[0]
        names = ", ".join(map(quoted, self._names()))
        done = f"count(DISTINCT _pos) = 2 OR bool_or({' OR '.join(passed)} OR _ts <= {AT_ONCE_US})"
        if together:
            done = f"bool_and({done}) OVER (PARTITION BY {names})"
        text = (
            f"SELECT {names}, query FROM (SELECT {names}, _pos >> 1 AS query, {done} AS done FROM waiting "
            f"GROUP BY {names}, query) WHERE done"
        )
        finished = select_table({"waiting": _plain(waiting)}, text)
        if not finished.num_rows:
            return None
        left = select_table(
            {"waiting": _plain(waiting), "finished": finished},
            f"SELECT w.* FROM waiting w ANTI JOIN finished f ON {self._same('w', 'f')} ORDER BY _key, _pos",
        )
        self.segments = [_segment(left)] if left.num_rows else []
        order = ", ".join(quoted(name) for name in self._names())
        text = (
            f"SELECT {names}, string_agg(CAST(query AS VARCHAR), ',' ORDER BY query) AS queries "
            f"FROM finished GROUP BY {names} ORDER BY {order}"
        )
        return select_table({"finished": finished}, text)

    def _may_finish(self, watermarks: Mapping[str, int | None]) -> bool:
        """Return False if no key can be finished, so that most batches run no SQL query."""
        waiting = self.segments[0]
        if waiting.t_min <= AT_ONCE_US:
            return True
        side = waiting.pos & 1
        for number, other in ((0, "b"), (1, "a")):
            now = watermarks[other]
            if now is not None and waiting.t_min <= now and (waiting.ts[side == number] <= now).any():
                return True
        return self.has_match()

    def has_match(self) -> bool:
        """Return whether both sides may have closed the same waiting key, judged by hashes of keys only."""
        if not self.segments:
            return False
        waiting = self.segments[0]
        # The entries of both sides for one key and query are adjacent.
        same = waiting.key[1:] == waiting.key[:-1]
        return bool((same & (waiting.pos[1:] >> 1 == waiting.pos[:-1] >> 1)).any())

    def _without_finished(self, added: pa.RecordBatch, known: Bools) -> pa.RecordBatch:
        """Return the added keys without keys that are already finished because the other side closed them."""
        tables = {
            "added": _plain(Segment(added, 0, ())).append_column("known", pa.array(known)),
            "waiting": _plain(self.segments[0] if self.segments else Segment(added.slice(0, 0), 0, ())),
        }
        text = (
            "SELECT a.* EXCLUDE known FROM added a WHERE NOT known OR EXISTS (SELECT 1 FROM waiting w WHERE "
            f"{self._same('a', 'w', query='_pos >> 1')})"
        )
        return _segment(select_table(tables, text)).rows

    def _keep(self, segments: Sequence[Segment]) -> None:
        """Let the keys of some segments wait, with the first closing of each key, query and side."""
        if not self.columns:
            arrays = {
                KEY: [s.key for s in segments],
                TS: [s.ts for s in segments],
                POS: [s.pos for s in segments],
            }
            key, ts, pos = (np.concatenate(parts) for parts in arrays.values())
            order = np.lexsort((pos, key))
            first = np.ones(len(order), dtype=np.bool_)
            first[1:] = (np.diff(key[order]) != 0) | (np.diff(pos[order]) != 0)
            kept = [pa.array(values[order[first]]) for values in (key, ts, pos)]
            self.segments = [Segment(pa.RecordBatch.from_arrays(kept, names=list(arrays)), 0, ())]
            return
        names = ", ".join(map(quoted, [*self._names(), POS]))
        parts = {f"part{n}": _plain(segment) for n, segment in enumerate(segments)}
        every = " UNION ALL BY NAME ".join(f"SELECT *, {n} AS part FROM part{n}" for n in range(len(parts)))
        text = (
            f"SELECT {names}, arg_min(_ts, part) AS _ts FROM ({every}) GROUP BY {names} ORDER BY _key, _pos"
        )
        self.segments = [_segment(select_table(parts, text))]

    def _names(self) -> list[str]:
        return [KEY, *(str(n) for n in range(self.columns))]

    def _same(self, one: str, other: str, *, query: str = "query") -> str:
        conditions = [
            f"{one}.{quoted(name)} IS NOT DISTINCT FROM {other}.{quoted(name)}" for name in self._names()
        ]
        return " AND ".join([*conditions, f"{one}._pos >> 1 = {other}.{query}"])


def _plain(segment: Segment) -> pa.Table:
    rows = pa.Table.from_batches([segment.rows.replace_schema_metadata(None)])
    return rows.rename_columns([name.removeprefix(COLUMN) for name in rows.column_names])


def _segment(rows: pa.Table) -> Segment:
    batches = rows.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)
    names = [name if name in (KEY, TS, POS) else f"{COLUMN}{name}" for name in batch.schema.names]
    return Segment(batch.rename_columns(names), 0, ())
