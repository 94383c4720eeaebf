"""Alembic's entry point: run the migrations on the connection that ``upgrade`` passes in."""

from __future__ import annotations

from alembic import context

from catalog.store.database.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
