"""The adaptive objective over a catalog: what the watcher's loop does with what batches have committed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from catalog.store.store import Store
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.counters.family_counters import FilterCounters, SliceCounters
from catalog.values.plan import Plan
from catalog.values.query import Query
from planner.bind.bind import bind
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from planner.families.families import SIDES, side_chain
from service.config.settings import AdaptiveSettings
from service.inputs.reading.sample import CatalogRows
from service.inputs.sources.posted.http_log import EventLog
from service.planning.preview import Statistician
from service.planning.versions import Versions
from service.workspace.adaptive import LOOKS, Adaptive
from tests.builders import EMPTY_BATCH
from tests.service.pairs import open_store

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
POLICY = AdaptiveSettings(interval_s=30.0, min_batches=5)
JOIN = "SELECT A.k, A.v FROM A [RANGE {0} SECONDS], B [RANGE {0} SECONDS] WHERE A.k = B.k"


@dataclass
class World:
    """A catalog whose job commits a batch per second; the clock is the number of batches."""

    store: Store
    events: EventLog
    adaptive: Adaptive = field(init=False)
    queries: tuple[Query, ...] = ()
    batch: int = 0
    rate: float = 50.0
    versions: Versions = field(init=False)

    def __post_init__(self) -> None:
        statistician = Statistician(self.store, CatalogRows(self.store, self.events), 1)
        objective = Objective("cpu-opt", cost_model="paper", c_sys=1000.0)
        self.versions = Versions(self.store, statistician, objective)
        self.adaptive = Adaptive(self.store, self.versions, POLICY)
        streams = {s.name: s for s in self.store.streams.all()}
        texts = (JOIN.format(1), JOIN.format(10) + " AND A.v < 0.2")
        with self.store.transaction():
            self.queries = tuple(
                bind(text, streams, name=f"q{n}", query_id=self.store.queries.reserve_ids(1)[0])
                for n, text in enumerate(texts, 1)
            )
            for query in self.queries:
                self.store.queries.add(query, 1)
            self.versions.append(self.queries, None, SHIPPED, cause="workload", actor="script")

    @property
    def now_us(self) -> int:
        return START_US + self.batch * SECOND_US

    @property
    def plan(self) -> Plan:
        plan = self.store.control_log.latest_plan()
        assert plan is not None
        return plan

    @property
    def slices(self) -> int:
        (family,) = self.plan.families
        return len(side_chain(family.joins[0], "a"))

    def second(self, *, rows: bool = True) -> Plan | None:
        """Commit a batch of a second at the rate, and look."""
        (family,) = self.plan.families
        brought = round(self.rate) if rows else 0
        newest_us = self.now_us if rows else None
        held = tuple(
            SliceCounters(
                family=family.id,
                side=side,
                slice=number,
                rows=1000,
                bytes=48_000,
                segments=10,
                touched=100,
                product=100_000,
            )
            for side in SIDES
            for number in range(1, len(side_chain(family.joins[0], side)) + 1)
        )
        (bit,) = [f.bit for f in family.filters_a]
        self.store.batches.commit(
            replace(
                EMPTY_BATCH,
                batch=self.batch,
                epoch=self.store.lease.epoch(),
                plan_version=self.plan.version,
                streams=tuple(StreamCounters(n, brought, 0, 0, newest_us, newest_us) for n in (1, 2)),
                slices=held,
                started_at_us=self.now_us,
                committed_at_us=self.now_us,
                filters=(FilterCounters(family.id, "a", bit, brought, round(0.2 * brought)),),
            )
        )
        self.batch += 1
        return self.adaptive.run_once(self.now_us)

    def seconds(self, count: int) -> list[int]:
        """Let time pass; return the batches after which another plan was logged."""
        return [self.batch for _ in range(count) if self.second() is not None]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(open_store(tmp_path)) as store, closing(EventLog(tmp_path / "events.db")) as events:
        yield World(store, events)


def test_a_chain_follows_its_streams_rates_and_the_history_says_so(world: World) -> None:
    # Nothing was known: a thousand rows per second were assumed.
    assert world.slices == 2
    (merged,) = world.seconds(100)
    assert (world.slices, world.plan.version) == (1, 2)
    # One look in a third of the interval, the first of them with few batches.
    assert merged == 31
    world.rate = 2000.0
    (cut,) = world.seconds(100)
    assert (world.slices, world.plan.version) == (2, 3)
    entries = {e.version: (e.actor, e.cause) for e in world.store.plan_history.page()}
    assert entries[1] == ("script", "workload")
    for version in (2, 3):
        actor, cause = entries[version]
        assert actor == "service"
        assert cause.startswith("adaptive: predicted ")
        assert cause.endswith(" rows")
    assert cut - merged >= POLICY.interval_s


def test_however_rates_change_there_is_an_interval_between_two_plans(world: World) -> None:
    found = []
    for turn in range(6):
        world.rate = 1000.0 if turn % 2 else 20.0
        found += world.seconds(70)
    assert len(found) > 2
    assert min(b - a for a, b in itertools.pairwise(found)) >= POLICY.interval_s


def test_few_batches_decide_nothing(world: World) -> None:
    for _ in range(60):
        world.second(rows=False)
    assert world.seconds(POLICY.min_batches - 1) == []
    assert world.slices == 2


def test_a_version_that_is_not_in_force_yet_is_waited_for(world: World) -> None:
    world.seconds(25)
    before = world.plan
    with world.store.transaction():
        world.versions.append(world.queries, before, SHIPPED, cause="migrate", actor="anna")
    # The job still commits batches under the version before.
    for _ in range(LOOKS):
        world.batch += 10
        assert world.adaptive.run_once(world.now_us) is None
    assert world.plan.version == before.version + 1


def test_plans_that_weigh_no_costs_are_not_looked_at(world: World) -> None:
    world.versions.base = Objective("mem-opt")
    with world.store.transaction():
        world.versions.append(world.queries, world.plan, SHIPPED, cause="migrate", actor="anna")
    assert world.seconds(100) == []
