"""Random cases for Hypothesis: a few queries, rows in arrival order, cuts into batches, plan changes.

Every plan version of a case draws its strategy, so that plan changes go from any strategy to any other; the
oracle knows nothing of strategies.

A row is drawn as one integer that is taken apart into its fields: drawing thousands of small values one by
one would cost more than running the operators. Zero is the plainest row, so that failing cases shrink well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from catalog.values.control import Heartbeat, Horizon
from catalog.values.plan import ALL_BUCKETS, Plan, Replication, Strategy
from catalog.values.query import UNBOUNDED_US, JoinKind, Query
from catalog.values.stream import Stream
from operators.bucket.batch_output import BatchOutput
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.placement.replication import HASHED
from planner.strategies.strategies import STRATEGIES
from tests.builders import Key, a_query, a_stream
from tests.operators.harness import Runner
from tests.operators.oracle import NestedLoops, Result, side_of
from tests.operators.queries import FILTERS_OF_ALL, RESIDUALS, Row, a_table

#: Settings of all examples here. They are the same every time, but in ``make test-slow``.
SETTINGS = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

#: Streams and keys of the families that random queries fall into; repeated ones are likelier.
FAMILIES: tuple[tuple[tuple[int, int], Key, tuple[str, ...]], ...] = (
    ((1, 2), (("k", "k"),), ("bigint",)),
    ((1, 2), (("k", "k"),), ("bigint",)),
    ((1, 2), (("k", "k"),), ("bigint",)),
    ((1, 2), (("m", "m"),), ("string",)),
    ((1, 2), (("k", "k"), ("m", "m")), ("bigint", "string")),
    ((1, 1), (("k", "k"),), ("bigint",)),
    ((1, 1), (("k", "w"),), ("bigint",)),
    ((2, 3), (("k", "k"),), ("bigint",)),
    ((1, 3), (("w", "v"),), ("int",)),
    ((1, 2), (), ()),
)
#: From [NOW] to UNBOUNDED; 400 µs is long enough for a slack of its own, 1/40 of it.
WINDOWS_US = (1, 2, 5, 9, 14, 30, 400, UNBOUNDED_US)
#: Event times before 1970, around zero, and of our days: zero is also what an empty segment says.
BASES_US = (0, -100, 1_700_000_000_000_000)
ALL_STRATEGIES: tuple[Strategy, ...] = tuple(STRATEGIES)
#: Mostly none; the keys are those of the streams' small domains.
SPREADS: tuple[Replication, ...] = (
    *[HASHED] * 5,
    Replication(ALL_BUCKETS),
    Replication(2),
    Replication(1, ((1, 2),)),
    Replication(1, ((1, ALL_BUCKETS), (2, 2))),
    Replication(2, ((-5, 8), (0, 3), (2, 4))),
)
#: Dear enough that CPU-Opt merges slices of the assumed rates, so that it is not Mem-Opt in disguise.
C_SYS = 1.0

INNER: tuple[tuple[JoinKind, tuple[Literal["a", "b"], ...]], ...] = (("inner", ()),)
ABSENCE_KINDS: tuple[tuple[JoinKind, tuple[Literal["a", "b"], ...]], ...] = (
    ("outer", ("a",)),
    ("outer", ("b",)),
    ("outer", ("a", "b")),
    ("anti", ("a",)),
    ("anti", ("b",)),
    ("anti", ("a", "b")),
    ("semi", ("a",)),
    ("semi", ("b",)),
    *INNER,
)

# Fields of a drawn row and how many values each has.
_FIELDS = {"cut": 8, "advance": 5, "back": 12, "stream": 3, "k": 4, "m": 3, "v": 9, "w": 4}
_ROW_CODES = 8 * 5 * 12 * 3 * 4 * 3 * 9 * 4

_windows = st.sampled_from(WINDOWS_US)
_columns = st.sampled_from(((), ("v",), ("w",), ("k", "v"), ("m", "ts"), ("k", "m", "ts", "v", "w")))
_few_filters = st.lists(st.sampled_from(FILTERS_OF_ALL), max_size=4, unique=True)
#: Mostly none: every probed pair of segments costs a call of the evaluator.
_few_residuals: st.SearchStrategy[list[str]] = st.one_of(
    st.just([]), st.just([]), st.lists(st.sampled_from(sorted(RESIDUALS)), max_size=2, unique=True)
)


@dataclass(frozen=True)
class Pool:
    """What the queries of one case are drawn from: few predicates, so that queries share them."""

    families: tuple[tuple[tuple[int, int], Key, tuple[str, ...]], ...]
    filters: tuple[str | None, ...]
    residuals: tuple[str | None, ...]
    kinds: tuple[tuple[JoinKind, tuple[Literal["a", "b"], ...]], ...] = INNER
    spreads: bool = False
    beside_inner: bool = False


@dataclass(frozen=True)
class Step:
    """One batch.

    Attributes:
        queries: All queries that run from now on; None: as before.
        rows: Rows by arrival, with their stream.
        heartbeats: Heartbeats after the rows.
        between: Queries of another plan version at the same boundary, before ``queries``.
        strategy: How the queries are planned.
        spread: What every family is replicated by from now on, beside what it was so far.
        horizons: Horizons before the rows.
    """

    queries: tuple[Query, ...] | None
    rows: tuple[tuple[int, Row], ...]
    heartbeats: tuple[Heartbeat, ...] = ()
    between: tuple[Query, ...] | None = None
    strategy: Strategy = "mem-opt"
    spread: Replication = HASHED
    horizons: tuple[Horizon, ...] = ()

    def by_stream(self, streams: Sequence[int]) -> dict[int, list[Row]]:
        """Return the rows per stream; a stream not among ``streams`` does not flow yet."""
        rows: dict[int, list[Row]] = {}
        for stream_id, row in self.rows:
            if stream_id in streams:
                rows.setdefault(stream_id, []).append(row)
        return rows


@dataclass(frozen=True)
class Case:
    """A whole run."""

    streams: Mapping[int, Stream]
    steps: tuple[Step, ...]
    buckets: int
    slack_us: int | None
    stored: bool


@dataclass
class Outcome:
    """What a run gave.

    Attributes:
        results: Times each (query id, position of a, position of b) was delivered.
        late: Positions of late rows per stream.
        runner: The run, at its end.
    """

    results: Counter[Result]
    late: dict[int, set[int]]
    runner: Runner


def run(case: Case, rewrite: Callable[[Plan], Plan] = lambda plan: plan) -> Outcome:
    """Run a case through the operators alone, every plan rewritten before it takes effect."""
    runner = Runner(case.streams, case.buckets, case.slack_us, case.stored)
    plans: list[Plan] = []
    for step in case.steps:
        changes = plan_versions(step, case, plans[-1] if plans else None)
        plans += changes
        _feed(runner, step, [rewrite(plan) for plan in changes], plans[-1])
    return Outcome(runner.results, runner.late, runner)


def check(case: Case, inspect: Callable[[Runner, NestedLoops], None] | None = None) -> Outcome:
    """Run a case beside the oracle and compare results, their values and late rows after every batch.

    Args:
        case: What to run.
        inspect: Called after every batch, to compare more.
    """
    runner = Runner(case.streams, case.buckets, case.slack_us, case.stored)
    oracle = NestedLoops(case.streams)
    plans: list[Plan] = []
    sources: dict[tuple[int, int], Row] = {}
    expected: Counter[Result] = Counter()
    for step in case.steps:
        changes = plan_versions(step, case, plans[-1] if plans else None)
        plans += changes
        flowing = [s.id for s in plans[-1].streams]
        rows = step.by_stream(flowing)
        sources |= {(stream_id, r.pos): r for stream_id, arrived in rows.items() for r in arrived}
        beats = [b for b in step.heartbeats if b.stream_id in flowing]
        expected += oracle.step(step.queries, rows, beats, step.horizons)
        outputs = _feed(runner, step, changes, plans[-1])
        where = f"batch {oracle.batch - 1}"
        if runner.results != expected:
            missing, surplus = expected - runner.results, runner.results - expected
            raise AssertionError(f"{where}: missing {dict(missing)}, surplus {dict(surplus)}")
        assert _filled(runner.late) == _filled(oracle.late), where
        for output in outputs:
            check_values(output, plans[-1], oracle, sources)
        if inspect is not None:
            inspect(runner, oracle)
    return Outcome(runner.results, runner.late, runner)


def plan_versions(step: Step, case: Case, previous: Plan | None) -> list[Plan]:
    """Return the plan versions that take effect before a batch."""
    plans: list[Plan] = []
    for queries in (step.between, step.queries):
        if queries is not None:
            plan = build_plan(
                queries,
                case.streams,
                previous,
                objective=Objective(step.strategy, cost_model="paper", c_sys=C_SYS),
            )
            previous = replicated(plan, step.spread)
            plans.append(previous)
    return plans


def replicated(plan: Plan, spread: Replication) -> Plan:
    """Return the plan with at least so many fragments of every family's keys."""
    families = (
        f if f.judges_absence else replace(f, replication=f.replication.grown(spread)) for f in plan.families
    )
    return replace(plan, families=tuple(families))


