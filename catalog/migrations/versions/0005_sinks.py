"""Sinks of queries and the progress of each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table of sinks; existing queries have none."""
    op.create_table(
        "sinks",
        sa.Column("id", _BIG, primary_key=True, autoincrement=False),
        sa.Column("series", _BIG, nullable=False),
        sa.Column("document", sa.Text()),
        sa.Column("from_version", _BIG),
        sa.Column("from_batch", _BIG),
        sa.Column("next_batch", _BIG, nullable=False),
        sa.Column("next_row", _BIG, nullable=False),
        sa.Column("rows", _BIG, nullable=False),
        sa.Column("batches", _BIG, nullable=False),
        sa.Column("failures", _BIG, nullable=False),
        sa.Column("lost", _BIG, nullable=False),
        sa.Column("last_batch", _BIG),
        sa.Column("error", sa.Text()),
        sa.Column("error_at_us", _BIG),
        sa.Column("delivered_at_us", _BIG),
        sa.Column("created_at_us", _BIG, nullable=False),
    )
    op.create_index(op.f("ix_sinks_series"), "sinks", ["series"])
