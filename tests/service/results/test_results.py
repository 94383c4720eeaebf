"""Reading a query's results, page by page, from files and manifests written here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.store.store import Store
from catalog.values.query import Output, Query
from service.errors import CorruptResults, InvalidCursor
from service.results.pages.page import parse_cursor
from service.results.results import ResultReader
from tests.service.pairs import Batches, add_query, open_store

BOTH, ONLY_Q1, ONLY_Q2 = 11, 12, 13


@dataclass
class World:
    """Two queries over one family."""

    store: Store
    batches: Batches
    reader: ResultReader
    q1: Query
    q2: Query

    def values(self, query: Query, after: str | None = None, limit: int = 1000) -> list[Any]:
        """Values of a page's first column."""
        values: list[Any] = self.reader.page(query.id, after, limit).table.column(0).to_pylist()
        return values


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store = open_store(tmp_path)
    q1 = add_query(store, "q1", [Output("k", 'a."k"', "bigint"), Output("w", 'b."v"', "double")])
    q2 = add_query(store, "q2", [Output("sum", 'a."k" + b."k"', "bigint")])
    routes = {BOTH: (q1.id, q2.id), ONLY_Q1: (q1.id,), ONLY_Q2: (q2.id,)}
    batches = Batches(store, tmp_path / "results", routes)
    reader = ResultReader(store, tmp_path / "results")
    yield World(store, batches, reader, q1, q2)
    reader.close()
    store.close()


def pair(route: int, t: int, pos_a: int, pos_b: int, k: int, **more: Any) -> dict[str, Any]:
    return {"route": route, "t": t, "pos": (pos_a, pos_b), "a_k": k, "b_k": k, "b_v": k / 2} | more


def test_a_query_without_results_has_an_empty_page_with_its_columns(world: World) -> None:
    page = world.reader.page(world.q1.id, None, 10)
    assert page.table.schema == pa.schema(
        [("k", pa.int64()), ("w", pa.float64()), ("_event_time", pa.timestamp("us"))]
    )
    assert (page.table.num_rows, page.next_cursor, page.has_more) == (0, None, False)
    assert world.reader.count(world.q1.id) == 0


def test_a_query_sees_the_pairs_of_its_routes_only(world: World) -> None:
    world.batches.commit([pair(BOTH, 1, 0, 0, 1), pair(ONLY_Q1, 2, 1, 1, 2), pair(ONLY_Q2, 3, 2, 2, 3)])
    assert world.values(world.q1) == [1, 2]
    assert world.values(world.q2) == [2, 6]
    assert world.reader.count(world.q1.id) == 2


def test_results_come_by_batch_then_event_time_then_positions(world: World) -> None:
    first = [pair(BOTH, 9, 0, 0, 4), pair(BOTH, 5, 2, 1, 3), pair(BOTH, 5, 2, 0, 2), pair(BOTH, 5, 1, 9, 1)]
    world.batches.commit(first[:2], first[2:])
    world.batches.commit([pair(BOTH, 1, 3, 3, 5)])
    assert world.values(world.q1) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 100])
def test_pages_of_any_size_give_every_result_once_and_in_order(world: World, limit: int) -> None:
    for batch in range(6):
        # Batches 1 and 4 have nothing for q1.
        route = ONLY_Q2 if batch in (1, 4) else BOTH
        world.batches.commit([pair(route, n, batch * 10 + n, 0, batch * 10 + n) for n in range(3)])
    seen: list[int] = []
    cursors: list[str] = []
    after = None
    while True:
        page = world.reader.page(world.q1.id, after, limit)
        seen += page.table["k"].to_pylist()
        cursors += page.cursors()
        after = page.next_cursor
        if not page.has_more:
            break
        assert page.table.num_rows == limit
    assert seen == [b * 10 + n for b in (0, 2, 3, 5) for n in range(3)]
    assert cursors == [f"{b}.{n}" for b in (0, 2, 3, 5) for n in (1, 2, 3)]


def test_every_rows_cursor_resumes_after_that_row(world: World) -> None:
    for batch in range(3):
        world.batches.commit([pair(BOTH, n, batch * 10 + n, 0, batch * 10 + n) for n in range(2)])
    page = world.reader.page(world.q1.id, None, 100)
    everything = page.table["k"].to_pylist()
    for index, cursor in enumerate(page.cursors()):
        assert world.values(world.q1, cursor) == everything[index + 1 :]


