"""A query whose results are dropped, with files and manifests as an engine leaves them, a batch a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catalog.store.store import Store
from catalog.values.query import Output, Query
from service.commit.upkeep.retention import ResultRetention
from service.results.results import ResultReader
from tests.service.pairs import Batches, add_query, open_store
from tests.service.results.test_results import pair

SECOND_US = 1_000_000
Q1, BOTH = 11, 12


@dataclass
class World:
    """A query and its results, a batch a second."""

    directory: Path
    store: Store
    q: Query
    batches: Batches
    reader: ResultReader
    retention: ResultRetention = field(init=False)

    def __post_init__(self) -> None:
        self.retention = retention_of(self.directory, self.store)

    def commit(self, *values: int, route: int = Q1) -> None:
        """Commit a batch that gives q these values, each in a file of its own."""
        n = self.batches.next
        self.batches.commit(*([pair(route, i, n * 100 + i, 0, value)] for i, value in enumerate(values)))

    def drop(self, kept_from: int) -> int:
        """Drop everything before a batch that is old enough."""
        return self.retention.run_once(kept_from * SECOND_US)

    def values(self, after: str | None, limit: int = 1000) -> list[Any]:
        """Values of all pages from a cursor on."""
        values: list[Any] = []
        while True:
            page = self.reader.page(self.q.id, after, limit)
            values += page.table["k"].to_pylist()
            after = page.next_cursor
            if not page.has_more:
                return values

    def files(self) -> set[str]:
        """Names of the result files that are there."""
        return {path.name for path in (self.directory / "results").iterdir()}

    def named(self) -> set[str]:
        """Names of the result files that manifests name."""
        return {file.path for m in self.store.batches.manifests(0, 10**6) for file in m.files}


def retention_of(directory: Path, store: Store, **options: Any) -> ResultRetention:
    """What is older than a second goes; files go at the next look."""
    given = {"interval_s": 0, "unlink_after_s": 0} | options
    lock = str(directory / "engine.lock")
    return ResultRetention(store, directory / "results", directory / "late", 1, lock, **given)


@contextmanager
def a_world(directory: Path) -> Iterator[World]:
    """A world in an empty directory."""
    store = open_store(directory)
    q = add_query(store, "q", [Output("k", 'a."k"', "bigint")])
    batches = Batches(store, directory / "results", {Q1: (q.id,)}, spacing_us=SECOND_US)
    (directory / "late").mkdir()
    reader = ResultReader(store, directory / "results")
    yield World(directory, store, q, batches, reader)
    reader.close()
    store.close()
