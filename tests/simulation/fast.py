"""Catalogs and readers of many worlds in one process, cheaply: what is the same for all is made once.

SQLAlchemy keeps compiled statements with an engine and its dialect; here all engines share those of one.
Alembic makes the tables of one catalog, and its statements those of all others, since it takes 0.2 s. All
readers of results share a database of DuckDB's, since it takes 30 ms to make one.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
import sqlalchemy

from catalog import migrations
from catalog.store.database import database
from service.results import results
from tests import empty_catalog

_create_engine = sqlalchemy.create_engine


@cache
def _first() -> sqlalchemy.Engine:
    engine = _create_engine("sqlite://")
    engine.connect().close()
    return engine


def _created(url: sqlalchemy.URL, **options: Any) -> sqlalchemy.Engine:
    engine = _create_engine(url, **options)
    engine.dialect = _first().dialect
    engine._compiled_cache = _first()._compiled_cache
    return engine


@cache
def _statements() -> tuple[str, ...]:
    """Return what makes the tables of an empty catalog, and the few rows that they have."""
    with TemporaryDirectory() as directory:
        write_empty_catalog(Path(directory) / "empty")
        with closing(sqlite3.connect(Path(directory) / "empty" / "catalog.db")) as catalog:
            return tuple(text for text in catalog.iterdump() if text not in ("BEGIN TRANSACTION;", "COMMIT;"))


def _upgrade(connection: sqlalchemy.Connection) -> None:
    if sqlalchemy.inspect(connection).get_table_names():
        _alembic(connection)
        return
    for text in _statements():
        connection.exec_driver_sql(text)


_alembic = migrations.upgrade


class _SharedDuckDB:
    """Stands for the module in ``service.results.results``: connections are those of one database."""

    IOException = duckdb.IOException
    DuckDBPyConnection = duckdb.DuckDBPyConnection

    @staticmethod
    def connect(**_options: Any) -> duckdb.DuckDBPyConnection:
        return _database().cursor()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


@contextmanager
def fast() -> Iterator[None]:
    """Have all catalogs and readers of the block share what is the same for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "create_engine", _created)  # of its arguments these are used
        patch.setattr(migrations, "upgrade", _upgrade)
        patch.setattr(results, "duckdb", _SharedDuckDB)
        yield


def write_empty_catalog(directory: Path) -> None:
    """Make a directory again, with a catalog that has its tables and nothing in them."""
    shutil.rmtree(directory, ignore_errors=True)
    empty_catalog.write_empty_catalog(directory / "catalog.db")
