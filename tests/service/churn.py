"""Churn without Spark: catalog, planner and operators in one process, with thousands of changes.

    control log --> Runner (buckets, stored and read back after every batch) --> manifest --> pruning

A run goes through the same batches of the same rows with and without changes; in the end the same queries are
there. What both have at the end can be compared: rows of every table, state, lineage, memory.

    python -m tests.service.churn --changes 5000 --batches 250 [--give-results] [--keep 64]
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from sqlalchemy import LargeBinary, Text, func, select

from catalog.store.database import tables
from catalog.store.store import Store
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.query import Backfill, Query
from catalog.values.routes.counts.query_rows import summed_rows
from catalog.values.stream import Column, HttpSource, Stream
from operators.bucket.batch_output import BatchOutput
from operators.bucket.counters import slice_table
from operators.bucket.state.manifest import encode_manifest
from planner.bind.bind import bind
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from service.commit.route_dictionary import RouteDictionary
from service.commit.upkeep.pruning import Pruner
from service.commit.upkeep.retention import ResultRetention
from service.inputs.reading.sample import CatalogRows
from service.planning.preview import Statistician
from service.planning.versions import Versions
from tests.builders import EMPTY_BATCH
from tests.empty_catalog import prepared
from tests.epochs import begin_epoch
from tests.operators.harness import Runner

SECOND_US = 1_000_000
ROWS_PER_BATCH = 40
KEYS = 64
#: Batches of a second each; the longest window of all is 24 s, so nothing of a change is left after these.
TAIL_BATCHES = 28
#: So many queries besides those that stay run at a time.
TRANSIENT = 20

STAYING = tuple(
    (
        f"q{n}",
        f"SELECT A.k, A.v, B.v AS w FROM A [RANGE {2 * n} SECONDS], B [RANGE {2 * n} SECONDS] "
        f"WHERE A.k = B.k AND A.v < 0.{1 + n % 6}",
    )
    for n in range(1, 13)
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What there is at the end of a run.

    Attributes:
        rows: Rows per table.
        text_bytes: Characters in the text columns of each table.
        state_bytes: Encoded segments of all buckets.
        manifest_bytes: Manifests of all buckets.
        plan_bytes: The plan in the state of one bucket.
        segments: Number of segments.
        filters: Most filters that a segment knows.
        words: Most lineage words of a segment.
        terms: Held terms of all queries and buckets.
        rss_bytes: Memory of the process.
        results: Results of the queries that stay, by name.
        seconds: What the run took.
    """

    rows: dict[str, int]
    text_bytes: dict[str, int]
    state_bytes: int
    manifest_bytes: int
    plan_bytes: int
    segments: int
    filters: int
    words: int
    terms: int
    rss_bytes: int
    results: dict[str, int]
    seconds: float


