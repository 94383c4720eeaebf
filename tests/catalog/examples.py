"""Small values for the catalog's tests."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection

from catalog.store.store import Store
from catalog.values.batch import BatchManifest, ResultFile
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import FamilyPlan, JoinPlan, Plan, PlannedFilter, PlannedQuery, Slice
from catalog.values.query import Output, Query, QueryRecord
from catalog.values.routes.route_table import BatchRoutes, RouteTable
from catalog.values.source_file import SourceFile
from catalog.values.stream import Column, FilesSource, Stream
from tests.builders import EMPTY_BATCH, a_query

STREAM = Stream(
    id=0,
    name="flights",
    columns=(Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "decimal(10,2)")),
    event_time="ts",
    lateness_us=5_000_000,
    source=FilesSource("parquet", "/data/flights", max_files_per_batch=1),
)


def stream(name: str) -> Stream:
    """A stream that the catalog does not know yet."""
    return dataclasses.replace(STREAM, name=name)


def query(name: str, a: Stream, b: Stream, query_id: int = 0) -> Query:
    """A query over two registered streams."""
    low, columns = '"v" < 0.2', ("k", "ts")
    made = a_query(
        query_id,
        streams=(a, b),
        filter_a=low,
        filter_b=low,
        columns_a=columns,
        columns_b=columns,
        name=name,
    )
    cql = f"SELECT {a.name}.k FROM {a.name} [RANGE 10 SECONDS], {b.name} [RANGE 10 SECONDS]"
    return dataclasses.replace(made, cql=cql)


def add_query(store: Store, name: str, a: Stream, b: Stream, version: int = 1) -> QueryRecord:
    """Add a query under a reserved id."""
    return store.queries.add(query(name, a, b, store.queries.reserve_ids(1)[0]), version)


def plan(version: int, streams: tuple[Stream, ...] = (), queries: int = 1) -> Plan:
    """A plan of one family with so many queries."""
    planned = tuple(
        PlannedQuery(
            id=n,
            name=f"q{n}",
            w_a_us=n * 1_000_000,
            w_b_us=n * 1_000_000,
            filter_a=0,
            filter_b=None,
            residual=None,
            columns_a=("k", "ts"),
            columns_b=("k", "ts"),
            outputs=(Output("k", 'a."k"', "bigint"),),
            since_version=version,
            backfill="none",
        )
        for n in range(1, queries + 1)
    )
    ids = tuple(q.id for q in planned)
    chain = tuple(Slice((n - 1) * 1_000_000, n * 1_000_000, None) for n in ids)
    family = FamilyPlan(
        id="s1s2-00c0ffee",
        stream_a=1,
        stream_b=2,
        key=(("k", "k"),),
        key_types=("bigint",),
        columns_a=("k", "ts"),
        columns_b=("k", "ts"),
        filters_a=(PlannedFilter(0, '"v" < 0.2', ("v",)),),
        filters_b=(),
        queries=planned,
        strategy="mem-opt",
        joins=(JoinPlan("shared", ids, chain, chain),),
    )
    return Plan(version, "mem-opt", streams, (family,), (("s1s2-00c0ffee/a", 1),))


def manifest(batch: int, epoch: int, query_rows: dict[int, int] | None = None) -> BatchManifest:
    """The manifest of a batch with 100 rows of stream 1, 10 of them late."""
    rows = query_rows or {}
    return dataclasses.replace(
        EMPTY_BATCH,
        batch=batch,
        epoch=epoch,
        files=(ResultFile(f"part-{batch}-{epoch}.parquet", "s1s2-00c0ffee", sum(rows.values())),),
        streams=(StreamCounters(1, 100, 10, 1, 1_000 * (batch + 1), 2_000 * (batch + 1)),),
        slices=(
            SliceCounters("s1s2-00c0ffee", "a", 1, rows=50 - batch, bytes=400 + batch),
            SliceCounters("s1s2-00c0ffee", "b", 1, rows=5, bytes=40),
        ),
        query_rows=tuple(rows.items()),
        started_at_us=batch,
        committed_at_us=batch + 1,
    )


def commit(store: Store, made: BatchManifest, routes: Mapping[int, Sequence[int]] | None = None) -> bool:
    """Commit a batch that begins a generation; without routes each query with rows has one of its own."""
    own = {1000 + query_id: (query_id,) for query_id, _ in made.query_rows}
    table = RouteTable.of(own if routes is None else routes)
    return store.batches.commit(made, BatchRoutes(table, made.batch) if len(table) else None)


def stored_routes(store: Store) -> list[tuple[int, int, tuple[int, ...]]]:
    """All routes by number: number, plan version, query ids."""
    return sorted(
        (number, version, ids) for version, table in store.routes.all() for number, ids in table.ids().items()
    )


def listed(path: str, rows: int = 10) -> SourceFile:
    """A good file; the catalog gives its position."""
    return SourceFile(-1, path, size=1234, mtime_ns=10**18 + 1, rows=rows, t_min_us=0, t_max_us=9)


class Died(Exception):
    """Raised in place of a write, as if the process had died before it."""


@contextlib.contextmanager
def dying(store: Store, writes: int) -> Iterator[None]:
    """Let so many write transactions be committed; then no more, until the end of the block."""
    left = iter(range(writes))

    def check(_: Connection) -> None:
        if next(left, None) is None:
            raise Died

    store._database.guard(check)
    try:
        with contextlib.suppress(Died):
            yield
    finally:
        store._database.guard(None)


class Undone(Exception):
    """Raised to end a transaction without effect."""


@contextlib.contextmanager
def undone(store: Store) -> Iterator[None]:
    """A transaction that fails at its end."""
    with contextlib.suppress(Undone), store.transaction():
        yield
        raise Undone
