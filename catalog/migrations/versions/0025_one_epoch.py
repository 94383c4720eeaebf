"""The lease counts the fencing epochs, which had a table and a counter of their own."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

#: Holder of a released lease, as ``catalog.store.lease.Holder`` is stored.
_NOBODY: Final = '{"host":"","boot":"","processes":"","pid":0,"started_s":0.0,"directory":""}'


def upgrade() -> None:
    """Raise the lease's epoch to the newest epoch, so that none is used twice, and drop the table."""
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
