"""Routes may be stored as intersections, which earlier versions cannot read."""

from __future__ import annotations

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing: routes that are already stored stay as they are."""