def _feed(runner: Runner, step: Step, plans: Sequence[Plan], plan: Plan) -> list[BatchOutput]:
    flowing = [s.id for s in plan.streams]
    tables = {i: a_table(runner.streams[i], rows) for i, rows in step.by_stream(flowing).items()}
    beats = [b for b in step.heartbeats if b.stream_id in flowing]
    return runner.step(tables, plans, beats, horizons=step.horizons)


def _filled(late: Mapping[int, set[int]]) -> dict[int, set[int]]:
    return {stream_id: positions for stream_id, positions in late.items() if positions}


def check_values(
    output: BatchOutput,
    plan: Plan,
    oracle: NestedLoops,
    sources: Mapping[tuple[int, int], Row],
) -> None:
    """Every column that a query needs of a result must be its source row's, or NULL where it is absent."""
    by_id, batch = {q.id: q for q in oracle.queries}, oracle.batch - 1
    for family, table in output.results.items():
        ids = output.routes[family].table().ids()
        table = table.set_column(3, "_event_time", table.column("_event_time").cast(pa.int64()))
        for found in table.to_pylist():
            if found["_event_time"] is None:
                continue  # a result punctuation
            members = [by_id[i] for i in ids[found["_route"]]]
            assert (found["_batch"], found["_plan_version"]) == (batch, plan.version)
            for side in ("a", "b"):
                if found[f"_pos_{side}"] is None:
                    absent = {name: value for name, value in found.items() if name.startswith(f"{side}_")}
                    assert not any(value is not None for value in absent.values()), absent
                    continue
                row = sources[side_of(members[0], side).stream_id, found[f"_pos_{side}"]]
                for name in {name for q in members for name in side_of(q, side).columns} - {"ts"}:
                    assert repr(found[f"{side}_{name}"]) == repr(row.values[name]), (side, name, row)
            for query in members:
                time_us = found["_event_time"]
                if query.kind in ("outer", "anti"):
                    # Absent rows are stored with their own time, to which readers add the query's window.
                    time_us += query.a.window_us if found["_pos_b"] is None else 0
                    time_us += query.b.window_us if found["_pos_a"] is None else 0
                assert time_us == oracle.times[query.id, found["_pos_a"], found["_pos_b"]]


