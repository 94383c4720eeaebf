"""Allow reading files again that were set aside, and skipping bad rows of files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_LEFT_OUT = sa.text("(verdict <> 'ok' OR skipped > 0)")


def upgrade() -> None:
    """Add the columns for retries; in earlier versions no path was listed twice."""
    with op.batch_alter_table("inputs") as inputs:
        inputs.add_column(sa.Column("skipped", _BIG, nullable=False, server_default="0"))
        inputs.add_column(sa.Column("retry", sa.Boolean(), nullable=False, server_default=sa.false()))
        inputs.add_column(sa.Column("replaced", _BIG, nullable=False, server_default="0"))
        inputs.drop_constraint("uq_inputs_stream_id_path", type_="unique")
        inputs.create_unique_constraint(
            op.f("uq_inputs_stream_id_path_replaced"), ["stream_id", "path", "replaced"]
        )
    op.create_index(
        "ix_inputs_left_out", "inputs", ["stream_id"], sqlite_where=_LEFT_OUT, postgresql_where=_LEFT_OUT
    )
