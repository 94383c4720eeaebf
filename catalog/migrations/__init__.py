"""Migrations of the catalog's tables (Alembic), run by ``upgrade`` and verified by ``differences``.

There is no ``alembic.ini``. A new migration is a module ``versions/<nnnn>_<what>.py`` written by hand, and
its number is entered in ``catalog.store.database.tables.SCHEMA_REVISION``. ``tests/catalog/test_open.py``
compares the migrated tables with ``catalog.store.database.tables``. ``tests/crash/test_old_data_dirs.py``
continues runs from stored data directories of older versions. The oldest directory has revision 0012, the
first migration here.
"""

from __future__ import annotations

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from catalog.store.database.tables import metadata


def configuration() -> Config:
    """Return Alembic's configuration, which finds the scripts as package data."""
    config = Config()
    config.set_main_option("script_location", "catalog:migrations")
    return config


def upgrade(connection: Connection) -> None:
    """Bring the tables to the newest revision, inside the connection's transaction.

    Args:
        connection: Connection inside a locked write transaction, so that two processes cannot migrate at the
            same time.
    """
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def differences(connection: Connection) -> list[str]:
    """Return how the tables differ from ``catalog.store.database.tables``; other tables are ignored."""
    return [
        f"{change[0]} {getattr(change[-1], 'name', change[-1])}"
        for found in compare_metadata(MigrationContext.configure(connection), metadata)
        for change in (found if isinstance(found, list) else [found])
        if change[0] not in ("remove_table", "remove_index")
    ]
