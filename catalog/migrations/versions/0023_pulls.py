"""Store requests for result punctuations as control records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; until now there were no such requests."""
    op.add_column(
        "control_log", sa.Column("pulled_query", sa.BigInteger().with_variant(sa.Integer(), "sqlite"))
    )
