"""Twins with the same batches, of which one has its files merged: both answer alike."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.store.store import Store
from catalog.values.batch import ResultFile
from catalog.values.query import Output
from service.commit.upkeep.compaction import Compactor
from service.errors import InvalidCursor, ResultsExpired
from service.results.files.result_check import length_and_checksum
from service.results.pages.page import ResultPage
from tests.catalog.examples import manifest
from tests.service.dropping import SECOND_US, World, a_world
from tests.service.pairs import add_query
from tests.service.results.test_results import pair

#: Routes of the twins: to the first query, to both, to the second.
ROUTES = (11, 12, 13)
#: Batches that stay as they are, merged at a time, and files of a level: small, so that levels come soon.
KEPT, BATCHES, FILES = 3, 4, 3


def compactor_of(directory: Path, store: Store, **options: Any) -> Compactor:
    """A compactor whose files go at the next look."""
    given: dict[str, Any] = {"unlink_after_s": 0, "retention_us": None}
    given |= {"kept_batches": KEPT, "batches_at_a_time": BATCHES, "files_at_a_time": FILES} | options
    return Compactor(
        store,
        directory / "results",
        directory / "late",
        engine_lock=str(directory / "engine.lock"),
        epoch=store.lease.epoch(),
        **given,
    )


def compact(compactor: Compactor) -> int:
    """Merge until nothing is left to be merged, and unlink; return the number of merges."""
    merges = 0
    while compactor.run_once():
        merges += 1
    compactor.run_once()
    return merges


class Twins:
    """Two data directories with the same batches.

    Args:
        merged: The one whose files are merged.
        plain: The other one.
    """

    def __init__(self, merged: World, plain: World) -> None:
        self.merged, self.plain = merged, plain
        self.queries = [merged.q.id]
        for world in (merged, plain):
            outputs = [Output("v", 'b."v"', "double"), Output("d", 'a."d"', "decimal(10,2)")]
            second = add_query(world.store, "second", outputs, ("k", "v", "d"))
            routes = zip(ROUTES, ((world.q.id,), (world.q.id, second.id), (second.id,)), strict=True)
            world.batches.routes = dict(routes)
        self.queries.append(second.id)
        self.compactor = compactor_of(merged.directory, merged.store)

    def commit(self, files: list[list[dict[str, Any]]], late: int = 0) -> None:
        """Commit a batch of both, with so many late rows in a file."""
        for world in (self.merged, self.plain):
            batch = world.batches.next
            if not late:
                world.batches.commit(*files)
                continue
            path = world.directory / "late" / f"b{batch:09}-1-e1-late.parquet"
            pq.write_table(pa.table({"ts": range(batch * 100, batch * 100 + late)}), path)
            file = ResultFile(path.name, "A", late, *length_and_checksum(path))
            made = manifest(batch, world.store.lease.epoch())
            made = replace(made, files=(), late_files=(file,), committed_at_us=batch * SECOND_US)
            assert world.store.batches.commit(made)
            world.batches.next += 1

    def commit_random(self, rng: random.Random, batches: int) -> None:
        """Commit batches of some files of some rows, columns and routes."""
        for _ in range(batches):
            if rng.random() < 0.2:
                self.commit([], late=rng.randint(1, 3))
                continue
            files = []
            for bucket in range(rng.randint(0, 3)):
                # Plans come and go, so files of a family have more or fewer columns.
                more = [name for name in ("a_v", "a_d", "b_d") if rng.random() < 0.5]
                rows = [
                    pair(rng.choice(ROUTES), rng.randint(1, 5), n, bucket, rng.randint(0, 99))
                    | {name: rng.randint(0, 9) for name in more}
                    for n in range(rng.randint(1, 6))
                ]
                files.append(rows)
            self.commit(files)

    def drop(self, kept_from: int) -> None:
        """Drop what is older than a batch."""
        assert self.merged.drop(kept_from) == self.plain.drop(kept_from)

    def check_page(self, query: int, after: str | None, limit: int) -> None:
        """Compare a page."""
        mine, theirs = (_page(world, query, after, limit) for world in (self.merged, self.plain))
        assert mine == theirs

    def check(self, rng: random.Random) -> None:
        """Compare everything that readers are given."""
        for query in self.queries:
            assert self.merged.reader.count(query) == self.plain.reader.count(query)
            self.check_page(query, None, 1000)
            for returned in range(2):
                cursor = f"{rng.randint(0, self.plain.batches.next)}.{returned}"
                self.check_page(query, cursor, rng.choice([1, 2, 5, 1000]))
            given = self.plain.store.counts.of_query(query)
            for _ in range(2 if given else 0):
                first = rng.randrange(len(given))
                some = given[first : first + rng.randint(1, 20)]
                assert _whole(self.merged, query, some) == _whole(self.plain, query, some)
        assert late_rows(self.merged) >= late_rows(self.plain), "what is kept of late rows is a whole file"

    def check_files(self) -> None:
        """Compare the files that are there with those that are named, once all others have gone."""
        for where, late in (("results", False), ("late", True)):
            found = {path.name for path in (self.merged.directory / where).iterdir()}
            assert found == named(self.merged.store, late=late)


def named(store: Store, *, late: bool = False) -> set[str]:
    """Names of the files that count."""
    return {f.path for some in store.result_files.all() for f in (some.late_files if late else some.files)}


def _whole(world: World, query: int, batches: Sequence[tuple[int, int]]) -> list[tuple[int, str]]:
    """Return the results of whole batches, each with its batch."""
    parts = world.reader.whole_batches(query, batches, at_a_time=7)
    return [(batch, str(row)) for batch, rows in parts for row in rows.to_pylist()]


def late_rows(world: World) -> set[int]:
    """Late rows in the files that count."""
    tables = [pq.read_table(world.directory / "late" / name) for name in named(world.store, late=True)]
    return {row for table in tables for row in table["ts"].to_pylist()}


def _page(world: World, query: int, after: str | None, limit: int) -> object:
    """Return what a page says, or what its error says."""
    try:
        page: ResultPage = world.reader.page(query, after, limit)
    except (InvalidCursor, ResultsExpired) as error:
        return type(error), str(error)
    cursors = list(page.cursors())
    return page.table.to_pylist(), page.spans, cursors, page.next_cursor, page.has_more, page.dropped


@contextmanager
def twins(directory: Path) -> Iterator[Twins]:
    """Twins in empty directories."""
    for name in ("merged", "plain"):
        (directory / name).mkdir()
    with a_world(directory / "merged") as merged, a_world(directory / "plain") as plain:
        yield Twins(merged, plain)
