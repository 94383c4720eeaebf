"""Pages of any size are cuts of all results in order, whether runs are in memory or in files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from catalog.values.query import Output
from service.errors import CorruptResults, DiskFailed
from service.results.pages import runs, spans
from service.results.pages.runs import KEPT_S, Run, Runs
from service.results.results import SORTED_BYTES, ResultReader
from tests.service.compacting import compact, compactor_of
from tests.service.pairs import Batches, add_query, open_store
from tests.service.results.test_results import pair

#: Sizes of runs: all in memory; all in files; no room for more than one, and little to sort in.
KINDS: dict[str, dict[str, int]] = {
    "memory": {},
    "files": {"file_from_bytes": 0},
    "evicted": {"file_from_bytes": 200, "memory_bytes": 0, "disk_bytes": 0, "sorted_bytes": 400},
}


class World:
    """A query whose results are known, and a reader."""

    def __init__(self, directory: Path, sorted_bytes: int = SORTED_BYTES, **sizes: int) -> None:
        self.directory = directory
        self.store = open_store(directory)
        outputs = [Output("k", 'a."k"', "bigint"), Output("s", "a.\"k\" || '!'", "string")]
        self.id = add_query(self.store, "q", outputs).id
        self.batches = Batches(self.store, directory / "results", {1: (self.id,), 2: ()})
        (directory / "late").mkdir()
        runs = Runs(directory, **sizes)
        self.reader = ResultReader(self.store, directory / "results", runs=runs, sorted_bytes=sorted_bytes)
        self.rows: list[int] = []
        self.cursors: list[str] = []

    def commit(self, rng: random.Random, most: int) -> None:
        """Commit a batch of up to three files of up to so many rows each, some of them not of the query."""
        batch, files, given = self.batches.next, [], []
        for bucket in range(rng.randint(0, 3)):
            rows = [
                (rng.choice((1, 1, 2)), rng.randint(1, 4), n, bucket) for n in range(rng.randint(1, most))
            ]
            files.append([pair(route, t, n, b, n * 10 + b) for route, t, n, b in rows])
            given += [(t, n, b) for route, t, n, b in rows if route == 1]
        self.batches.commit(*files)
        self.rows += [n * 10 + b for _, n, b in sorted(given)]
        self.cursors += [f"{batch}.{n}" for n in range(1, len(given) + 1)]

    def check(self, at: int, limit: int) -> int:
        """Compare the page after so many results with the true one; return how many are before the next."""
        page = self.reader.page(self.id, self.cursors[at - 1] if at else None, limit)
        end = min(at + limit, len(self.rows))
        assert page.table["k"].to_pylist() == self.rows[at:end]
        assert page.table["s"].to_pylist() == [f"{k}!" for k in self.rows[at:end]]
        assert list(page.cursors()) == self.cursors[at:end]
        assert page.has_more == (end < len(self.rows))
        return end


@contextmanager
def world_of(directory: Path, **sizes: int) -> Iterator[World]:
    world = World(directory, **sizes)
    yield world
    world.reader.close()
    world.store.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with world_of(tmp_path) as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_pages_are_cuts_of_all_results(tmp_path: Path, seed: int, kind: str) -> None:
    """Readers start anywhere and go on in pages of any size; batches are committed and files merged."""
    rng = random.Random(seed)
    with (
        world_of(tmp_path, **KINDS[kind]) as world,
        patch.object(runs, "_ROWS_PER_RUN", rng.choice([5, 40, 1000])),
        patch.object(runs, "_ROWS_AHEAD", rng.choice([0, 30, 1000])),
        patch.object(spans, "_BATCHES_PER_LOOKUP", rng.choice([1, 3, 256])),
        patch.object(runs, "_ROWS_AT_A_TIME", rng.choice([1, 7, 1000])),
    ):
        compactor = compactor_of(tmp_path, world.store)
        readers = [0, 0]
        for _ in range(6):
            for _ in range(rng.randint(1, 4)):
                world.commit(rng, rng.choice([2, 20]))
            if rng.random() < 0.5:
                compact(compactor)
            readers[rng.randrange(2)] = rng.randint(0, len(world.rows))
            for number, at in enumerate(readers):
                for _ in range(3):
                    at = world.check(at, rng.choice([1, 3, 10, 100]))
                readers[number] = at
        end = 0
        while end < len(world.rows):
            end = world.check(end, 17)


def made(reader: ResultReader) -> Any:
    """Count the runs that a reader makes."""
    return patch.object(reader._maker, "_made", wraps=reader._maker._made)


def test_a_batch_is_sorted_once_for_all_its_pages_and_readers(world: World) -> None:
    world.batches.commit([pair(1, 100 - n, n, 0, n) for n in range(100)])
    with made(world.reader) as sorts:
        pages = [world.reader.page(world.id, f"0.{n}", 7) for n in [*range(0, 100, 7), 3, 50]]
    assert [page.table["k"][0].as_py() for page in pages[:3]] == [99, 92, 85]
    assert sorts.call_count == 1


def test_a_reader_that_goes_on_has_the_batches_ahead_sorted_with_its_own(world: World) -> None:
    for batch in range(40):
        world.batches.commit([pair(1, n, n, 0, batch * 10 + n) for n in range(10)])
    after, rows = None, 0
    with made(world.reader) as sorts:
        while rows < 400:
            page = world.reader.page(world.id, after, 10)
            after, rows = page.next_cursor, rows + page.table.num_rows
    assert [len(call.args[1]) for call in sorts.call_args_list] == [1, 4, 16, 19]


def test_a_page_that_starts_anywhere_reads_its_own_batches_alone(world: World) -> None:
    for batch in range(10):
        world.batches.commit([pair(1, n, n, 0, batch * 10 + n) for n in range(10)])
    with made(world.reader) as sorts:
        world.reader.page(world.id, "3.10", 15)
    assert [[batch for batch, _ in call.args[1]] for call in sorts.call_args_list] == [[4, 5]]


def test_a_damaged_file_ahead_is_no_reason_to_refuse_a_page(world: World) -> None:
    for batch in range(4):
        world.batches.commit([pair(1, 1, batch, 0, batch)])
    (world.directory / "results" / "b000002-f-e1-0.parquet").write_bytes(b"damaged")
    first = world.reader.page(world.id, None, 1)
    second = world.reader.page(world.id, first.next_cursor, 1)
    assert second.table["k"].to_pylist() == [1]
    with pytest.raises(CorruptResults):
        world.reader.page(world.id, second.next_cursor, 1)


def test_a_large_run_is_a_file_without_a_name_and_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64())])
    parts = [pa.record_batch([pa.array(range(n, n + 10))], schema=schema) for n in range(0, 100, 10)]
    run = Runs(tmp_path, file_from_bytes=0).written(schema, iter(parts), [(3, 40), (5, 60)])
    assert run.table["k"].to_pylist() == list(range(100))
    assert (dict(run.starts), run.last) == ({3: 0, 5: 40}, 5)
    assert run.disk_bytes > 800
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DiskFailed, match="results cannot be sorted: no such file or directory"):
        Runs(tmp_path / "gone", file_from_bytes=0).written(schema, iter(parts), [(3, 100)])


def test_runs_that_were_not_used_for_longest_go_first() -> None:
    runs = Runs(memory_bytes=20, disk_bytes=20)
    table = pa.table({"k": [1]})
    for batch in range(3):
        runs.keep(1, Run(table, {batch: 0}, 8, 0))
        assert runs.find(1, 0) is not None
    assert [runs.find(1, batch) is not None for batch in range(3)] == [True, False, True]
    runs.keep(2, Run(table, {0: 0}, 0, 100))
    assert [runs.find(1, 2), runs.find(2, 0) is not None] == [None, True]
    runs.clear()
    assert runs.find(2, 0) is None


def test_runs_in_memory_that_nobody_uses_go_and_those_in_files_stay() -> None:
    now_s = 0.0
    runs = Runs(clock_s=lambda: now_s)
    table = pa.table({"k": [1]})
    runs.keep(1, Run(table, {0: 0}, 8, 0))
    runs.keep(1, Run(table, {1: 0}, 8, 0))
    runs.keep(1, Run(table, {2: 0}, 0, 8))
    now_s = KEPT_S - 1
    assert runs.find(1, 1) is not None
    now_s = KEPT_S
    runs.keep(1, Run(table, {3: 0}, 8, 0))
    assert [runs.find(1, batch) is not None for batch in range(4)] == [False, True, True, True]


def test_a_small_run_counts_what_its_objects_take() -> None:
    schema = pa.schema([("k", pa.int64()), ("l", pa.int64())])
    row = pa.record_batch([pa.array([1]), pa.array([2])], schema=schema)
    one = Runs().written(schema, [row], [(3, 1)])
    ten = Runs().written(schema, [row] * 10, [(n, 1) for n in range(10)])
    assert one.memory_bytes > 2_000
    assert ten.memory_bytes > one.memory_bytes + 9 * 100
