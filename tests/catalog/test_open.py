"""Opening a catalog: migrations from the package, clear errors, safe settings of SQLite."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert, inspect, text

from catalog.documents.codec import encode
from catalog.errors import CatalogDamaged, CatalogDown, CatalogVersionMismatch, FencedOut, InvalidCatalogUrl
from catalog.migrations import configuration
from catalog.store.database import tables
from catalog.store.database.tables import SCHEMA_REVISION, metadata
from catalog.store.lease import Holder, Lease
from catalog.store.store import Store
from catalog.values.routes.counts.query_counts import QueryCounts
from catalog.values.routes.route_table import RouteTable
from tests.catalog.examples import add_query, manifest, plan, stored_routes, stream
from tests.epochs import begin_epoch


def test_the_migrations_make_the_tables(store: Store, url: str) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()
    assert differences == []


def _shape(url: str) -> dict[str, list[object]]:
    """All that a database says of its tables."""
    engine = create_engine(url)
    found = inspect(engine)
    where = f"{engine.dialect.name}_where"
    shape: dict[str, list[object]] = {
        table: [
            [str(column) for column in found.get_columns(table)],
            found.get_pk_constraint(table),
            sorted(map(str, found.get_foreign_keys(table))),
            sorted(map(str, found.get_unique_constraints(table))),
            sorted(map(str, found.get_check_constraints(table))),
            sorted(str((i["name"], i["unique"], i["column_names"])) for i in found.get_indexes(table)),
            sorted(
                str(i["dialect_options"][where])
                for i in found.get_indexes(table)
                if where in i.get("dialect_options", {})
            ),
        ]
        for table in found.get_table_names()
        if table != "alembic_version"
    }
    engine.dispose()
    return shape


def test_the_migrations_make_every_constraint_of_the_tables(url: str) -> None:
    """Alembic's comparison leaves out checks, keys and the conditions of indexes."""
    Store.open(url).close()
    migrated = _shape(url)
    engine = create_engine(url)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    engine.dispose()
    assert _shape(url) == migrated


def test_the_tables_name_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(configuration()).get_heads() == [SCHEMA_REVISION]


def test_migrations_are_found_from_any_directory(url: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from catalog.store.store import Store; Store.open(sys.argv[2]).close()"
    )
    subprocess.run([sys.executable, "-c", code, str(root), url], check=True, cwd=tmp_path)
    with Store.open(url, migrate=False) as store:
        assert store.streams.all() == ()


def test_what_was_stored_is_there_after_opening_again(url: str) -> None:
    with Store.open(url) as store:
        added = store.streams.add(stream("A"))
    with Store.open(url) as store:
        assert store.streams.all() == (added,)


@pytest.mark.parametrize("either_url", ["sqlite"], indirect=True)
def test_sqlite_is_safe_between_processes_and_power_cuts(store: Store, tmp_path: Path) -> None:
    with store._database.read() as connection:  # what no method shows
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 10_000


def test_a_reader_does_not_create_a_catalog(sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogDown, match="catalog does not exist"):
        Store.open(sqlite_url, migrate=False)
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_without_tables_is_not_read(url: str, tmp_path: Path) -> None:
    (tmp_path / "catalog.db").touch()
    with pytest.raises(CatalogVersionMismatch, match='catalog has schema "none"'):
        Store.open(url, migrate=False)


@pytest.mark.parametrize("migrate", [True, False])
def test_a_catalog_of_a_later_version_is_left_alone(url: str, migrate: bool) -> None:
    with Store.open(url) as store, store._database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(
        CatalogVersionMismatch, match=f'schema "9999", this version of Sluice needs "{SCHEMA_REVISION}"'
    ):
        Store.open(url, migrate=migrate)


