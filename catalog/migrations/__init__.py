"""Migrations of the catalog's tables (Alembic), run by ``upgrade`` from inside the package.

There is no ``alembic.ini``: a new migration is a module ``versions/<nnnn>_<what>.py`` written by hand, its
number goes to ``catalog.store.tables.SCHEMA_REVISION``, and a test compares what they make with the tables.
"""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def configuration() -> Config:
    """Return Alembic's configuration, which finds the scripts as package data."""
    config = Config()
    config.set_main_option("script_location", "catalog:migrations")
    return config


def upgrade(connection: Connection) -> None:
    """Bring the tables to the newest revision, inside the connection's transaction.

    Args:
        connection: In a locked write transaction, so that two processes do not migrate at once.
    """
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
