"""Reason why the engine paused a query."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; all queries paused so far were paused by people."""
    op.add_column("queries", sa.Column("pause_reason", sa.Text()))
