"""Input ends of batches that read more input after Spark had logged their offsets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table; the input of earlier batches ended at their offsets."""
    op.create_table(
        "input_ends",
        sa.Column("batch", _BIG, primary_key=True, autoincrement=False),
        sa.Column("ends", sa.Text(), nullable=False),
    )
