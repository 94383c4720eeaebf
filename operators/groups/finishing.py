"""Finished keys: no later pair can have them, so their groups come out at once, without an interval.

Suppose side a has closed key k, and T is the newest event time of a at the end of that batch. No later row of
a has k, so no row of b can find a new partner in b's own windows. All rows of a with k have event times up to
T. So once b's watermark has passed T by the longest window on a, no later row of b with k is in their
windows:

    b's watermark   ------------------------------|----------->
    rows of a with k    x     x  x    T
                                      |<-- w_a -->| k is finished

If b has closed k, too, it is finished at once. A key is finished in one batch for all queries of a family.

Source: PWJoin (Ding et al., CIKM 2004), Theorems 3.1 (both sides) and 4.1 (one side and its window). The
paper takes the last row of k. Here T is the newest event time of the stream, which is the same under all
strategies, whatever rows they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from catalog.sql_text import quoted
from catalog.values.groups.grouping import key_name
from operators.kernels.keys import bucket_of
from operators.lineage.expressions import select_table
from operators.segments.row_codec import KEY, POS, TS
from operators.segments.segment import COLUMN, Segment

#: Sides; stored rows have the index of their side here as ``_pos``.
_SIDES = ("a", "b")


@dataclass(slots=True, eq=False)
class ClosedUntilFinished:
    """Keys that one side has closed and that are not finished; ``_ts`` is T, ``_pos`` the number of the side.

    Attributes:
        windows_us: Longest window per side.
        key_types: DuckDB types in which hashed keys are compared; empty if equal int64 keys are equal keys.
        segments: The keys; one segment at most.
    """

    windows_us: Mapping[str, int]
    key_types: tuple[str, ...]
    segments: list[Segment] = field(default_factory=list)

    def close(self, side: str, closings: pa.RecordBatch | None, newest_us: int | None) -> None:
        """Take in the keys that a side has closed in a batch.

        Args:
            side: ``a`` or ``b``.
            closings: The keys, as ``operators.closings`` has them.
            newest_us: Newest event time of the side's stream; None if it had no row, so no row has the keys.
        """
        if closings is None or not closings.num_rows:
            return
        rows = closings.num_rows
        newest = -(2**62) if newest_us is None else newest_us
        arrays = {
            KEY: closings.column(KEY),
            TS: pa.array(np.full(rows, newest, dtype=np.int64)),
            POS: pa.array(np.full(rows, _SIDES.index(side), dtype=np.int64)),
        }
        arrays |= {f"{COLUMN}{n}": closings.column(f"{COLUMN}{n}") for n in range(len(self.key_types))}
        self._keep([*self.segments, Segment(pa.RecordBatch.from_pydict(arrays), 0, ())])

    def finish(self, watermarks: Mapping[str, int | None]) -> pa.Table | None:
        """Take out the keys that are finished; None if there are none.

        Args:
            watermarks: Watermark per side at the end of the batch, µs.

        Returns:
            Columns ``_key`` and, of hashed keys, ``0``, ``1`` ...
        """
        if not self.segments:
            return None
        passed = []
        for number, (side, other) in enumerate((("a", "b"), ("b", "a"))):
            now = watermarks[other]
            if now is not None:
                passed.append(f"(_pos = {number} AND _ts <= {now - self.windows_us[side]})")
        names = ", ".join(map(quoted, self._names()))
        rows = _plain(self.segments[0])
        text = (
            f"SELECT {names} FROM closed GROUP BY {names} "
            f"HAVING count(DISTINCT _pos) = 2 OR bool_or({' OR '.join(passed) or 'false'})"
        )
        finished = select_table({"closed": rows}, text)
        if not finished.num_rows:
            return None
        left = select_table(
            {"closed": rows, "finished": finished},
            f"SELECT c.* FROM closed c ANTI JOIN finished f ON {self._same('c', 'f')} ORDER BY _key, _pos",
        )
        self.segments = [_segment(left)] if left.num_rows else []
        return finished

    def matches(self, partial: str, finished: str) -> str:
        """Return the SQL condition that a partial has a finished key.

        Args:
            partial: Name of a table of partials.
            finished: Name of a table that ``finish`` returned.
        """
        keys = [
            f'CAST({partial}.{key_name(n)} AS {kind}) IS NOT DISTINCT FROM {finished}."{n}"'
            for n, kind in enumerate(self.key_types)
        ]
        return " AND ".join([f"{partial}._key = {finished}._key", *keys])

    def take_rows(self, other: ClosedUntilFinished, number: int, buckets: int) -> None:
        """Take over the keys of another bucket that belong to this one, bucket ``number`` of ``buckets``."""
        own = [s.filter(bucket_of(s.key, buckets) == number) for s in other.segments]
        self._keep([*self.segments, *(segment for segment in own if len(segment))])

    def _keep(self, segments: Sequence[Segment]) -> None:
        """Keep the earliest T of each key and side."""
        if not segments:
            return
        names = ", ".join(map(quoted, self._names()))
        parts = {f"part{n}": _plain(segment) for n, segment in enumerate(segments)}
        every = " UNION ALL BY NAME ".join(f"SELECT * FROM {name}" for name in parts)
        text = (
            f"SELECT {names}, _pos, min(_ts) AS _ts FROM ({every}) GROUP BY {names}, _pos ORDER BY _key, _pos"
        )
        self.segments = [_segment(select_table(parts, text))]

    def _names(self) -> list[str]:
        return [KEY, *(str(n) for n in range(len(self.key_types)))]

    def _same(self, one: str, other: str) -> str:
        return " AND ".join(
            f"{one}.{quoted(name)} IS NOT DISTINCT FROM {other}.{quoted(name)}" for name in self._names()
        )


def _plain(segment: Segment) -> pa.Table:
    rows = pa.Table.from_batches([segment.rows.replace_schema_metadata(None)])
    return rows.rename_columns([name.removeprefix(COLUMN) for name in rows.column_names])


def _segment(rows: pa.Table) -> Segment:
    (batch,) = rows.combine_chunks().to_batches()
    names = [name if name in (KEY, TS, POS) else f"{COLUMN}{name}" for name in batch.schema.names]
    return Segment(batch.rename_columns(names), 0, ())
