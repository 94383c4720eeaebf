"""Retention: totals of dropped results, and the first batch that is kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns; nothing was dropped so far."""
    with op.batch_alter_table("query_totals") as totals:
        totals.add_column(sa.Column("dropped", _BIG, nullable=False, server_default="0"))
        totals.add_column(sa.Column("dropped_batch", _BIG))
        totals.add_column(sa.Column("dropped_of_batch", _BIG, nullable=False, server_default="0"))
    with op.batch_alter_table("batch_totals") as totals:
        totals.add_column(sa.Column("kept_from", _BIG, nullable=False, server_default="0"))
    # With a foreign key, each dropped batch would cause a scan of the rows of all other batches. In SQLite,
    # the rows can be stored in the primary key's index alone (no row ids), which halves the largest table of
    # a catalog.
    with op.batch_alter_table("batch_queries", table_kwargs={"sqlite_with_rowid": False}) as rows:
        rows.drop_constraint("fk_batch_queries_batch", type_="foreignkey")
    op.create_index(op.f("ix_batches_plan_version_batch"), "batches", ["plan_version", "batch"])
