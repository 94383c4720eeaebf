"""A query with committed batches of hand-written pairs, its sinks, and what delivers to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq

from catalog.store.store import Store
from catalog.values.query import Output, Query
from catalog.values.sink import FilesSink, Sink, SinkRecord
from service.results.pages.page import parse_cursor
from service.results.result_formats import rows_for_json
from service.results.results import ResultReader
from service.sinks.deliverer import Deliverer
from service.sinks.delivery import Delivery, turns
from service.sinks.webhook_targets import WebhookTargets
from tests.service.pairs import Batches, add_query, open_store

OUTPUTS = (Output("k", 'a."k"', "bigint"), Output("w", 'b."v"', "double"))
OTHER_OUTPUTS = (Output("w", 'b."v"', "double"), Output("t", "a.\"k\" || 'x'", "string"))


#: Receivers of tests are on this machine.
HERE = WebhookTargets.of(["127.0.0.1"])


class World:
    """One query (``q``) and another one whose results nobody exports; a context manager that closes itself.

    Args:
        directory: Where everything is kept.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store: Store = open_store(directory)
        self.query: Query = add_query(self.store, "q", OUTPUTS)
        self.series = self.query.id
        self.other = add_query(self.store, "other", OUTPUTS[:1])
        self.batches = Batches(self.store, directory / "results", {1: (self.query.id,), 2: (self.other.id,)})
        self.rows = 0
        self.version = 1
        self.exports = directory / "exports"
        self.delivery = self.new_delivery()

    def new_delivery(self, part_rows: int = 3) -> Delivery:
        """Return what a service that has just started delivers with."""
        results = ResultReader(self.store, self.directory / "results", spill_dir=self.directory / "spill")
        return Delivery(
            self.store, results, self.exports, str(self.directory / "engine.lock"), part_rows, HERE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.delivery.close()
        self.store.close()

    def commit(self, rows: int, others: int = 0) -> int:
        """Commit a batch with so many results of the query, and of the other one; return its number."""
        routes = [self._route] * rows + [2] * others
        self.batches.version = self.version
        self.batches.commit([self._pair(route, n) for n, route in enumerate(routes)])
        return self.batches.next - 1

    def update(self, *outputs: Output) -> int:
        """Let the query get another text with the next version, which it returns."""
        self.version += 1
        self.store.queries.leave(self.query.id, self.version, "update")
        following = replace(
            self.query, id=self.store.queries.reserve_ids(1)[0], outputs=outputs or self.query.outputs
        )
        self.store.queries.add(following, self.version, series=self.series)
        self.query = following
        self.batches.routes = {**self.batches.routes, self._route: (following.id,)}
        return self.version

    def remove(self) -> None:
        """Let the query leave with the next version."""
        self.version += 1
        self.store.queries.remove("q", self.version)

    def set_sink(self, sink: Sink | None, version: int | None = None) -> int:
        return self.store.sinks.set(self.series, sink, version)

    def present(self) -> SinkRecord:
        """The sink that was set last."""
        return self.store.sinks.of_series(self.series)[-1]

    def deliver(self, batches: int = 1000) -> int:
        """Give every sink that has something to get its turn; return the batches delivered."""
        last = self.store.batches.last()
        if last is None:
            return 0
        self.store.sinks.resolve()
        delivered = 0
        while True:
            ready, held = turns(self.store.sinks.pending())
            now = sum(self.delivery.deliver(record, last, batches) for record in ready)
            delivered += now
            if not (held and now):
                return delivered

    def by_batch(self) -> dict[int, list[Any]]:
        """All results of the query, as REST gives them, by batch."""
        after = None
        found: dict[int, list[Any]] = {}
        with closing(ResultReader(self.store, self.directory / "results")) as reader:
            while True:
                page = reader.page(self.series, after, 7)
                for row, cursor in zip(rows_for_json(page.table), page.cursors(), strict=True):
                    found.setdefault(parse_cursor(cursor)[0], []).append(row)
                after = page.next_cursor
                if not page.has_more:
                    return found

    def files(self, sink: FilesSink) -> dict[int, list[Any]]:
        """What the files of a sink hold, by batch; of those with its format."""
        found: dict[int, list[Any]] = {}
        for path in sorted((self.exports / sink.path).glob(f"*.{sink.format}")):
            batch = int(path.name.split("-")[1])
            assert batch not in found, "a batch has two files"
            found[batch] = read_file(path)
        return found

    def all_rows(self, sink: FilesSink) -> list[Any]:
        """What the files of a sink hold, in the order of their names."""
        files = sorted((self.exports / sink.path).glob(f"batch-*.{sink.format}"))
        return [row for path in files for row in read_file(path)]

    @property
    def _route(self) -> int:
        return 100 + self.query.id if self.query.id != self.series else 1

    def _pair(self, route: int, n: int) -> dict[str, Any]:
        self.rows += 1
        k = self.rows
        # Backwards, so that the order of the file is not that of the results.
        return {"route": route, "t": 1000 - n, "pos": (k, 0), "a_k": k, "b_k": k, "b_v": k / 2}


@contextmanager
def delivering(world: World, *, start: bool = True) -> Iterator[Deliverer]:
    """Run a deliverer, which is stopped even where the test fails."""
    deliverer = Deliverer(world.store, world.delivery)
    try:
        if start:
            deliverer.start()
        yield deliverer
    finally:
        deliverer.stop()


def read_file(path: Path) -> list[Any]:
    """Rows of a file of NDJSON or Parquet as REST gives them."""
    if path.suffix == ".ndjson":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return rows_for_json(pq.read_table(path))
