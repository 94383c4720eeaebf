"""Small scenes of two joined streams of which one closes keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog.values.query import Query
from catalog.values.stream import Constraints, Punctuations
from planner.build.build_plan import build_plan
from tests.builders import a_query, a_stream
from tests.operators.closings.promised import table_of
from tests.operators.harness import Runner
from tests.operators.queries import Row

#: Time and key of a row, or a key in brackets for a punctuation.
Item = tuple[int, object] | Sequence[object]

#: The contract of a stream whose punctuations fix ``k``.
ON_K = Punctuations((("k",),))


class Scene:
    """Two streams joined on ``k``; stream 2 has a contract."""

    def __init__(
        self,
        contract: Punctuations | None = ON_K,
        unique: tuple[str, ...] = (),
        *,
        buckets: int = 1,
        window_b_us: int = 10,
        lateness_us: int = 0,
        query: Query | None = None,
    ) -> None:
        promising = replace(a_stream(2, lateness_us), punctuations=contract, constraints=Constraints(unique))
        self.streams = {1: a_stream(1, lateness_us), 2: promising}
        self.runner = Runner(self.streams, buckets)
        queries = (a_query(1, 10, window_b_us) if query is None else query,)
        self._plans = [build_plan(queries, self.streams)]
        self._positions = dict.fromkeys(self.streams, 0)

    def batch(self, a: Sequence[Item] = (), b: Sequence[Item] = ()) -> set[tuple[int, int | None]]:
        """Feed (time, key) for a row, a key in brackets for a punctuation; return the results so far."""
        tables = {}
        for stream_id, items in ((1, a), (2, b)):
            rows, patterns = [], {}
            for item in items:
                pos, self._positions[stream_id] = self._positions[stream_id], self._positions[stream_id] + 1
                ts, key = item if isinstance(item, tuple) else (0, item[0])
                if isinstance(item, list):
                    patterns[stream_id, pos] = ("k",)
                rows.append(Row(pos, ts, {"k": key, "m": "x", "v": 1, "w": 1}))
            if rows:
                tables[stream_id] = table_of(self.streams[stream_id], rows, patterns)
        plans, self._plans = self._plans, []
        self.runner.step(tables, plans)
        return {(pos_a, pos_b) for _, pos_a, pos_b in self.runner.results if pos_a is not None}

    def replan(self, *queries: Query) -> None:
        """Change the queries from the next batch on."""
        self._plans = [build_plan(queries, self.streams, self.runner.plan)]

    @property
    def violating(self) -> set[int]:
        return {pos for _, side, pos in self.runner.violating if side == "b"}

    def held(self, side: str) -> set[int]:
        (family,) = self.runner.plan.families if self.runner.plan is not None else ()
        return set().union(*self.runner.state_rows(family.id, side))