def test_the_cursor_at_the_end_goes_on_with_what_is_committed_later(world: World) -> None:
    world.batches.commit([pair(BOTH, 1, 0, 0, 1)])
    end = world.reader.page(world.q1.id, None, 10).next_cursor
    waiting = world.reader.page(world.q1.id, end, 10)
    assert (waiting.table.num_rows, waiting.next_cursor, waiting.has_more) == (0, end, False)
    world.batches.commit([pair(BOTH, 2, 1, 1, 2)])
    assert world.values(world.q1, end) == [2]


def test_a_page_reads_no_file_of_another_batch(world: World, tmp_path: Path) -> None:
    for batch in range(3):
        world.batches.commit([pair(BOTH, 0, batch, 0, batch)])
    for unread in ("b000000-f-e1-0.parquet", "b000002-f-e1-0.parquet"):
        (tmp_path / "results" / unread).write_bytes(b"not a Parquet file")
    assert world.values(world.q1, "0.1", 1) == [1]


def test_nothing_is_kept_of_a_file_that_was_read(world: World) -> None:
    for batch in range(5):
        world.batches.commit([pair(BOTH, 0, batch, 0, batch)])
    assert world.reader.page(world.q1.id, None, 10).table.num_rows == 5
    memory = dict(
        world.reader._connection.execute("SELECT tag, memory_usage_bytes FROM duckdb_memory()").fetchall()
    )
    assert memory["OBJECT_CACHE"] == 0


def test_a_column_that_no_file_has_is_null(world: World) -> None:
    outputs = [Output("d", 'a."d"', "decimal(10,2)"), Output("x", 'a."d" + 1', "decimal(12,2)")]
    q3 = add_query(world.store, "q3", outputs, ("k", "d"))
    world.batches.routes = dict(world.batches.routes) | {14: (q3.id,)}
    world.batches.commit([pair(14, 1, 0, 0, 1)])
    table = world.reader.page(q3.id, None, 10).table
    assert table.drop_columns("_event_time").to_pylist() == [{"d": None, "x": None}]
    assert table.schema.field("x").type == pa.decimal128(12, 2)


def test_files_of_one_batch_may_have_different_columns(world: World) -> None:
    world.batches.commit(
        [{"route": ONLY_Q1, "t": 1, "pos": (0, 0), "a_k": 1}],
        [pair(ONLY_Q1, 2, 1, 1, 2), pair(ONLY_Q1, 3, 2, 2, 3)],
    )
    table = world.reader.page(world.q1.id, None, 10).table
    assert table["w"].to_pylist() == [None, 1.0, 1.5]


def test_a_query_that_reads_no_column_of_a_side_still_has_results(world: World) -> None:
    q3 = add_query(world.store, "q3", [Output("one", "1", "int")], ())
    world.batches.routes = dict(world.batches.routes) | {14: (q3.id,)}
    world.batches.commit([pair(14, 1, 0, 0, 1)])
    assert world.values(q3) == [1]


def test_outputs_may_bear_the_names_of_the_order_columns(world: World) -> None:
    q3 = add_query(
        world.store, "q3", [Output("_batch", '-a."k"', "bigint"), Output("_pos_a", '-a."k"', "bigint")]
    )
    world.batches.routes = dict(world.batches.routes) | {14: (q3.id,)}
    world.batches.commit([pair(14, 1, 0, 0, 1), pair(14, 2, 1, 0, 2)])
    assert world.values(q3) == [-1, -2]


def updated(world: World, query: Query, route: int, *outputs: Output) -> Query:
    """Let a query of q1's series follow another, with other outputs if some are given."""
    version = query.id + 1
    world.store.queries.leave(query.id, version, "update")
    following = replace(query, id=world.store.queries.reserve_ids(1)[0], outputs=outputs or query.outputs)
    world.store.queries.add(following, version, series=world.q1.id)
    world.batches.routes = dict(world.batches.routes) | {route: (following.id,)}
    return following


