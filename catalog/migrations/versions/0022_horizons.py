"""Store horizons of streams as control records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the column; until now there were no horizons."""
    op.add_column("control_log", sa.Column("horizon_us", _BIG))
