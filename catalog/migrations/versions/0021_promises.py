"""Store punctuations of streams outside the event log as control records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; until now no punctuations were stored in the control log."""
    op.add_column("control_log", sa.Column("promises", sa.Text()))
