"""A catalog with committed batches of hand-written pairs, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.store.store import Store
from catalog.values.batch import ResultFile
from catalog.values.query import Output, Query
from catalog.values.routes.route_table import BatchRoutes, RouteTable
from planner.families.families import family_id
from tests.builders import EMPTY_BATCH, a_query, a_stream
from tests.empty_catalog import prepared
from tests.epochs import begin_epoch

COLUMNS = (("k", "bigint"), ("v", "double"), ("d", "decimal(10,2)"))


def open_store(tmp_path: Path) -> Store:
    """Open a catalog with the streams A (1) and B (2)."""
    store = Store.open(prepared(f"sqlite:///{tmp_path / 'catalog.db'}"))
    begin(store)
    return store


def begin(store: Store) -> None:
    """Register the streams A (1) and B (2), and begin the first epoch."""
    for name in ("A", "B"):
        store.streams.add(a_stream(0, columns=COLUMNS, name=name))
    begin_epoch(store)


def add_query(
    store: Store, name: str, outputs: Sequence[Output], columns: tuple[str, ...] = ("k", "v")
) -> Query:
    """Add a query over A and B that stores ``columns`` of both sides."""
    query_id = store.queries.reserve_ids(1)[0]
    made = a_query(query_id, columns_a=columns, columns_b=columns, outputs=tuple(outputs), name=name)
    query = replace(made, cql=f"-- {name}")
    store.queries.add(query, 1)
    return query


class Batches:
    """Writes result files and commits their manifests, batch after batch.

    Args:
        store: The catalog.
        results_dir: Where the files go.
        routes: Query ids by route.
        spacing_us: Wall clock from commit to commit.
    """

    family = family_id(1, 2, (("k", "k"),))

    def __init__(
        self,
        store: Store,
        results_dir: Path,
        routes: Mapping[int, tuple[int, ...]],
        *,
        spacing_us: int = 0,
    ) -> None:
        self.store = store
        self.spacing_us = spacing_us
        self.started_us = 0
        self.sized = False  # whether manifests have the lengths of files
        self.version = 1
        self.results_dir = results_dir
        self.routes = routes
        self.next = 0
        results_dir.mkdir(parents=True, exist_ok=True)

    def commit(self, *files: Sequence[Mapping[str, Any]]) -> None:
        """Commit a batch of files; a row has ``route``, ``t``, ``pos`` (a, b), ``a_...`` and ``b_...``."""
        rows = [row for file in files for row in file]
        manifest_files = []
        for number, file in enumerate(files):
            path = f"b{self.next:06}-f-e{self.store.lease.epoch()}-{number}.parquet"
            pq.write_table(self._table(file), self.results_dir / path)
            size = (self.results_dir / path).stat().st_size if self.sized else None
            manifest_files.append(ResultFile(path, self.family, len(file), size))
        given = {
            q: sum(q in self.routes[r["route"]] for r in rows) for qs in self.routes.values() for q in qs
        }
        used = sorted({row["route"] for row in rows})
        table = RouteTable.of({route: self.routes[route] for route in used})
        self.store.batches.commit(
            replace(
                EMPTY_BATCH,
                batch=self.next,
                epoch=self.store.lease.epoch(),
                plan_version=self.version,
                files=tuple(manifest_files),
                query_rows=tuple(sorted(given.items())),
                started_at_us=0,
                committed_at_us=self.started_us + self.next * self.spacing_us,
            ),
            BatchRoutes(table, self.next) if used else None,
        )
        self.next += 1

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        types = {"ts": pa.timestamp("us"), "k": pa.int64(), "v": pa.float64(), "d": pa.decimal128(10, 2)}
        columns: dict[str, pa.Array] = {
            "_route": pa.array([r["route"] for r in rows], pa.int64()),
            "_plan_version": pa.array([1 for _ in rows], pa.int32()),
            "_batch": pa.array([self.next for _ in rows], pa.int64()),
            "_event_time": pa.array([r["t"] for r in rows], pa.timestamp("us")),
            "_pos_a": pa.array([r["pos"][0] for r in rows], pa.int64()),
            "_pos_b": pa.array([r["pos"][1] for r in rows], pa.int64()),
        }
        for name in sorted({name for row in rows for name in row} - {"route", "t", "pos"}):
            columns[name] = pa.array([row.get(name) for row in rows], types[name[2:]])
        return pa.table(columns)
