"""The load that plans change under: two generated streams and a hundred queries, a million rows of state.

Windows are mostly small, as in a row of State-Slice's Table 4 (VLDB 2006, §7.3), with values of ours: most
queries look back a second or less, a few as far as the longest window. Two queries take every row, so that
whatever else comes and goes the shared chain holds all rows of the longest window; the others have one of a
few selections on both streams or one. So all five strategies fit into memory: without sharing, where each
query holds its own rows, they are some five times as many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from catalog.values.query import Backfill, Query
from catalog.values.stream import Column, GeneratedColumn, GeneratorSource, Stream
from planner.bind.bind import bind
from tests.builders import stream_document

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US

#: Parts of the longest window, 16 of them: three quarters of the queries have one of the first twelve.
_SMALL = tuple(0.01 * n for n in range(1, 13))
_LARGE = (0.25, 0.5, 0.75, 0.9)
_SELECTIVITIES = (0.05, 0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Load:
    """Streams and queries; a batch is a multiple of the generator's chunks, 20,000 rows each.

    Attributes:
        state_rows: Rows that the longest window holds of both streams.
        queries: Queries.
        batch_rows: Rows of a micro-batch, both streams.
        longest_s: Longest window, seconds.
        seed: Of the rows.
    """

    state_rows: int = 1_000_000
    queries: int = 100
    batch_rows: int = 80_000
    longest_s: float = 10.0
    seed: int = 1

    @property
    def rate_per_s(self) -> float:
        """Rows per second of event time and stream."""
        return self.state_rows / (2 * self.longest_s)

    @property
    def batch_s(self) -> float:
        """Event time of a micro-batch, seconds."""
        return self.batch_rows / (2 * self.rate_per_s)

    @property
    def max_rows_per_batch(self) -> int:
        """Limit of admission that lets a whole batch through: rows per chunk vary, chunks do not."""
        return self.batch_rows * 11 // 10

    @property
    def batches_to_fill(self) -> int:
        """Batches after which the longest window is full."""
        return int(self.longest_s / self.batch_s) + 2

    @property
    def keys(self) -> int:
        """Distinct keys: one row in eight finds a partner, so that results are not what takes the time."""
        return 4 * self.state_rows

    def streams(self, batches: int) -> dict[str, Stream]:
        """Return the two streams by name, with rows for so many batches."""
        rows = batches * self.batch_rows // 2
        columns = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
        values = (
            GeneratedColumn("k", low=0, high=self.keys),
            GeneratedColumn("v", low=0, high=1),
        )
        return {
            name: Stream(
                id=number,
                name=name,
                columns=columns,
                event_time="ts",
                lateness_us=0,
                source=GeneratorSource(self.rate_per_s, self.seed + number, values, rows, START_US),
            )
            for number, name in ((1, "A"), (2, "B"))
        }

    def documents(self) -> list[dict[str, Any]]:
        """Return the bodies that register these streams, with as many rows as anybody reads."""
        start = datetime.fromtimestamp(START_US // SECOND_US, UTC).isoformat()
        generated = {"k": {"low": 0, "high": self.keys}, "v": {"low": 0, "high": 1}}
        source = {"type": "generator", "rate_per_s": self.rate_per_s, "start": start, "columns": generated}
        columns = {"ts": "timestamp", "k": "bigint", "v": "double"}
        return [
            stream_document(name, columns) | {"source": source | {"seed": self.seed + number}}
            for number, name in ((1, "A"), (2, "B"))
        ]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """CQL of the queries."""
        texts = [self.text(self.longest_s), self.text(self.longest_s * _LARGE[1])]
        for number in range(self.queries - len(texts)):
            windows = _LARGE if number % 4 == 3 else _SMALL
            window_s = self.longest_s * windows[number // 4 % len(windows)]
            selectivity = _SELECTIVITIES[number % len(_SELECTIVITIES)]
            sides = ("A", "B")[number // 10 % 2] if number % 10 == 9 else "AB"
            texts.append(self.text(window_s, dict.fromkeys(sides, selectivity)))
        return tuple(texts[: self.queries])

    def text(self, window_s: float, below: dict[str, float] | None = None) -> str:
        """Return a query with one window for both streams, and filters ``v < below`` by stream."""
        where = " AND ".join(["A.k = B.k", *(f"{s}.v < {x}" for s, x in (below or {}).items())])
        windows = ", ".join(f"{s} [RANGE {round(window_s * 1000)} MILLISECONDS]" for s in "AB")
        return f"SELECT A.ts AS ats, B.ts AS bts, A.k, A.v AS av, B.v AS bv FROM {windows} WHERE {where}"

    def bound(self, text: str, query_id: int, backfill: Backfill = "none") -> Query:
        """Return a query with an id of its own, named ``q<id>``."""
        return bind(text, self.streams(1), name=f"q{query_id}", query_id=query_id, backfill=backfill)

    @cached_property
    def bound_queries(self) -> tuple[Query, ...]:
        """The queries, bound, with ids from 1."""
        return tuple(self.bound(text, number) for number, text in enumerate(self.texts, 1))

    def coming_and_going(self, number: int) -> str:
        """Return the text of a query that comes and goes: windows and selections vary with the number."""
        window_s = self.longest_s * (0.05 + 0.07 * (number % 12))
        side = "AB"[number % 2]
        return self.text(window_s, {side: (0.02, 0.06, 0.12, 0.25, 0.4)[number % 5]})

    def sized(self, *, longest_s: float, queries: int, batch_rows: int = 40_000) -> Load:
        """Return a smaller load of the same shape: the same rates, so that chunks stay as they are."""
        state_rows = round(2 * self.rate_per_s * longest_s)
        return replace(
            self, state_rows=state_rows, longest_s=longest_s, queries=queries, batch_rows=batch_rows
        )
