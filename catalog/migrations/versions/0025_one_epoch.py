"""Keep the fencing epoch in the lease instead of in a table and a counter of its own."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

#: Stored form of the ``catalog.store.lease.Holder`` of a released lease.
_NOBODY: Final = '{"host":"","boot":"","processes":"","pid":0,"started_s":0.0,"directory":""}'


def upgrade() -> None:
    """Raise the lease's epoch to the newest one, so that no epoch is used twice; drop the table of epochs."""
    connection = op.get_bind()
    newest = connection.execute(sa.text("SELECT max(epoch) FROM epochs")).scalar()
    if newest is not None:
        connection.execute(
            sa.text(
                "INSERT INTO lease (id, epoch, token, holder, expiry_ms, renewals) "
                "SELECT 1, 0, '', :nobody, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM lease)"
            ),
            {"nobody": _NOBODY},
        )
        connection.execute(sa.text("UPDATE lease SET epoch = :new WHERE epoch < :new"), {"new": newest})
    connection.execute(sa.text("DELETE FROM counters WHERE name = 'epoch'"))
    with op.batch_alter_table("batches") as batches:
        batches.drop_constraint(op.f("fk_batches_epoch"), type_="foreignkey")
    op.drop_table("epochs")
