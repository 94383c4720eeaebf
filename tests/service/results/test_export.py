"""Results as files, written from catalogs and pairs made here, read back with DuckDB."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errors import InvariantBroken
from catalog.store.store import Store
from catalog.values.query import Output, Query
from service.errors import CorruptResults
from service.results import export
from service.results.export import export_query, export_shared
from tests.service.pairs import Batches, add_query, begin

OUTPUTS = (Output("k", 'a."k"', "bigint"), Output("w", 'b."v"', "double"))
BOTH, ONLY_Q1 = 11, 12


@pytest.fixture
def store(store: Store) -> Store:
    begin(store)
    return store


@pytest.fixture
def q1(store: Store) -> Query:
    return add_query(store, "q1", OUTPUTS)


@pytest.fixture
def q2(store: Store, q1: Query) -> Query:
    return add_query(store, "q2", OUTPUTS[:1])


@pytest.fixture
def batches(store: Store, q1: Query, q2: Query, tmp_path: Path) -> Batches:
    return Batches(store, tmp_path / "out" / "results", {BOTH: (q1.id, q2.id), ONLY_Q1: (q1.id,)})


def pair(route: int, t: int, pos: int) -> dict[str, Any]:
    return {"route": route, "t": t, "pos": (pos, 0), "a_k": pos, "b_k": pos, "b_v": pos / 2}


def read_parts(directory: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted(directory.glob("*.parquet")))


def test_a_query_without_results_is_one_empty_file_with_its_columns(
    store: Store, q1: Query, batches: Batches, tmp_path: Path
) -> None:
    assert export_query(store, batches.results_dir, q1.name, [q1], tmp_path / "out") == 0
    table = read_parts(tmp_path / "out" / "q1")
    assert table.schema.remove_metadata() == pa.schema(
        [("k", pa.int64()), ("w", pa.float64()), ("_event_time", pa.timestamp("us"))]
    )


def test_rows_come_in_order_whatever_the_read_and_part_sizes(
    store: Store, q1: Query, batches: Batches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(5):
        rows = [pair(BOTH if n % 2 else ONLY_Q1, 100 - n, batch * 10 + n) for n in range(7)]
        batches.commit(rows[:3], rows[3:])
    expected = [batch * 10 + n for batch in range(5) for n in reversed(range(7))]
    for rows_per_read, rows_per_part, rows_per_group in ((1, 1, 1), (14, 10, 4), (1000, 1000, 1000)):
        monkeypatch.setattr(export, "_ROWS_PER_READ", rows_per_read)
        monkeypatch.setattr(export, "_ROWS_PER_PART", rows_per_part)
        monkeypatch.setattr(export, "_ROWS_PER_GROUP", rows_per_group)
        assert export_query(store, batches.results_dir, q1.name, [q1], tmp_path / "out") == 35
        assert read_parts(tmp_path / "out" / "q1")["k"].to_pylist() == expected
    assert [path.name for path in (tmp_path / "out" / "q1").iterdir()] == ["part-00000.parquet"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["q1", "results"]


def test_an_export_replaces_what_an_interrupted_one_left(
    store: Store, q2: Query, batches: Batches, tmp_path: Path
) -> None:
    batches.commit([pair(BOTH, 1, 1)])
    for left in (tmp_path / "out" / "q2", tmp_path / "out" / ".q2.partial"):
        left.mkdir(parents=True)
        (left / "part-00007.parquet").write_bytes(b"half")
    assert export_query(store, batches.results_dir, q2.name, [q2], tmp_path / "out") == 1
    assert read_parts(tmp_path / "out" / "q2").column_names == ["k", "_event_time"]


def test_a_removed_query_is_exported_too(store: Store, q2: Query, batches: Batches, tmp_path: Path) -> None:
    batches.commit([pair(BOTH, 1, 1)])
    store.queries.remove("q2", 2)
    assert export_query(store, batches.results_dir, q2.name, [q2], tmp_path / "out") == 1


def test_files_that_lack_rows_fail_and_leave_the_former_export(
    store: Store, q1: Query, batches: Batches, tmp_path: Path
) -> None:
    batches.commit([pair(BOTH, 1, 1)])
    export_query(store, batches.results_dir, q1.name, [q1], tmp_path / "out")
    batches.commit([pair(BOTH, 1, 2)], [pair(BOTH, 1, 3)])
    results = batches.results_dir
    (results / "b000001-f-e1-1.parquet").write_bytes((results / "b000000-f-e1-0.parquet").read_bytes())
    pq.write_table(
        pq.read_table(results / "b000001-f-e1-0.parquet").slice(0, 0), results / "b000001-f-e1-0.parquet"
    )
    with pytest.raises(CorruptResults) as caught:
        export_query(store, results, q1.name, [q1], tmp_path / "out")
    assert caught.value.detail == "The files of batches 0 to 1 have 2 of 3 rows."
    assert read_parts(tmp_path / "out" / "q1")["k"].to_pylist() == [1]


def views(out: Path) -> duckdb.DuckDBPyConnection:
    """Run views.sql as its first line says: in its own directory."""
    text = (out / "views.sql").read_text()
    connection = duckdb.connect()
    connection.execute(text.replace("'results/", f"'{out}/results/").replace("'routes.", f"'{out}/routes."))
    return connection


def test_shared_results_have_a_routes_table_and_a_view_per_query(
    store: Store, batches: Batches, tmp_path: Path
) -> None:
    batches.commit([pair(BOTH, 1, 1), pair(ONLY_Q1, 2, 2)])
    batches.commit([pair(BOTH, 3, 3)])
    export_shared(store, batches.results_dir, tmp_path / "out")
    routes = pq.read_table(tmp_path / "out" / "routes.parquet")
    assert routes.to_pylist() == [
        {"route": BOTH, "plan_version": 1, "query_id": 1, "query": "q1"},
        {"route": BOTH, "plan_version": 1, "query_id": 2, "query": "q2"},
        {"route": ONLY_Q1, "plan_version": 1, "query_id": 1, "query": "q1"},
    ]
    connection = views(tmp_path / "out")
    assert connection.execute("SELECT k, w FROM q1 ORDER BY k").fetchall() == [(1, 0.5), (2, 1.0), (3, 1.5)]
    assert connection.execute("SELECT k FROM q2 ORDER BY k").fetchall() == [(1,), (3,)]


def test_routes_that_are_written_a_few_at_a_time_are_all_there(
    store: Store, batches: Batches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches.commit([pair(BOTH, 1, 1), pair(ONLY_Q1, 2, 2)])
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    export_shared(store, batches.results_dir, whole)
    monkeypatch.setattr(export, "_ROUTE_ROWS", 2)
    export_shared(store, batches.results_dir, parts)

    one, several = (pq.ParquetFile(out / "routes.parquet") for out in (whole, parts))
    assert (one.num_row_groups, several.num_row_groups) == (1, 2)
    assert several.read().to_pylist() == one.read().to_pylist()


def test_shared_export_of_no_batch_at_all_has_empty_views(
    store: Store, batches: Batches, tmp_path: Path
) -> None:
    export_shared(store, batches.results_dir, tmp_path / "out")
    assert views(tmp_path / "out").execute("SELECT k, w, _event_time FROM q1").fetchall() == []
    assert pq.read_table(tmp_path / "out" / "routes.parquet").num_rows == 0


def test_a_name_given_again_means_the_newest_query(store: Store, batches: Batches, tmp_path: Path) -> None:
    batches.commit([pair(BOTH, 1, 1)])
    store.queries.remove("q2", 2)
    newer = add_query(store, "q2", (Output("twice", 'a."k" * 2', "bigint"),))
    batches.routes = {13: (newer.id,)}
    batches.commit([pair(13, 1, 2)])
    export_shared(store, batches.results_dir, tmp_path / "out")
    connection = views(tmp_path / "out")
    assert connection.execute("SELECT twice FROM q2").fetchall() == [(4,)]
    assert connection.execute('SELECT k FROM "q2@2"').fetchall() == [(1,)]


def test_the_view_of_an_updated_query_has_its_whole_series(
    store: Store, batches: Batches, tmp_path: Path
) -> None:
    batches.commit([pair(BOTH, 1, 1)])
    (q2,) = (record.query for record in store.queries.running() if record.query.name == "q2")
    for version, outputs in (
        (2, q2.outputs),
        (3, (Output("twice", 'a."k" * 2', "bigint"),)),
        (4, q2.outputs),
    ):
        store.queries.leave(store.queries.get("q2").query.id, version, "update")
        following = replace(q2, id=store.queries.reserve_ids(1)[0], outputs=outputs)
        store.queries.add(following, version, series=q2.id)
        batches.routes = {20 + version: (following.id,)}
        batches.commit([pair(20 + version, 1, version)])
    export_shared(store, batches.results_dir, tmp_path / "out")
    connection = views(tmp_path / "out")
    assert connection.execute("SELECT k FROM q2 ORDER BY k").fetchall() == [(1,), (2,), (4,)]
    assert connection.execute('SELECT twice FROM "q2@4"').fetchall() == [(6,)]


def test_files_that_no_manifest_names_are_deleted(store: Store, batches: Batches, tmp_path: Path) -> None:
    batches.commit([pair(BOTH, 1, 1)])
    orphan = batches.results_dir / "b000001-f-e1-0.parquet"
    orphan.write_bytes((batches.results_dir / "b000000-f-e1-0.parquet").read_bytes())
    export_shared(store, batches.results_dir, tmp_path / "out")
    assert [path.name for path in batches.results_dir.iterdir()] == ["b000000-f-e1-0.parquet"]


def test_a_route_of_a_query_that_the_catalog_does_not_have_is_refused(
    store: Store, batches: Batches, tmp_path: Path
) -> None:
    batches.routes = {BOTH: (1, 99)}
    batches.commit([pair(BOTH, 1, 1)])
    with pytest.raises(InvariantBroken, match="does not have"):
        export_shared(store, batches.results_dir, tmp_path / "out")
    assert not (tmp_path / "out" / "routes.parquet").exists()
