"""Queries that are updated and paused, the history of plans, and migrations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Give every query its own series and every plan an entry in the history."""
    with op.batch_alter_table("queries") as queries:
        queries.add_column(sa.Column("series", _BIG, nullable=False, server_default="0"))
        queries.add_column(sa.Column("left_by", sa.Text()))
        queries.add_column(sa.Column("missing", sa.Text(), nullable=False, server_default="[]"))
    op.execute("UPDATE queries SET series = id")
    op.execute("UPDATE queries SET left_by = 'remove' WHERE removed_version IS NOT NULL")
    # The catalog does not record which columns earlier queries lacked. The safe assumption is that these
    # queries lacked all columns.
    op.execute("UPDATE queries SET missing = '[\"*\"]'")
    op.create_index(op.f("ix_queries_series"), "queries", ["series"])
    op.create_table(
        "plan_history",
        sa.Column("version", _BIG, primary_key=True, autoincrement=False),
        sa.Column("seq", _BIG, nullable=False),
        sa.Column("created_at_us", _BIG, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
    )
    op.execute(
        "INSERT INTO plan_history (version, seq, created_at_us, actor, cause, document) "
        "SELECT version, seq, created_at_us, 'service', 'before the history began', '{}' FROM plans"
    )
    op.create_table(
        "migrations",
        sa.Column("id", _BIG, primary_key=True, autoincrement=False),
        sa.Column("plan_version", _BIG),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created_at_us", _BIG, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
    )