def a_few(strategies: Sequence[Strategy]) -> st.SearchStrategy[list[Strategy]]:
    """Draw strategies for one case: few, so that changes under one strategy are as likely as others."""
    return st.lists(st.sampled_from(strategies), min_size=1, max_size=2, unique=True)


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    activations: bool = False,
    late: bool = True,
    max_rows: int = 60,
    family: int | None = None,
    strategies: Sequence[Strategy] = ALL_STRATEGIES,
    absence: bool = False,
) -> Case:
    """Draw a case.

    Args:
        draw: Given by Hypothesis.
        activations: Queries come and go between batches.
        late: Rows may come later than their stream's lateness allows.
        max_rows: Rows at most.
        family: Index into ``FAMILIES`` of the only family; None takes any.
        strategies: Strategies of its plans; with ``activations`` one may also change by its strategy alone.
        absence: Most queries are outer, semi and anti joins.
    """
    lateness = draw(st.tuples(*[st.sampled_from((0, 3, 12))] * 3))
    streams = {i: a_stream(i, lateness[i - 1]) for i in (1, 2, 3)}
    lags = draw(st.tuples(*[st.sampled_from((0, 0, 4, 25))] * 3))
    batches = _arrivals(draw, draw(st.integers(0, max_rows)), lateness, lags, late)
    pool = Pool(
        families=FAMILIES if family is None else (FAMILIES[family],),
        filters=(None, None, None, *draw(_few_filters)),
        residuals=(None, None, *draw(_few_residuals)),
        kinds=ABSENCE_KINDS if absence else INNER,
        spreads=absence and draw(st.booleans()),
        beside_inner=absence and draw(st.booleans()),
    )
    changes = _changes(draw, len(batches), activations, pool)
    beats = _heartbeats(draw, batches)
    few = draw(a_few(strategies))
    steps = tuple(
        Step(
            changes.get(n, (None, None))[1],
            rows,
            beats.get(n, ()),
            changes.get(n, (None, None))[0],
            draw(st.sampled_from(few)) if n in changes else "mem-opt",
            # Where rows of inner joins are in several buckets, none of them is judged.
            draw(st.sampled_from(SPREADS)) if n in changes and not pool.beside_inner else HASHED,
        )
        for n, rows in enumerate(batches)
    )
    buckets = draw(st.sampled_from((1, 2, 2, 3, 8)))
    slack_us = draw(st.sampled_from((0, None, 4)))
    return Case(streams, steps, buckets, slack_us, stored=draw(st.booleans()))