def test_plans_of_before_joins_become_plans_of_one_join(sqlite_url: str, tmp_path: Path) -> None:
    plans = [plan(1, queries=2), plan(2, queries=3)]
    with Store.open(sqlite_url) as store:
        for version in plans:
            store.control_log.append(plan=version)
            store.control_log.make_whole(version.version)
    connection = sqlite3.connect(tmp_path / "catalog.db")
    documents = dict(connection.execute("SELECT version, document FROM plans"))
    for version, document in documents.items():
        old = json.loads(document)
        for family in old["families"]:
            (join,) = family.pop("joins")
            for name in ("strategy", "given", "replication", "result_columns_a", "result_columns_b", "band"):
                del family[name]
            del family["clock_a"], family["clock_b"], family["probe"], family["punctuations"]
            del family["memory"], family["purge_prices"], family["rests"], family["band_share"]
            family |= {"chain_a": join["chain_a"], "chain_b": join["chain_b"]}
        connection.execute("UPDATE plans SET document = ? WHERE version = ?", (json.dumps(old), version))
    _undo_changes_and_history(connection)
    connection.execute("UPDATE alembic_version SET version_num = '0001'")
    connection.commit()

    with pytest.raises(CatalogVersionMismatch), Store.open(sqlite_url, migrate=False):
        pass
    with Store.open(sqlite_url) as store:
        assert [store.control_log.plan(1), store.control_log.latest_plan()] == plans
        assert [(e.version, e.cause) for e in store.plan_history.page()] == [
            (1, "before the history began"),
            (2, "before the history began"),
        ]
    # Fields that came later are not in them: they have their defaults.
    later = ',"given":false,"replication":{"every":1,"heavy":[]}'
    later += ',"result_columns_a":null,"result_columns_b":null,"band":null,"clock_a":"time","clock_b":"time"'
    later += ',"probe":{"method":"merge","cells":1,"invalidation":"probe"}'
    later += ',"punctuations":{"purge_after":null,"propagate":"push","every_us":null,"every_closings":null}'
    later += ',"memory":{"strategy":"plain","read_ahead":8192}'
    later += ',"purge_prices":{"per_searched_row":2e-9,"per_probed_row":0.0,"per_probed_segment":5.27e-9}'
    later += ',"rests":true,"band_share":null'
    made = {version: text.replace(later, "") for version, text in documents.items()}
    assert dict(connection.execute("SELECT version, document FROM plans")) == made
    connection.close()


@pytest.mark.parametrize(("batch", "refused"), [(0, False), (1, True), (2, True)])
def test_a_last_batch_that_read_beyond_sparks_log_is_refused(
    sqlite_url: str, tmp_path: Path, batch: int, refused: bool
) -> None:
    """Its rows would be read twice: what it read was known to the table that migration 0008 drops."""
    with Store.open(sqlite_url) as store:
        store.control_log.append(plan=plan(1))
        epoch = begin_epoch(store)
        for number in (0, 1):
            store.batches.commit(manifest(number, epoch))
    connection = sqlite3.connect(tmp_path / "catalog.db")
    _undo_columnar_routes(connection)
    connection.execute("CREATE TABLE input_ends (batch INTEGER PRIMARY KEY, ends TEXT NOT NULL)")
    connection.execute("INSERT INTO input_ends VALUES (?, '{}')", (batch,))
    _undo_since_columnar_routes(connection)
    connection.execute("UPDATE alembic_version SET version_num = '0007'")
    connection.commit()

    if refused:
        with pytest.raises(CatalogVersionMismatch, match=f"batch {batch} read more input than Spark's log"):
            Store.open(sqlite_url)
        assert connection.execute("SELECT batch FROM input_ends").fetchall() == [(batch,)]
    else:
        Store.open(sqlite_url).close()
        assert not connection.execute("SELECT * FROM sqlite_master WHERE name = 'input_ends'").fetchall()
    connection.close()