@dataclass(slots=True)
class ChurningService:
    """A service in miniature.

    Attributes:
        directory: Where its catalog is.
        seed: Of rows and changes.
        give_results: Whether queries that come and go get results.
        keep: Batches whose results are kept; None for all.
    """

    directory: Path
    seed: int
    give_results: bool = False
    keep: int | None = None
    store: Store = field(init=False)
    streams: dict[str, Stream] = field(init=False)
    versions: Versions = field(init=False)
    pruner: Pruner = field(init=False)
    retention: ResultRetention = field(init=False)
    runner: Runner = field(init=False)
    transient: deque[str] = field(default_factory=deque)
    added: int = 0
    control: int = 0
    epoch: int = 0
    results: Counter[int] = field(default_factory=Counter)
    routes: RouteDictionary = field(default_factory=RouteDictionary)

    def __post_init__(self) -> None:
        self.store = Store.open(prepared(f"sqlite:///{self.directory / 'catalog.db'}"))
        columns = (
            Column("ts", "timestamp"),
            Column("k", "bigint"),
            Column("j", "bigint"),
            Column("v", "double"),
        )
        self.streams = {
            name: self.store.streams.add(Stream(0, name, columns, "ts", 0, HttpSource()))
            for name in ("A", "B")
        }
        self.versions = Versions(
            self.store, Statistician(self.store, CatalogRows(self.store), buckets=2), Objective()
        )
        self.pruner = Pruner(self.store, interval_s=0, grace_s=0)
        # Batch n is committed at n µs.
        nowhere = self.directory / "nowhere"
        self.retention = ResultRetention(
            self.store, nowhere, nowhere, self.keep, str(nowhere), interval_s=0, thin_interval_s=0
        )
        by_id = {stream.id: stream for stream in self.streams.values()}
        self.runner = Runner(by_id, buckets=2, slack_us=None, stored=True)
        self.epoch = begin_epoch(self.store)

    def add(self, name: str, cql: str, backfill: Backfill = "none") -> None:
        """Add a query as a plan version of its own."""
        with self.store.transaction():
            query = bind(
                cql, self.streams, name=name, backfill=backfill, query_id=self.store.queries.reserve_ids(1)[0]
            )
            self.store.queries.add(query, self.versions.next)
            self._replan(f"add {name}")

    def remove(self, name: str) -> None:
        """Remove a query as a plan version of its own."""
        with self.store.transaction():
            self.store.queries.remove(name, self.versions.next)
            self._replan(f"remove {name}")

    def change(self, rng: np.random.Generator) -> None:
        """Let a query come, or the oldest of those that came go."""
        if self.transient and (len(self.transient) >= TRANSIENT or rng.random() < 0.5):
            self.remove(self.transient.popleft())
            return
        n = self.added = self.added + 1
        # Filters and windows that nobody ever had; every fifth in a family of its own.
        key = "j" if n % 5 == 0 else "k"
        limit = 0.5 + n * 1e-6 if self.give_results else -float(n)
        window = f"[RANGE {1000 * (1 + n % 17) + n % 1000} MILLISECONDS]"
        cql = f"SELECT A.k FROM A {window}, B {window} WHERE A.{key} = B.{key} AND A.v < {limit!r}"
        self.add(f"t{n}", cql, "state" if n % 2 else "none")
        self.transient.append(f"t{n}")

    def batch(self, number: int) -> None:
        """Process a batch of a second of both streams, commit and prune."""
        records = self.store.control_log.records(self.control)
        plans = [record.plan for record in records if record.plan is not None]
        self.control = max([self.control, *(record.seq for record in records)])
        rng = np.random.default_rng((self.seed, number))
        rows = {stream.id: _rows(rng, number) for stream in self.streams.values()}
        outputs = self.runner.step(rows, plans)
        self._commit(number, outputs)
        self.runner.results.clear()
        self.pruner.run_once(number)
        self.retention.run_once(number)

    def figures(self, seconds: float) -> Figures:
        """Return what there is now."""
        gc.collect()
        pa.default_memory_pool().release_unused()
        buckets = self.runner.state
        segments = [s for bucket in buckets for joins in bucket.families.values() for s in joins.segments()]
        sizes = {table.name: self._size(table) for table in tables.metadata.sorted_tables}
        names = {record.query.id: record.query.name for record in self.store.queries.running()}
        return Figures(
            rows={name: size[0] for name, size in sizes.items()},
            text_bytes={name: size[1] for name, size in sizes.items()},
            state_bytes=sum(len(data) for stored in self.runner.segments for data in stored.values()),
            manifest_bytes=sum(len(encode_manifest(bucket)) for bucket in buckets),
            plan_bytes=len(str(buckets[0].plan)),
            segments=len(segments),
            filters=max((len(s.filters) for s in segments), default=0),
            words=max((sum(n.startswith("_l") for n in s.rows.schema.names) for s in segments), default=0),
            terms=sum(
                len(terms)
                for bucket in buckets
                for sides in bucket.terms.values()
                for by_query in sides.values()
                for terms in by_query.values()
            ),
            rss_bytes=psutil.Process().memory_info().rss,
            results={names[i]: count for i, count in sorted(self.results.items()) if i in names},
            seconds=seconds,
        )

    def close(self) -> None:
        """Close the catalog."""
        self.store.close()

    def _replan(self, cause: str) -> None:
        queries: list[Query] = [record.query for record in self.store.queries.running()]
        self.versions.append(queries, self.store.control_log.latest_plan(), SHIPPED, cause=cause)

    def _commit(self, number: int, outputs: list[BatchOutput]) -> None:
        version = self.runner.plan.version if self.runner.plan is not None else 0
        query_rows: Counter[int] = Counter()
        for output in outputs:
            for found in output.routes.values():
                query_rows.update(dict(summed_rows([found.query_rows()])))
        routes = [found.table() for output in outputs for found in output.routes.values()]
        self.results += query_rows
        streams = tuple(
            StreamCounters(i, s.rows, 0, 0, s.watermark.value_us, s.watermark.max_event_time_us)
            for i, s in sorted(self.runner.state[0].streams.items())
        )
        slices = [
            c for bucket in self.runner.state for c in slice_table(bucket.families, bucket.clocks).counters()
        ]
        manifest = replace(
            EMPTY_BATCH,
            batch=number,
            epoch=self.epoch,
            plan_version=version,
            streams=streams,
            slices=tuple(replace(c, rows=0, bytes=0) for c in slices),
            query_rows=tuple(sorted(query_rows.items())),
            started_at_us=number,
            committed_at_us=number,
        )
        plan_version, generation = self.store.control_log.plan, self.store.routes.generation
        brought = self.routes.new_routes(manifest, routes, plan_version, generation)
        assert self.store.batches.commit(manifest, brought)
        self.routes.committed(manifest, brought)

    def _size(self, table: object) -> tuple[int, int]:
        assert isinstance(table, tables.Table)
        texts = [c for c in table.c if isinstance(c.type, Text | LargeBinary)]
        with self.store._database.read() as connection:
            rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
            lengths = [connection.execute(select(func.sum(func.length(c)))).scalar() or 0 for c in texts]
        return int(rows), int(sum(lengths))