def _arrivals(
    draw: st.DrawFn, count: int, lateness: Sequence[int], lags: Sequence[int], late: bool
) -> list[tuple[tuple[int, Row], ...]]:
    codes = draw(st.lists(st.integers(0, _ROW_CODES - 1), min_size=count, max_size=count))
    clock = draw(st.sampled_from(BASES_US))
    batches: list[list[tuple[int, Row]]] = [[]]
    positions = dict.fromkeys((1, 2, 3), 0)
    for code in codes:
        facts = {}
        for name, count in _FIELDS.items():
            code, facts[name] = divmod(code, count)
        if facts["cut"] == 7:
            batches.append([])
        clock += (0, 1, 1, 3, 40)[facts["advance"]]
        # Mostly in order; sometimes back, beyond the lateness too.
        back = max(0, facts["back"] - 6) * 3
        stream_id = (1, 2, 3)[facts["stream"]] if facts["m"] else 1 + facts["stream"] % 2
        if not late:
            back = min(back, lateness[stream_id - 1])
        values: dict[str, object] = {
            "k": (1, 1, 2, None)[facts["k"]],
            "m": ("x", "y", None)[facts["m"]],
            "v": None if facts["v"] == 8 else facts["v"],
            "w": (1, 0, 2, None)[facts["w"]],
        }
        ts = clock - lags[stream_id - 1] - back
        batches[-1].append((stream_id, Row(positions[stream_id], ts, values)))
        positions[stream_id] += 1
    return [tuple(batch) for batch in batches]


def _changes(
    draw: st.DrawFn, batches: int, activations: bool, pool: Pool
) -> dict[int, tuple[tuple[Query, ...] | None, tuple[Query, ...]]]:
    """Draw changes by batch: now and then through a version in between, and the queries from then on."""
    running = [_query(draw, number, pool, False) for number in range(1, draw(st.integers(1, 6)) + 1)]
    changes: dict[int, tuple[tuple[Query, ...] | None, tuple[Query, ...]]] = {0: (None, tuple(running))}
    number = len(running)
    for batch in range(1, batches if activations else 0):
        change = draw(st.integers(0, 3))
        if change < 2:
            continue
        if change == 2:
            # The same queries, perhaps under another strategy.
            changes[batch] = (None, tuple(running))
            continue
        running = [q for q in running if draw(st.integers(0, 3)) != 3]
        added = draw(st.integers(0, 2))
        for _ in range(added):
            number += 1
            running.append(_query(draw, number, pool, True))
        # In between, who leaves has left and the last one has not come yet.
        between = tuple(running[:-1]) if added and draw(st.integers(0, 2)) == 2 else None
        changes[batch] = (between, tuple(running))
    return changes


def _query(draw: st.DrawFn, number: int, pool: Pool, backfills: bool) -> Query:
    streams, key, kinds = draw(st.sampled_from(pool.families))
    return a_query(
        number,
        draw(_windows),
        draw(_windows),
        filter_a=draw(st.sampled_from(pool.filters)),
        filter_b=draw(st.sampled_from(pool.filters)),
        residual=draw(st.sampled_from(pool.residuals)),
        streams=streams,
        key=key,
        key_types=kinds,
        columns_a=draw(_columns),
        columns_b=draw(_columns),
        backfill="state" if backfills and draw(st.integers(0, 3)) else "none",
        **_kind(draw, pool, keyed=bool(key)),
    )


def _kind(draw: st.DrawFn, pool: Pool, *, keyed: bool) -> dict[str, Any]:
    if pool.kinds == INNER:
        return {}
    kind, preserved = draw(st.sampled_from(pool.kinds))
    spreads = pool.spreads and len(preserved) == 1
    beside_inner = pool.beside_inner and kind != "inner" and not spreads and keyed
    return {"kind": kind, "preserved": preserved, "spreads": spreads, "beside_inner": beside_inner}


def _heartbeats(
    draw: st.DrawFn, batches: Sequence[Sequence[tuple[int, Row]]]
) -> dict[int, tuple[Heartbeat, ...]]:
    beats: dict[int, tuple[Heartbeat, ...]] = {}
    for number, rows in enumerate(batches):
        if rows and draw(st.integers(0, 9)) == 9:
            _, row = rows[0]
            beats[number] = (Heartbeat(draw(st.integers(1, 3)), row.ts + draw(st.integers(-10, 10))),)
    return beats