def test_results_of_a_name_are_those_of_its_whole_series(world: World) -> None:
    world.batches.commit([pair(ONLY_Q1, 1, 0, 0, 1), pair(ONLY_Q1, 2, 1, 1, 2)])
    second = updated(world, world.q1, 14)
    world.batches.commit([pair(14, 3, 2, 2, 3)])
    world.batches.commit([pair(14, 4, 3, 3, 4)])
    third = updated(world, second, 15, Output("k", 'a."k"', "bigint"), Output("w", 'b."v"', "double"))
    world.batches.commit([pair(15, 5, 4, 4, 5)])
    assert world.values(world.q1) == [1, 2, 3, 4, 5]
    assert world.reader.count(world.q1.id) == 5
    for limit in range(1, 6):
        values, after = [], None
        while (page := world.reader.page_if_any(world.q1.id, after, limit)) is not None:
            values += page.table.column(0).to_pylist()
            assert page.has_more == (len(values) < 5)
            after = page.next_cursor
        assert values == [1, 2, 3, 4, 5]
    assert third.id == world.store.queries.series_ids(world.q1.id)[-1]


def test_a_page_ends_where_an_update_changed_the_columns(world: World) -> None:
    world.batches.commit([pair(ONLY_Q1, 1, 0, 0, 1)])
    updated(world, world.q1, 14, Output("k", 'a."k"', "string"))
    world.batches.commit([pair(14, 2, 1, 1, 2)])
    first = world.reader.page(world.q1.id, None, 10)
    assert (first.table.column_names, first.has_more) == (["k", "w", "_event_time"], True)
    second = world.reader.page(world.q1.id, first.next_cursor, 10)
    assert (second.table.column_names, second.has_more) == (["k", "_event_time"], False)
    assert second.table.column(0).to_pylist() == ["2"]
    last = world.reader.page(world.q1.id, second.next_cursor, 10)
    assert [output.type for output in last.columns] == ["string"], "an empty page has the newest columns"


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.2.3", "-1.0", "1.0 ", "999999999999999999999.0"])
def test_a_text_that_is_no_cursor_is_refused(world: World, cursor: str) -> None:
    with pytest.raises(InvalidCursor) as caught:
        world.reader.page(world.q1.id, cursor, 10)
    assert caught.value.primary == f'"{cursor}" is not a cursor'


@pytest.mark.parametrize("cursor", ["0.2", "1.1", "7.1"])
def test_a_cursor_beyond_the_results_is_refused(world: World, cursor: str) -> None:
    world.batches.commit([pair(BOTH, 1, 0, 0, 1)])
    world.batches.commit([pair(ONLY_Q2, 1, 1, 0, 1)])
    with pytest.raises(InvalidCursor, match="is beyond the results of this query"):
        world.reader.page(world.q1.id, cursor, 10)


def test_files_that_hold_less_than_the_manifest_says_fail_loudly(world: World, tmp_path: Path) -> None:
    world.batches.commit([pair(BOTH, 1, 0, 0, 1), pair(BOTH, 2, 1, 1, 2)])
    file = tmp_path / "results" / "b000000-f-e1-0.parquet"
    pq.write_table(pq.read_table(file).slice(0, 1), file)
    with pytest.raises(CorruptResults) as caught:
        world.reader.page(world.q1.id, None, 10)
    assert caught.value.detail == "The files of batches 0 to 0 have 1 of 2 rows."


@pytest.mark.parametrize("data", [b"", b"not Parquet", None])
def test_a_file_that_is_no_parquet_file_is_an_error_of_ours(
    world: World, tmp_path: Path, data: bytes | None
) -> None:
    world.batches.commit([pair(BOTH, 1, 0, 0, 1)])
    file = tmp_path / "results" / "b000000-f-e1-0.parquet"
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)
    with pytest.raises(CorruptResults, match=r"is damaged|cannot be read"):
        world.reader.page(world.q1.id, None, 10)
    with pytest.raises(CorruptResults, match=r"is damaged|cannot be read"):
        list(world.reader.whole_batches(world.q1.id, [(0, 1)], at_a_time=10))


def test_a_cursor_reads_back() -> None:
    assert parse_cursor("7.250") == (7, 250)