def measure(
    changes: int,
    batches: int,
    directory: Path,
    *,
    seed: int = 1,
    give_results: bool = False,
    keep: int | None = None,
) -> Figures:
    """Run a service through batches with so many changes, and return what is left of them.

    Args:
        changes: Adds and removes, each a plan version; 0 for the service to compare with.
        batches: Batches over which they are spread evenly; ``TAIL_BATCHES`` without changes follow.
        directory: An empty directory.
        seed: Of rows and changes.
        give_results: Whether queries that come and go get results.
        keep: Batches whose results are kept; None for all.
    """
    started_s = time.perf_counter()
    service = ChurningService(directory, seed, give_results, keep)
    try:
        for name, cql in STAYING:
            service.add(name, cql)
        rng = np.random.default_rng(seed)
        done = 0
        for number in range(batches):
            while done < changes * (number + 1) // batches:
                service.change(rng)
                done += 1
            service.batch(number)
        while service.transient:
            service.remove(service.transient.popleft())
        for number in range(batches, batches + TAIL_BATCHES):
            service.batch(number)
        return service.figures(time.perf_counter() - started_s)
    finally:
        service.close()


def _rows(rng: np.random.Generator, number: int) -> pa.Table:
    ts = np.sort(rng.integers(number * SECOND_US, (number + 1) * SECOND_US, ROWS_PER_BATCH))
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us")),
            "k": pa.array(rng.integers(0, KEYS, ROWS_PER_BATCH)),
            "j": pa.array(rng.integers(0, KEYS, ROWS_PER_BATCH)),
            "v": pa.array(rng.random(ROWS_PER_BATCH)),
            "_pos": pa.array(np.arange(number * ROWS_PER_BATCH, (number + 1) * ROWS_PER_BATCH)),
        }
    )


def main() -> None:
    """Print the figures of one run as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--give-results", action="store_true")
    parser.add_argument("--keep", type=int)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(
            args.changes,
            args.batches,
            Path(directory),
            seed=args.seed,
            give_results=args.give_results,
            keep=args.keep,
        )
    json.dump(asdict(found), sys.stdout)


if __name__ == "__main__":
    main()