def test_queries_of_before_updates_are_series_of_one(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store:
        a, b = store.streams.add(stream("A")), store.streams.add(stream("B"))
        for name in ("q1", "q2"):
            add_query(store, name, a, b)
        removed = store.queries.remove("q1", 2).query
    connection = sqlite3.connect(tmp_path / "catalog.db")
    _undo_changes_and_history(connection)
    connection.execute("UPDATE alembic_version SET version_num = '0002'")
    connection.commit()
    connection.close()

    with Store.open(sqlite_url) as store:
        found = [(r.series, r.left_by, r.missing) for r in store.queries.all()]
        assert found == [(1, "remove", ("*",)), (2, None, ("*",))]
        assert store.queries.newest("q1").query == removed


def _undo_changes_and_history(connection: sqlite3.Connection) -> None:
    """Take off what migrations since 0003 left."""
    _undo_since_columnar_routes(connection)
    _undo_columnar_routes(connection)
    _undo_batch_routes(connection)
    connection.execute("DROP TABLE sinks")
    connection.execute("DROP INDEX ix_batches_plan_version_batch")
    for column in ("dropped", "dropped_batch", "dropped_of_batch"):
        connection.execute(f"ALTER TABLE query_totals DROP COLUMN {column}")
    connection.execute("ALTER TABLE batch_totals DROP COLUMN kept_from")
    connection.execute("ALTER TABLE batch_queries RENAME TO new_batch_queries")
    connection.execute(
        "CREATE TABLE batch_queries "
        "(query_id INTEGER NOT NULL, batch INTEGER NOT NULL, rows INTEGER NOT NULL, "
        "CONSTRAINT pk_batch_queries PRIMARY KEY (query_id, batch), "
        "CONSTRAINT fk_batch_queries_batch FOREIGN KEY(batch) REFERENCES batches (batch))"
    )
    connection.execute("INSERT INTO batch_queries SELECT * FROM new_batch_queries")
    connection.execute("DROP TABLE new_batch_queries")
    connection.execute("DROP INDEX ix_queries_series")
    for column in ("series", "left_by", "missing"):
        connection.execute(f"ALTER TABLE queries DROP COLUMN {column}")
    for table in ("plan_history", "migrations"):
        connection.execute(f"DROP TABLE {table}")


def _undo_counts_and_differences(connection: sqlite3.Connection) -> None:
    """Keep counts as they were before migration 0019: a row for each query and batch."""
    connection.execute("ALTER TABLE plans DROP COLUMN base")
    encoded = connection.execute("SELECT counts FROM query_counts").fetchall()
    connection.execute("DROP TABLE query_counts")
    connection.execute(
        "CREATE TABLE batch_queries "
        "(query_id INTEGER NOT NULL, batch INTEGER NOT NULL, rows INTEGER NOT NULL, "
        "CONSTRAINT pk_batch_queries PRIMARY KEY (query_id, batch)) WITHOUT ROWID"
    )
    for (data,) in encoded:
        counts = QueryCounts.decode(data)
        rows = zip(counts.queries.tolist(), counts.batches.tolist(), counts.rows.tolist(), strict=True)
        connection.executemany("INSERT INTO batch_queries VALUES (?, ?, ?)", rows)
    # Totals had all of them.
    connection.execute("DELETE FROM query_totals")
    connection.execute(
        "INSERT INTO query_totals (query_id, rows) "
        "SELECT query_id, sum(rows) FROM batch_queries GROUP BY query_id"
    )


def _undo_since_columnar_routes(connection: sqlite3.Connection) -> None:
    """Take off what migrations after 0009 left."""
    _undo_epochs_of_the_lease(connection)
    connection.execute("DROP TABLE inputs")
    connection.execute(
        "CREATE TABLE inputs (stream_id INTEGER NOT NULL, position INTEGER NOT NULL, path TEXT NOT NULL, "
        "size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, rows INTEGER NOT NULL, t_min_us INTEGER, "
        "t_max_us INTEGER, verdict TEXT NOT NULL, reason TEXT, listed_at_us INTEGER NOT NULL, "
        "CONSTRAINT pk_inputs PRIMARY KEY (stream_id, position), "
        "CONSTRAINT fk_inputs_stream_id FOREIGN KEY(stream_id) REFERENCES streams (id), "
        "CONSTRAINT uq_inputs_stream_id_path UNIQUE (stream_id, path))"
    )
    _undo_counts_and_differences(connection)
    for table in ("lease", "api_keys", "audit_log", "merged_files"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("ALTER TABLE queries DROP COLUMN pause_reason")
    connection.execute("ALTER TABLE control_log DROP COLUMN promises")
    connection.execute("ALTER TABLE control_log DROP COLUMN pulled_query")
    connection.execute("ALTER TABLE control_log DROP COLUMN horizon_us")
    connection.execute("ALTER TABLE batch_totals DROP COLUMN merged_until")
    for column in ("lost_rows", "lost_batch", "lost_at_us", "file_end"):
        connection.execute(f"ALTER TABLE sinks DROP COLUMN {column}")


def _undo_epochs_of_the_lease(connection: sqlite3.Connection) -> None:
    """Keep epochs as they were before migration 0025: in a table that batches refer to."""
    connection.execute(
        "CREATE TABLE epochs (epoch INTEGER NOT NULL, owner TEXT NOT NULL, started_at_us INTEGER NOT NULL, "
        "CONSTRAINT pk_epochs PRIMARY KEY (epoch))"
    )
    connection.execute("INSERT INTO epochs SELECT epoch, 'pid 1', 4 FROM lease")
    connection.execute("ALTER TABLE batches RENAME TO new_batches")
    connection.execute(
        "CREATE TABLE batches (batch INTEGER NOT NULL, epoch INTEGER NOT NULL, "
        "plan_version INTEGER NOT NULL, document TEXT NOT NULL, committed_at_us INTEGER NOT NULL, "
        "CONSTRAINT pk_batches PRIMARY KEY (batch), "
        "CONSTRAINT fk_batches_epoch FOREIGN KEY(epoch) REFERENCES epochs (epoch))"
    )
    connection.execute("INSERT INTO batches SELECT * FROM new_batches")
    connection.execute("DROP TABLE new_batches")
    connection.execute("CREATE INDEX ix_batches_plan_version_batch ON batches (plan_version, batch)")


def _undo_columnar_routes(connection: sqlite3.Connection) -> None:
    """Keep routes as they were before migration 0009: JSON, sets of queries as hexadecimal numbers."""
    rows = connection.execute("SELECT batch, since, plan_version, routes FROM batch_routes").fetchall()
    connection.execute("DROP TABLE batch_routes")
    _create_json_routes(connection)
    for batch, since, version, encoded in rows:
        table = RouteTable.decode(encoded)
        queries = sorted(table.sets.queries)
        sets = {n: f"{sum(1 << queries.index(q) for q in ids):x}" for n, ids in table.ids().items()}
        connection.execute(
            "INSERT INTO batch_routes VALUES (?, ?, ?, ?, ?)",
            (batch, since, version, json.dumps(queries), json.dumps(sets)),
        )


def _create_json_routes(connection: sqlite3.Connection) -> None:
    """Create the table as migration 0006 does."""
    connection.execute(
        "CREATE TABLE batch_routes (batch INTEGER NOT NULL, since INTEGER NOT NULL, "
        "plan_version INTEGER NOT NULL, queries TEXT NOT NULL, routes TEXT NOT NULL, "
        "CONSTRAINT pk_batch_routes PRIMARY KEY (batch))"
    )
    connection.execute("CREATE INDEX ix_batch_routes_since ON batch_routes (since)")


def test_routes_kept_as_json_stay_readable(sqlite_url: str, tmp_path: Path) -> None:
    """Rows as the version before wrote them, and one of before the first batch, as migration 0006 made."""
    Store.open(sqlite_url).close()
    connection = sqlite3.connect(tmp_path / "catalog.db")
    _undo_since_columnar_routes(connection)
    connection.execute("DROP TABLE batch_routes")
    _create_json_routes(connection)
    many = list(range(100, 230))
    rows = [
        (-1, -1, 1, "[3,7,9]", '{"8801":"6","2417":"1"}'),
        (4, 4, 2, json.dumps(many), json.dumps({str(2**63 - 1): f"{(1 << 130) - 1:x}", "5": f"{1 << 64:x}"})),
        (6, 4, 2, "[3]", '{"77":"1"}'),
        (7, 4, 2, "[]", "{}"),
    ]
    connection.executemany("INSERT INTO batch_routes VALUES (?, ?, ?, ?, ?)", rows)
    connection.execute("UPDATE alembic_version SET version_num = '0008'")
    connection.commit()
    connection.close()

    with pytest.raises(CatalogVersionMismatch), Store.open(sqlite_url, migrate=False):
        pass
    with Store.open(sqlite_url) as store:
        assert stored_routes(store) == [
            (5, 2, (164,)),
            (77, 2, (3,)),
            (2417, 1, (3,)),
            (8801, 1, (7, 9)),
            (2**63 - 1, 2, tuple(many)),
        ]
        assert store.routes.of_query(9, (0, 3)).tolist() == [8801]
        assert store.routes.of_query(164, (4,)).tolist() == [5, 2**63 - 1]
        assert store.routes.of_query(3, (3, 6)).tolist() == [77, 2417]
    made = f"sqlite:///{tmp_path / 'made.db'}"
    Store.open(made).close()
    assert _shape(sqlite_url) == _shape(made)


_HOLDER = Holder("example", "boot", "pid:[1]", 4711, 1.5, "/data")


@pytest.mark.parametrize(
    ("lease", "epochs", "expected"),
    [
        (None, (), None),
        (None, (3, 5), Lease(5, "", Holder("", "", "", 0, 0.0, ""), 0, 0)),
        (Lease(2, "held", _HOLDER, 8000, 9), (3, 5), Lease(5, "held", _HOLDER, 8000, 9)),
        (Lease(7, "", _HOLDER, 8000, 9), (3, 5), Lease(7, "", _HOLDER, 8000, 9)),
        (Lease(7, "held", _HOLDER, 8000, 9), (), Lease(7, "held", _HOLDER, 8000, 9)),
    ],
)
def test_the_lease_continues_after_the_newest_epoch_of_either_counter(
    url: str, lease: Lease | None, epochs: tuple[int, ...], expected: Lease | None
) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        alembic = configuration()
        alembic.attributes["connection"] = connection
        command.upgrade(alembic, "0024")
        for batch, epoch in enumerate(epochs):
            connection.execute(text(f"INSERT INTO epochs VALUES ({epoch}, 'pid 1', 4)"))
            values = {"document": encode(manifest(batch, epoch)).decode()}
            connection.execute(
                text(f"INSERT INTO batches VALUES ({batch}, {epoch}, 1, :document, 7)"), values
            )
        connection.execute(text("INSERT INTO counters VALUES ('epoch', 5), ('query', 2)"))
        if lease is not None:
            row = {"id": 1, **asdict(lease), "holder": encode(lease.holder).decode()}
            connection.execute(insert(tables.lease).values(row))
    engine.dispose()

    with Store.open(url) as store:
        assert store.lease.current() == expected
        if expected is not None:
            with pytest.raises(FencedOut):
                store.batches.commit(manifest(len(epochs), expected.epoch - 1))
            taken = store.lease.take(_HOLDER, 8000, expected)
            assert taken is not None
            assert taken.epoch == expected.epoch + 1
            assert store.batches.commit(manifest(len(epochs), taken.epoch))
        assert [m.epoch for m in store.batches.manifests(0, 1)][: len(epochs)] == list(epochs)
        assert store.queries.reserve_ids(1)[0] == 3


def _undo_batch_routes(connection: sqlite3.Connection) -> None:
    """Keep routes as they were kept before migration 0006: each once, with its first plan version."""
    connection.execute(
        "CREATE TABLE routes (route INTEGER NOT NULL, plan_version INTEGER NOT NULL, queries TEXT NOT NULL, "
        "CONSTRAINT pk_routes PRIMARY KEY (route))"
    )
    connection.execute(
        "CREATE TABLE route_queries (query_id INTEGER NOT NULL, route INTEGER NOT NULL, "
        "CONSTRAINT pk_route_queries PRIMARY KEY (query_id, route), "
        "CONSTRAINT fk_route_queries_route FOREIGN KEY(route) REFERENCES routes (route))"
    )
    rows = connection.execute("SELECT plan_version, queries, routes FROM batch_routes ORDER BY batch")
    for version, queries, routes in rows.fetchall():
        for route, members in json.loads(routes).items():
            ids = [q for place, q in enumerate(json.loads(queries)) if int(members, 16) >> place & 1]
            added = connection.execute(
                "INSERT OR IGNORE INTO routes VALUES (?, ?, ?)", (int(route), version, json.dumps(ids))
            )
            if added.rowcount:
                connection.executemany(
                    "INSERT INTO route_queries VALUES (?, ?)", [(q, int(route)) for q in ids]
                )
    connection.execute("DROP TABLE batch_routes")


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogDown, match="catalog cannot be used") as caught:
        Store.open(f"sqlite:///{tmp_path}/nowhere/catalog.db")
    assert caught.value.detail is not None
    assert "nowhere" in caught.value.detail


def test_a_file_that_is_no_database_is_named(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("not a database " * 100)
    with pytest.raises(CatalogDamaged, match="catalog is damaged") as caught:
        Store.open(sqlite_url)
    assert caught.value.detail is not None
    assert "not a database" in caught.value.detail


@pytest.mark.parametrize(
    ("url", "primary"),
    [
        ("nonsense", "catalog URL cannot be read"),
        ("mysql://localhost/sluice", 'catalog on "mysql" is not supported'),
        ("sqlite://", "catalog in memory is not supported"),
        ("sqlite:///:memory:", "catalog in memory is not supported"),
        ("postgresql+nothing://localhost/x", 'catalog driver "postgresql+nothing" is not supported'),
        ("postgresql+psycopg://someone:secret@localhost:port/x", "catalog URL cannot be read"),
    ],
)
def test_a_url_that_names_no_catalog_is_bad_input(url: str, primary: str) -> None:
    with pytest.raises(InvalidCatalogUrl) as caught:
        Store.open(url)
    assert caught.value.primary == primary
    assert caught.value.hint
    assert "secret" not in "".join(traceback.format_exception(caught.value))
