"""Random cases with windows of rows, and nested loops that count rows one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from catalog.values.control import Heartbeat
from catalog.values.plan import Plan
from catalog.values.query import UNBOUNDED_US, Clock, Query
from catalog.values.stream import Stream
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.strategies.strategies import STRATEGIES
from tests.builders import a_query, a_stream
from tests.operators.cases import C_SYS
from tests.operators.harness import Runner
from tests.operators.oracle import join_key, passes
from tests.operators.queries import FILTERS_OF_ALL, RESIDUALS, Row, a_table

CLOCKS: tuple[Clock, ...] = ("time", "rows", "key rows")
WINDOWS = (1, 2, 3, 7, 20)
WINDOWS_US = (1, 3, 10, 40, UNBOUNDED_US)
BATCHES = 4

Pair = tuple[int, int, int]
Family = tuple[int, int, bool, Clock, Clock]


@dataclass
class RankedLoops:
    """All rows so far, and the pairs that have been given: nested loops that count rows one by one.

    Attributes:
        streams: Streams by id.
        rows: Rows of each stream that were not late, with the batch that brought them.
        given: Pairs that were decided, whether they are results or not.
        began: Batch in which the first query of each family came; earlier rows do not count for it.
        since: Batch in which each query came.
    """

    streams: Mapping[int, Stream]
    queries: tuple[Query, ...] = ()
    batch: int = 0
    rows: dict[int, list[tuple[Row, int]]] = field(default_factory=lambda: {1: [], 2: []})
    newest: dict[int, int] = field(default_factory=dict)
    beats: dict[int, int] = field(default_factory=dict)
    given: set[Pair] = field(default_factory=set)
    began: dict[Family, int] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)

    def step(
        self,
        queries: Sequence[Query] | None,
        rows: Mapping[int, Sequence[Row]],
        beats: Mapping[int, int],
    ) -> Counter[Pair]:
        """Process one batch and return its results."""
        if queries is not None:
            self.queries = tuple(queries)
            present = {family_of(q) for q in queries}
            self.began = {f: self.began.get(f, self.batch) for f in present}
            for query in queries:
                self.since.setdefault(query.id, self.batch)
        start = {i: self.watermark(i) for i in rows}
        for stream_id, came in rows.items():
            limit = start[stream_id]
            self.rows[stream_id] += [(r, self.batch) for r in came if limit is None or r.ts >= limit]
            times = [r.ts for r in came] + ([self.newest[stream_id]] if stream_id in self.newest else [])
            if times:
                self.newest[stream_id] = max(times)
        for stream_id, time in beats.items():
            self.beats[stream_id] = max(time, self.beats.get(stream_id, time))
        found: Counter[Pair] = Counter()
        for query in self.queries:
            found.update(self._results(query))
        self.batch += 1
        return found

    def watermark(self, stream_id: int) -> int | None:
        known = [self.beats[stream_id]] if stream_id in self.beats else []
        if stream_id in self.newest:
            known.append(self.newest[stream_id] - self.streams[stream_id].lateness_us)
        return max(known, default=None)

    def _results(self, query: Query) -> list[Pair]:
        ids = {"a": query.a.stream_id, "b": query.b.stream_id}
        clocks = {"a": query.a.clock, "b": query.b.clock}
        passed = [self.watermark(ids[s]) for s in "ab" if clocks[s] != "time"]
        if None in passed:
            return []
        limit = min(p for p in passed if p is not None)
        began = self.began[family_of(query)]
        counting = {s: [r for r, batch in self.rows[ids[s]] if batch >= began] for s in "ab"}
        own = {
            s: [r for r, batch in self.rows[ids[s]] if batch >= self.since[query.id] and r.ts < limit]
            for s in "ab"
        }
        found = []
        for a in own["a"]:
            for b in own["b"]:
                pair = (query.id, a.pos, b.pos)
                if pair in self.given:
                    continue
                self.given.add(pair)
                keys = [join_key([row.values[name] for name, _ in query.key]) for row in (a, b)]
                if keys[0] is None or keys[0] != keys[1]:
                    continue
                if not (passes(query.a, a) and passes(query.b, b)):
                    continue
                if query.residual is not None and not RESIDUALS[query.residual].passes(a.values, b.values):
                    continue
                if (a.ts <= b.ts and age(clocks["a"], a, b.ts, counting["a"]) < query.a.window_us) or (
                    b.ts <= a.ts and age(clocks["b"], b, a.ts, counting["b"]) < query.b.window_us
                ):
                    found.append(pair)
        return found


def age(clock: Clock, row: Row, time: int, rows: Sequence[Row]) -> int:
    """Return how old a row is at a time: µs, or rows of its stream, or of its key, that came behind it."""
    if clock == "time":
        return time - row.ts
    return sum(
        (r.ts, r.pos) > (row.ts, row.pos)
        and r.ts <= time
        and (clock == "rows" or r.values["k"] == row.values["k"])
        for r in rows
    )


def family_of(query: Query) -> Family:
    return query.a.stream_id, query.b.stream_id, bool(query.key), query.a.clock, query.b.clock


@dataclass(frozen=True)
class RankedCase:
    streams: Mapping[int, Stream]
    buckets: int
    slack_us: int | None
    plans: Mapping[int, tuple[Plan, tuple[Query, ...]]]
    batches: tuple[Mapping[int, tuple[Row, ...]], ...]
    beats: Mapping[int, Mapping[int, int]]


@st.composite
def ranked_cases(draw: st.DrawFn) -> RankedCase:
    streams = {i: a_stream(i, draw(st.sampled_from((0, 4, 30)))) for i in (1, 2)}
    clocks = draw(st.sampled_from([(a, b) for a in CLOCKS for b in CLOCKS if (a, b) != ("time", "time")]))
    sides = draw(st.sampled_from(((1, 2), (1, 2), (1, 2), (1, 1))))
    queries = [
        _query(draw, number, sides, clocks if draw(st.integers(0, 3)) else clocks[::-1])
        for number in range(1, draw(st.integers(2, 6)))
    ]
    plans: dict[int, tuple[Plan, tuple[Query, ...]]] = {}
    previous: Plan | None = None
    running: list[Query] = []
    for batch in range(BATCHES):
        changes = batch == 0 or draw(st.integers(0, 2)) == 2
        if not changes:
            continue
        arriving = [q for q in queries if q not in running and (draw(st.booleans()) or batch == 0)]
        staying = [q for q in running if draw(st.integers(0, 4)) < 4]
        # A query never comes back under its id.
        queries = [q for q in queries if q in staying or q in arriving or q not in running]
        running = [*staying, *arriving]
        objective = Objective(draw(st.sampled_from(sorted(STRATEGIES))), c_sys=C_SYS)
        previous = build_plan(running, streams, previous, objective=objective)
        plans[batch] = previous, tuple(running)
    positions = {1: 0, 2: 0}
    clock, batches = 1000, []
    for _ in range(BATCHES):
        came: dict[int, list[Row]] = {}
        for code in draw(st.lists(st.integers(0, 2**20), max_size=12)):
            clock += (0, 0, 1, 2, 9)[code % 5]
            stream_id = 1 + code // 5 % 2
            back = (0, 0, 0, 1, 3, 12)[code // 10 % 6]
            values = {
                "k": (1, 1, 2, 3, None)[code // 60 % 5],
                "m": "x",
                "v": code // 300 % 8,
                "w": code // 2400 % 3,
            }
            came.setdefault(stream_id, []).append(Row(positions[stream_id], clock - back, values))
            positions[stream_id] += 1
        batches.append({i: tuple(rows) for i, rows in came.items()})
    beats = {
        batch: {draw(st.sampled_from((1, 2))): clock + draw(st.integers(-20, 5))}
        for batch in range(BATCHES)
        if draw(st.integers(0, 3)) == 3
    }
    return RankedCase(
        streams, draw(st.integers(1, 4)), draw(st.sampled_from((0, None))), plans, tuple(batches), beats
    )


def _query(draw: st.DrawFn, number: int, sides: tuple[int, int], clocks: tuple[Clock, ...]) -> Query:
    windows = [draw(st.sampled_from(WINDOWS_US if clock == "time" else WINDOWS)) for clock in clocks]
    keyed = "key rows" in clocks or draw(st.integers(0, 2)) > 0
    query = a_query(
        number,
        windows[0],
        windows[1],
        streams=sides,
        key=(("k", "k"),) if keyed else (),
        filter_a=draw(st.sampled_from([None, *FILTERS_OF_ALL])),
        filter_b=draw(st.sampled_from([None, None, *FILTERS_OF_ALL])),
        residual=draw(st.sampled_from([None, None, *sorted(RESIDUALS)])),
    )
    return replace(query, a=replace(query.a, clock=clocks[0]), b=replace(query.b, clock=clocks[1]))


def check_ranked(
    case: RankedCase,
    inspect: Callable[[Runner, RankedLoops], None] | None = None,
    runner: Runner | None = None,
) -> int:
    """Run a case beside nested loops, compare the results of each batch, and return how many there are.

    Args:
        case: What to run; behind its batches both streams end.
        inspect: Called after every batch.
        runner: Runs the batches; by default one whose buckets are stored and read back.
    """
    loops = RankedLoops(case.streams)
    runner = runner or Runner(case.streams, case.buckets, case.slack_us, stored=True)
    found = 0
    for batch in range(BATCHES + 1):
        plan, queries = case.plans.get(batch, (None, None))
        rows = case.batches[batch] if batch < BATCHES else {}
        beats = case.beats.get(batch, {}) if batch < BATCHES else dict.fromkeys((1, 2), 10_000)
        expected = loops.step(queries, rows, beats)
        in_force = plan or runner.plan
        flowing = {s.id for s in in_force.streams} if in_force is not None else set()
        runner.results.clear()
        runner.step(
            {i: a_table(case.streams[i], of) for i, of in rows.items() if i in flowing},
            [plan] if plan is not None else (),
            [Heartbeat(i, time) for i, time in beats.items() if i in flowing],
        )
        assert runner.results == expected, f"batch {batch}"
        found += expected.total()
        if inspect is not None:
            inspect(runner, loops)
    return found
