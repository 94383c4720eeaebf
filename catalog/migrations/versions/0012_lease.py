"""The lease of the catalog: one engine at a time, on any machine."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0009"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table; nobody holds the lease."""
    op.create_table(
        "lease",
        sa.Column("id", BIG, primary_key=True, autoincrement=False),
        sa.Column("epoch", BIG, nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("expiry_ms", BIG, nullable=False),
        sa.Column("renewals", BIG, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_lease_one_row")),
    )
