"""Keys of clients, and the audit log of requested changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0017"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables, empty because earlier versions had no keys and no audit log."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("rate_per_s", sa.Integer(), nullable=False),
        sa.Column("created_at_us", _BIG, nullable=False),
        sa.Column("revoked_at_us", _BIG),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    live = sa.text("revoked_at_us IS NULL")
    op.create_index(
        "uq_api_keys_live_name",
        "api_keys",
        ["name"],
        unique=True,
        sqlite_where=live,
        postgresql_where=live,
    )
    op.create_table(
        "audit_log",
        sa.Column("id", _BIG, autoincrement=False, nullable=False),
        sa.Column("at_us", _BIG, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
