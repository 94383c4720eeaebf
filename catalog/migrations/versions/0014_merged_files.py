"""Files of merged batches, and the first batch whose files are not merged."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table, empty because the manifests of earlier versions name all files."""
    op.create_table(
        "merged_files",
        sa.Column("path", sa.Text(), primary_key=True),
        sa.Column("late", sa.Boolean(), primary_key=True),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("rows", _BIG, nullable=False),
        sa.Column("bytes", _BIG),
        sa.Column("crc32c", _BIG),
        sa.Column("first", _BIG, nullable=False),
        sa.Column("last", _BIG, nullable=False),
        sa.Column("first_at_us", _BIG, nullable=False),
        sa.Column("last_at_us", _BIG, nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
    )
    op.create_index(op.f("ix_merged_files_family_first"), "merged_files", ["family", "first"])
    with op.batch_alter_table("batch_totals") as totals:
        totals.add_column(sa.Column("merged_until", _BIG, nullable=False, server_default="0"))
