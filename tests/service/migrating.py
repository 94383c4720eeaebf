"""A catalog with two streams, its plan versions and migrations, without an engine: batches are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from catalog.store.store import Store
from catalog.values.change import AddQuery, RemoveQuery
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import Plan
from catalog.values.stream import Column, HttpSource, Stream
from planner.build.objective import Objective
from planner.families.families import SIDES, SideName, side_chain
from service.documents.migration_document import MigrationDocument, MigrationRequest
from service.inputs.reading.sample import CatalogRows
from service.planning.dry_run import dry_run
from service.planning.migrating.migrations import Migrations
from service.planning.preview import Statistician
from service.planning.versions import Versions
from tests.builders import EMPTY_BATCH
from tests.empty_catalog import prepared
from tests.epochs import begin_epoch
from tests.service.applying import apply_changes

SECOND_US = 1_000_000
KEY = "A.k = B.k"


@dataclass
class Desk:
    """One service's plans.

    Attributes:
        store: The catalog.
        base: Objective of the settings.
        try_out: What tries versions out.
        now_us: Wall clock, moved by the test.
    """

    store: Store
    base: Objective = field(default_factory=Objective)
    try_out: Callable[[Plan | None, Plan], None] = dry_run
    now_us: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        statistician = Statistician(self.store, CatalogRows(self.store), buckets=2)
        self.versions = Versions(
            self.store, statistician, self.base, try_out=self.try_out, now_us=lambda: self.now_us
        )
        self.migrations = Migrations(self.versions)

    @property
    def plan(self) -> Plan:
        plan = self.store.control_log.latest_plan()
        assert plan is not None
        return plan

    def add(self, name: str, window_s: float, condition: str = "", streams: str = "A B") -> None:
        a, b = streams.split()
        window = f"[RANGE {window_s} SECONDS]"
        cql = f"SELECT {a}.k FROM {a} {window}, {b} {window} WHERE {a}.k = {b}.k{condition}"
        apply_changes(self.versions, AddQuery(name, cql))

    def remove(self, name: str) -> None:
        apply_changes(self.versions, RemoveQuery(name))

    def migrate(self, **body: Any) -> int:
        """Migrate and return the id."""
        return self.migrations.migrate(request(**body), actor="tester").record.id

    def ends(self, side: SideName = "a", family: int = 0) -> list[float]:
        """Where the slices of a side end, seconds."""
        (join,) = self.plan.families[family].joins
        return [s.w_end_us / SECOND_US for s in side_chain(join, side)]

    def batch(self, rows: int = 100, millis: int = 500) -> None:
        """Commit a batch under the newest plan, with ``rows`` in every slice."""
        if not self.epoch:
            self.epoch = begin_epoch(self.store)
        last = self.store.batches.last_manifest()
        number = 0 if last is None else last.batch + 1
        start = number * SECOND_US
        slices = tuple(
            SliceCounters(f.id, side, n, rows=rows, bytes=10 * rows, join=join.id)
            for f in self.plan.families
            for join in f.joins
            for side in SIDES
            for n, _ in enumerate(side_chain(join, side), start=1)
        )
        self.store.batches.commit(
            replace(
                EMPTY_BATCH,
                batch=number,
                epoch=self.epoch,
                plan_version=self.plan.version,
                slices=slices,
                started_at_us=start,
                committed_at_us=start + 1000 * millis,
            )
        )


def request(**body: Any) -> MigrationRequest:
    """Return a request as its JSON says."""
    return MigrationDocument.model_validate(body).to_request()


@contextmanager
def desk(directory: Path, **options: Any) -> Iterator[Desk]:
    """Open a desk with streams A, B and C; opened again on the same directory it goes on."""
    store = Store.open(prepared(f"sqlite:///{directory}/catalog.db"))
    try:
        if not store.streams.all():
            columns = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
            for name in "ABC":
                store.streams.add(Stream(0, name, columns, "ts", 0, HttpSource()))
        yield Desk(store, **options)
    finally:
        store.close()
