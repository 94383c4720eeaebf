"""Opening a catalog: migrations from the package, clear errors, safe settings of SQLite."""

from __future__ import annotations

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
from catalog.store.database.tables import OLDEST_REVISION, SCHEMA_REVISION, metadata
from catalog.store.lease import Holder, Lease
from catalog.store.store import Store
from tests.catalog.examples import manifest, stream


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


def test_a_catalog_of_before_the_first_migration_is_left_alone(url: str) -> None:
    with Store.open(url) as store, store._database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0009'")
    with pytest.raises(CatalogVersionMismatch, match='schema "0009"') as caught:
        Store.open(url)
    assert caught.value.hint == 'First start a version of Sluice that needs schema "0012" to "0024".'


def test_the_oldest_revision_is_the_first_migration() -> None:
    assert ScriptDirectory.from_config(configuration()).get_bases() == [OLDEST_REVISION]


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
