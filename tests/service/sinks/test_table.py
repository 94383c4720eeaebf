"""Results in PostgreSQL: each batch once, whatever crashes in between; upserts keep the last of each key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from catalog.values.sink import TableSink
from catalog.values.stream import EnvSecret
from service.errors import SecretMissing, SinkFailed
from service.sinks.table import write_batch
from tests.catalog.examples import dying
from tests.postgres import PostgresServer
from tests.service.sinks.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        made.delivery.catalog_id = "c1"
        yield made


@pytest.fixture
def sink(postgres: PostgresServer, postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> TableSink:
    monkeypatch.setenv("SLUICE_SECRET_TEST", postgres.password)
    server, secret = f"127.0.0.1:{postgres.port}", EnvSecret("SLUICE_SECRET_TEST")
    return TableSink(server, postgres_database, "sluice", secret, "gusts", tls="disable")


def rows(postgres: PostgresServer, sink: TableSink, text: str) -> list[tuple[object, ...]]:
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname=sink.database, user="sluice", password=postgres.password
    ) as connection:
        return connection.execute(text).fetchall()


def as_given(world: World) -> list[tuple[object, ...]]:
    """All results as REST has them, in the order in which they were committed."""
    found = world.by_batch()
    return [(row["k"], row["w"]) for batch in sorted(found) for row in found[batch]]


def test_all_results_are_appended_once(world: World, sink: TableSink, postgres: PostgresServer) -> None:
    world.set_sink(sink)
    for count in (4, 0, 7):
        world.commit(count)
    assert world.deliver() == 2
    assert sorted(rows(postgres, sink, "SELECT k, w FROM gusts")) == sorted(as_given(world))
    noted = rows(postgres, sink, "SELECT catalog, series, target, batch, rows FROM sluice_delivered")
    assert noted == [("c1", world.series, "gusts", 2, 11)]
    assert world.present().rows == 11
    types = rows(
        postgres,
        sink,
        "SELECT data_type FROM information_schema.columns WHERE table_name = 'gusts' ORDER BY 1",
    )
    assert types == [("bigint",), ("double precision",), ("timestamp with time zone",)]


def test_a_batch_that_comes_again_after_a_crash_is_known(
    world: World, sink: TableSink, postgres: PostgresServer
) -> None:
    world.set_sink(sink)
    for count in (3, 2):
        world.commit(count)
        with dying(world.store, writes=0):  # the table has the batch, and the catalog does not know
            world.deliver()
        world.delivery = world.new_delivery()
        world.delivery.catalog_id = "c1"
        assert world.present().pending == 1
        assert world.deliver() == 1
    assert sorted(rows(postgres, sink, "SELECT k, w FROM gusts")) == sorted(as_given(world))


def test_a_key_keeps_the_last_result(world: World, sink: TableSink, postgres: PostgresServer) -> None:
    world.set_sink(replace(sink, key=("k",)))
    for count in (5, 3, 6):
        world.commit(count)
    world.deliver()
    last = {}
    for k, w in as_given(world):
        last[k] = w
    assert sorted(rows(postgres, sink, "SELECT k, w FROM gusts")) == sorted(last.items())


def test_a_table_that_refuses_rows_has_none_of_the_batch(
    world: World, sink: TableSink, postgres: PostgresServer
) -> None:
    world.set_sink(sink)
    world.commit(2)
    world.deliver()
    with psycopg.connect(
        host="127.0.0.1", port=postgres.port, dbname=sink.database, user="sluice", password=postgres.password
    ) as connection:
        connection.execute("ALTER TABLE gusts ADD CHECK (k < 0) NOT VALID")
    world.commit(3)
    with pytest.raises(SinkFailed, match="violates check constraint"):
        world.deliver()
    assert rows(postgres, sink, "SELECT count(*) FROM gusts") == [(2,)]
    assert world.present().pending == 1


@pytest.mark.parametrize("key", [(), ("k",)])
def test_result_punctuations_are_rows_of_tables_without_a_key(
    world: World, sink: TableSink, postgres: PostgresServer, key: tuple[str, ...]
) -> None:
    world.set_sink(replace(sink, key=key))
    part = pa.RecordBatch.from_pydict(
        {"k": [7, 8, None], "w": [1.5, 2.5, None], "_punctuation": [None, None, '{"k":7}']}
    )
    write_batch("c1", world.present(), replace(sink, key=key), 0, iter([part, part]))
    expected: list[tuple[object, ...]] = [(7, 1.5, None), (8, 2.5, None)]
    if not key:
        expected = [*expected, (None, None, '{"k":7}')] * 2
    found = rows(postgres, sink, "SELECT k, w, _punctuation FROM gusts")
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_groups_are_rows_of_which_a_key_keeps_the_last(
    world: World, sink: TableSink, postgres: PostgresServer
) -> None:
    keyed = replace(sink, key=("k",))
    world.set_sink(keyed)
    for batch, bids in enumerate((3, 5)):
        group = {"k": [7], "bids": [bids], "spent": [0.25 * bids], "_closed_by": ["punctuation"]}
        write_batch("c1", world.present(), keyed, batch, iter([pa.RecordBatch.from_pydict(group)]))
    found = rows(postgres, sink, "SELECT k, bids, spent, _closed_by FROM gusts")
    assert found == [(7, 5, 1.25, "punctuation")]


def test_a_server_that_is_away_and_a_missing_secret_are_told(world: World, sink: TableSink) -> None:
    world.set_sink(replace(sink, server="127.0.0.1:1"))
    world.commit(1)
    with pytest.raises(SinkFailed, match="PostgreSQL: connection"):
        world.deliver()
    world.set_sink(replace(sink, password=EnvSecret("SLUICE_SECRET_NOT_SET")))
    assert "NOT_SET" not in repr(sink)
    world.commit(1)
    with pytest.raises((SecretMissing, SinkFailed)):
        world.deliver()
