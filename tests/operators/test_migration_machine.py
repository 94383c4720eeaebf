"""Queries come, go, change, pause and resume, chains are cut again, processes crash: in any order.

Inner joins as well as outer, semi and anti ones. A Hypothesis state machine over the operators. Changes are
gathered until rows come, so that one boundary may carry any number of them, in one plan version or several;
``tests.operators.world`` checks everything after every batch. ``test_stack_differential`` has more rows and
families per case; this has more history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from catalog.values.control import Heartbeat
from catalog.values.plan import Boundaries, Plan, Replication, Strategy
from catalog.values.query import UNBOUNDED_US, Backfill, JoinKind, Query
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.placement.replication import HASHED
from planner.build.transitions.retained_boundaries import NO_BOUNDARIES, retained_boundaries
from planner.families.families import families, family_id
from tests.builders import Key, a_query, a_stream
from tests.examples import examples
from tests.operators.cases import ABSENCE_KINDS, ALL_STRATEGIES, C_SYS, SETTINGS, SPREADS, replicated
from tests.operators.chains import rechained
from tests.operators.durable import Crash
from tests.operators.queries import Row
from tests.operators.world import World

COLUMNS = (("k", "bigint"), ("m", "string"), ("v", "int"), ("w", "int"), ("x", "double"))
#: Streams, key and its types. The first is likelier: queries must meet in a family to hand rows on.
FAMILIES: tuple[tuple[tuple[int, int], Key, tuple[str, ...]], ...] = (
    ((1, 2), (("k", "k"),), ("bigint",)),
    ((1, 2), (("k", "k"),), ("bigint",)),
    ((1, 2), (("x", "x"),), ("double",)),
    ((1, 2), (("m", "m"), ("k", "k")), ("string", "bigint")),
    ((1, 1), (("k", "k"),), ("bigint",)),
)
WINDOWS_US = (9, 30, 1, 5, 14, 60, 400, UNBOUNDED_US)
FILTERS = (None, '"v" < 5', '"v" > 2', '"w" = 1', '"x" > 1')
RESIDUALS = (None, None, None, 'a."v" < b."v"')
CRASHES: tuple[Crash, ...] = ("never", "never", "before-commit", "after-commit")
DOUBLES = (1.5, float("nan"), 0.0, -0.0, None)

#: Values of each field of a row drawn as one integer; zero is the plainest row.
_FIELDS = {"stream": 2, "advance": 5, "back": 10, "k": 4, "m": 3, "v": 9, "w": 3, "x": 5}
_ROW_CODES = 2 * 5 * 10 * 4 * 3 * 9 * 3 * 5

_arrivals = st.lists(st.integers(0, _ROW_CODES - 1), max_size=9)
#: None leaves the change waiting for others at the same boundary.
_then = st.one_of(st.none(), _arrivals)


@dataclass(frozen=True)
class Definition:
    """What a query says, whatever its id."""

    family: int
    w_a_us: int
    w_b_us: int
    filter_a: str | None
    filter_b: str | None
    residual: str | None
    columns: tuple[str, ...]
    kind: tuple[JoinKind, tuple[Literal["a", "b"], ...]] = ("inner", ())
    spreads: bool = False
    beside_inner: bool = False

    def query(self, query_id: int, backfill: Backfill, latest: Plan | None) -> Query:
        """Return the definition as a query that enters.

        Args:
            query_id: Its id.
            backfill: Whether held rows take part.
            latest: Plan of the last version; None before the first.
        """
        streams, key, kinds = FAMILIES[self.family]
        known = {} if latest is None else latest.replications()
        spreads = self.spreads and len(self.kind[1]) == 1
        hashed = not known.get(family_id(*streams, key), HASHED).replicates
        return a_query(
            query_id,
            self.w_a_us,
            self.w_b_us,
            filter_a=self.filter_a,
            filter_b=self.filter_b,
            residual=self.residual,
            streams=streams,
            key=key,
            key_types=kinds,
            columns_a=self.columns,
            columns_b=self.columns,
            backfill=backfill,
            kind=self.kind[0],
            preserved=self.kind[1],
            spreads=spreads,
            beside_inner=self.beside_inner and self.kind[0] != "inner" and not spreads and hashed,
        )


_definitions = st.builds(
    Definition,
    st.integers(0, len(FAMILIES) - 1),
    st.sampled_from(WINDOWS_US),
    st.sampled_from(WINDOWS_US),
    st.sampled_from(FILTERS),
    st.sampled_from(FILTERS),
    st.sampled_from(RESIDUALS),
    st.sampled_from(((), ("v", "w", "x"), ("v",), ("w", "m"))),
    # Those of each kind meet in families of their own, so few kinds let more queries meet.
    st.sampled_from((("inner", ()),) * 6 + ABSENCE_KINDS),
    st.booleans(),
    st.booleans(),
)
_backfills: st.SearchStrategy[Backfill] = st.sampled_from(("state", "none"))


class Lifecycle(RuleBasedStateMachine):
    """Names with their definitions; each entry into the plan gives a name a new query id."""

    @initialize(
        lateness=st.tuples(*[st.sampled_from((0, 4, 12))] * 2),
        buckets=st.sampled_from((1, 1, 2, 3)),
        slack_us=st.sampled_from((0, None, 6)),
        strategy=st.sampled_from(ALL_STRATEGIES),
        first=st.lists(_definitions, min_size=1, max_size=3),
    )
    def start(
        self,
        lateness: tuple[int, int],
        buckets: int,
        slack_us: int | None,
        strategy: Strategy,
        first: Sequence[Definition],
    ) -> None:
        streams = {i: a_stream(i, lateness[i - 1], COLUMNS) for i in (1, 2)}
        self.world = World(streams, buckets, slack_us)
        self.clock, self.positions = 100, {1: 0, 2: 0}
        self.names, self.ids = 0, 0
        self.running: dict[int, Query] = {}
        self.defined: dict[int, Definition] = {}
        self.plans: list[Plan] = []
        self.latest: Plan | None = None
        self.changed = False
        self.strategy: Strategy = strategy
        self.chain: int | None = None
        self.pinned: Boundaries | None = None
        self.leaves = False
        self.spread = HASHED
        for definition in first:
            self._enter(self._new_name(), definition, "none")
        self._push([])

    @rule(definition=_definitions, backfill=_backfills, then=_then)
    def add(self, definition: Definition, backfill: Backfill, then: list[int] | None) -> None:
        self._enter(self._new_name(), definition, backfill)
        self._go_on(then)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 7), then=_then)
    def remove(self, which: int, then: list[int] | None) -> None:
        name = self._pick(self.running, which)
        del self.defined[name]
        self._leave(name)
        self._go_on(then)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 7), to=_definitions, moves=st.sampled_from((False, False, True)), then=_then)
    def update(self, which: int, to: Definition, moves: bool, then: list[int] | None) -> None:
        """The old id leaves, a new one enters with what the old one, among others, held."""
        name = self._pick(self.running, which)
        if not moves:
            to = replace(to, family=self.defined[name].family)
        self._leave(name)
        self._enter(name, to, "state")
        self._go_on(then)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 7), then=_then)
    def pause(self, which: int, then: list[int] | None) -> None:
        self._leave(self._pick(self.running, which))
        self._go_on(then)

    @precondition(lambda self: self.defined.keys() - self.running.keys())
    @rule(which=st.integers(0, 7), then=_then)
    def resume(self, which: int, then: list[int] | None) -> None:
        name = self._pick(self.defined.keys() - self.running.keys(), which)
        self._enter(name, self.defined[name], "state")
        self._go_on(then)

    @rule(to=st.sampled_from(ALL_STRATEGIES), then=_then)
    def migrate(self, to: Strategy, then: list[int] | None) -> None:
        self.strategy, self.chain, self.pinned, self.leaves, self.changed = to, None, None, False, True
        self._go_on(then)

    @rule(chain=st.integers(0, 999), then=_then)
    def migrate_to_any_chain(self, chain: int, then: list[int] | None) -> None:
        self.chain, self.changed = chain, True
        self._go_on(then)

    @rule(ends=st.sets(st.integers(1, 40), max_size=3), leave=st.booleans(), then=_then)
    def pin(self, ends: set[int], leave: bool, then: list[int] | None) -> None:
        """Slices as an operator cuts them; or those of departed queries stay, until another migration."""
        at = tuple(sorted(ends))
        self.pinned = Boundaries(at, at) if ends else None
        self.chain, self.leaves, self.changed = None, leave, True
        self._go_on(then)

    @rule(spread=st.sampled_from(SPREADS), then=_then)
    def replicate(self, spread: Replication, then: list[int] | None) -> None:
        """More buckets share the rows of some keys, in the families that there are."""
        self.spread, self.changed = spread, True
        self._go_on(then)

    @precondition(lambda self: self.changed)
    @rule()
    def end_version(self) -> None:
        """What comes next is another plan version, at the same boundary."""
        self._plan()

    @rule(codes=_arrivals, crash=st.sampled_from(CRASHES))
    def push(self, codes: list[int], crash: Crash) -> None:
        self._push(codes, crash=crash)

    @rule(codes=_arrivals, stream=st.integers(1, 2), ahead=st.integers(-20, 20))
    def push_with_heartbeat(self, codes: list[int], stream: int, ahead: int) -> None:
        self._push(codes, [Heartbeat(stream, self.clock + ahead)])

    def _new_name(self) -> int:
        self.names += 1
        return self.names

    def _pick(self, names: Iterable[int], which: int) -> int:
        ordered = sorted(names)
        name: int = ordered[which % len(ordered)]
        return name

    def _enter(self, name: int, definition: Definition, backfill: Backfill) -> None:
        self.ids += 1
        self.defined[name] = definition
        self.running[name] = definition.query(self.ids, backfill, self.latest)
        self.changed = True

    def _leave(self, name: int) -> None:
        del self.running[name]
        self.changed = True

    def _go_on(self, then: list[int] | None) -> None:
        if then is not None:
            self._push(then)

    def _plan(self) -> None:
        queries = tuple(self.running.values())
        plan = build_plan(
            queries,
            self.world.streams,
            self.latest,
            objective=Objective(
                strategy=self.strategy,
                pinned=NO_BOUNDARIES
                if self.pinned is None
                else dict.fromkeys(families(queries), self.pinned),
                cost_model="paper",
                c_sys=C_SYS,
            ),
            left=retained_boundaries(self.latest, queries) if self.leaves else NO_BOUNDARIES,
        )
        self.latest = replicated(plan, self.spread)
        self.spread = HASHED
        chosen = self.latest if self.chain is None else rechained(self.latest, self.chain)
        self.plans.append(chosen)
        self.changed = False

    def _push(
        self, codes: Sequence[int], heartbeats: Sequence[Heartbeat] = (), crash: Crash = "never"
    ) -> None:
        if self.changed:
            self._plan()
        queries = tuple(self.running.values()) if self.plans else None
        self.world.batch(self._rows(codes), self.plans, queries, heartbeats, crash)
        self.plans = []

    def _rows(self, codes: Sequence[int]) -> dict[int, list[Row]]:
        rows: dict[int, list[Row]] = {1: [], 2: []}
        for code in codes:
            facts = {}
            for name, count in _FIELDS.items():
                code, facts[name] = divmod(code, count)
            self.clock += (1, 0, 2, 5, 25)[facts["advance"]]
            stream_id = 1 + facts["stream"]
            # Mostly in order; sometimes back, beyond the lateness too.
            ts = self.clock - max(0, facts["back"] - 5) * 4
            values: dict[str, object] = {
                "k": (1, 1, 2, None)[facts["k"]],
                "m": ("p", "q", None)[facts["m"]],
                "v": None if facts["v"] == 8 else facts["v"],
                "w": (1, 0, None)[facts["w"]],
                "x": DOUBLES[facts["x"]],
            }
            rows[stream_id].append(Row(self.positions[stream_id], ts, values))
            self.positions[stream_id] += 1
        return rows


def test_any_history_gives_what_the_oracles_say() -> None:
    run_state_machine_as_test(
        Lifecycle, settings=settings(SETTINGS, max_examples=examples(100, short=12), stateful_step_count=20)
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_any_new_history_gives_what_the_oracles_say() -> None:
    """New cases every time; a failure prints its steps."""
    run_state_machine_as_test(
        Lifecycle,
        settings=settings(SETTINGS, derandomize=False, max_examples=6_000, stateful_step_count=40),
    )
