"""Sinks: the file that a sink has begun, and the results that it has lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns; so far a file had one batch, and losses were counted in batches but not in results."""
    with op.batch_alter_table("sinks") as sinks:
        sinks.add_column(sa.Column("lost_rows", _BIG, nullable=False, server_default="0"))
        sinks.add_column(sa.Column("lost_batch", _BIG))
        sinks.add_column(sa.Column("lost_at_us", _BIG))
        sinks.add_column(sa.Column("file_end", _BIG))
