"""Which rows a query may use, word for word as the design says it (section 1, Activation).

    "With ``backfill: none`` [it] gets exactly the qualifying pairs whose two rows were both processed in
    batch n or later. With ``backfill: state`` it also gets pairs of a row processed in batch n or later with
    an earlier row that is *held*. A row is held at n iff some query of the plan in force before n, entitled
    to that row, passes it through its own filter on that side, has a window that still reaches the opposite
    watermark at the end of batch n-1, and every column q needs of it was kept; what the state keeps beyond
    that (slack, merged slices) is masked."

A chronicle knows what happened, batch by batch, and answers by recursion over the plans: nothing is decided
when a query comes. So it shares no idea with ``operators.lineage.entitlement`` (terms unfolded at the
activation) nor with ``tests.operators.oracle`` (sets of entitled queries kept per row).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from catalog.values.control import Heartbeat
from catalog.values.query import Query
from catalog.values.stream import Stream
from tests.operators.oracle import Family, family_of, needs_one_match, passes, side_of
from tests.operators.queries import Row


@dataclass(frozen=True)
class Past:
    """One batch: the queries in force, the rows processed, and the watermarks at its end."""

    queries: Mapping[int, Query]
    rows: Mapping[int, Mapping[int, Row]]
    watermarks: Mapping[int, int]


@dataclass
class Chronicle:
    """All batches so far."""

    streams: Mapping[int, Stream]
    batches: list[Past] = field(default_factory=list)
    _known: dict[tuple[int, str, int], bool] = field(default_factory=dict)

    def batch(
        self,
        queries: Sequence[Query],
        rows: Mapping[int, Sequence[Row]],
        heartbeats: Sequence[Heartbeat] = (),
    ) -> None:
        """Write down a batch; ``queries`` are all in force, ``rows`` come with their late ones."""
        before = self.batches[-1].watermarks if self.batches else {}
        after = dict(before)
        processed = {}
        for stream_id, arrived in rows.items():
            limit = before.get(stream_id)
            processed[stream_id] = {r.pos: r for r in arrived if limit is None or r.ts >= limit}
            for row in arrived:
                reached = row.ts - self.streams[stream_id].lateness_us
                after[stream_id] = max(reached, after.get(stream_id, reached))
        for beat in heartbeats:
            after[beat.stream_id] = max(beat.watermark_us, after.get(beat.stream_id, beat.watermark_us))
        self.batches.append(Past({q.id: q for q in queries}, processed, after))

    def may_use(self, query: Query, side: str) -> set[int]:
        """Return the positions of all rows of a side that a query in force may use, however old."""
        mine = side_of(query, side)
        return {
            row.pos
            for batch, row in self._rows(mine.stream_id)
            if passes(mine, row) and self._entitled(query, side, batch, row)
        }

    def reached(self, query: Query, side: str, row: Row, batch: int, slack_us: int = 0) -> bool:
        """Return whether a query's window still reached the opposite watermark at the end of a batch."""
        opposite = side_of(query, "b" if side == "a" else "a").stream_id
        watermark = self.batches[batch].watermarks.get(opposite)
        return watermark is None or row.ts + side_of(query, side).window_us > watermark - slack_us

    def _entitled(self, query: Query, side: str, batch: int, row: Row) -> bool:
        fact = (query.id, side, row.pos)
        if fact not in self._known:
            n = next(i for i, past in enumerate(self.batches) if query.id in past.queries)
            self._known[fact] = batch >= n or (
                query.backfill == "state" and self._held(query, side, batch, row, n)
            )
        return self._known[fact]

    def _held(self, query: Query, side: str, batch: int, row: Row, n: int) -> bool:
        """Return whether a row of ``batch`` is held for a query that is activated at ``n``."""
        if not set(side_of(query, side).columns) <= self._kept(family_of(query), side, batch):
            return False
        return any(
            not needs_one_match(holder, side)
            and passes(side_of(holder, side), row)
            and self.reached(holder, side, row, n - 1)
            and self._entitled(holder, side, batch, row)
            for holder in self.batches[n - 1].queries.values()
            if family_of(holder) == family_of(query)
        )

    def _kept(self, family: Family, side: str, batch: int) -> set[str]:
        """Return what is kept of a row that is processed in a batch.

        The event time is, and what the family's queries need; and the key, in the form that keys have in the
        state: a single double does not come back from it.
        """
        members = [q for q in self.batches[batch].queries.values() if family_of(q) == family]
        kept = {self.streams[family[0 if side == "a" else 1]].event_time}
        for query in members:
            kept |= set(side_of(query, side).columns)
            if query.key_types != ("double",):
                kept |= {pair[0 if side == "a" else 1] for pair in query.key}
        return kept

    def _rows(self, stream_id: int) -> Iterator[tuple[int, Row]]:
        for number, past in enumerate(self.batches):
            for row in past.rows.get(stream_id, {}).values():
                yield number, row
