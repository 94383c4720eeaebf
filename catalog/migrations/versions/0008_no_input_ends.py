"""Only Spark's offset log records where the input of a batch ends."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from catalog.errors import CatalogVersionMismatch

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the table; refuse if the last batch read past its offset, as rows would be read twice."""
    ends, batches = sa.table("input_ends", sa.column("batch")), sa.table("batches", sa.column("batch"))
    last = sa.select(sa.func.coalesce(sa.func.max(batches.c.batch), 0)).scalar_subquery()
    beyond = op.get_bind().execute(sa.select(sa.func.max(ends.c.batch)).where(ends.c.batch >= last)).scalar()
    if beyond is not None:
        raise CatalogVersionMismatch(
            f"batch {beyond} read more input than Spark's log records, which this version does not support",
            hint="Start the former version without new input, pause and resume a query, stop it, "
            "then start this version.",
        )
    op.drop_table("input_ends")
