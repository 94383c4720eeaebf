"""The first tables: streams, queries, sinks, plans, listed inputs, batches, the lease and settings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = None
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _big(
    name: str, *more: sa.ForeignKey, null: bool = False, key: bool = False, default: str | None = None
) -> sa.Column[int]:
    """Return a 64-bit column; if it is a key, Sluice and not the database assigns its values."""
    if key:
        return sa.Column(name, _BIG, *more, primary_key=True, autoincrement=False)
    return sa.Column(name, _BIG, *more, nullable=null, server_default=default)


def _text(name: str, *, null: bool = False, key: bool = False, default: str | None = None) -> sa.Column[str]:
    """Return a text column."""
    return sa.Column(name, sa.Text(), primary_key=key, nullable=null, server_default=default)


def _to(table: str, column: str, target: str) -> sa.ForeignKey:
    """Return a foreign key with its conventional name."""
    return sa.ForeignKey(target, name=op.f(f"fk_{table}_{column}"))


def upgrade() -> None:
    """Make the tables."""
    op.create_table("counters", _text("name", key=True), _big("value"))
    _streams_and_queries()
    _sinks()
    _plans()
    _inputs()
    _batches()
    op.create_table(
        "idempotency_keys",
        _text("key", key=True),
        _text("fingerprint"),
        sa.Column("status", sa.Integer(), nullable=False),
        _text("body"),
        _big("created_at_us"),
    )
    op.create_index(op.f("ix_idempotency_keys_created_at_us"), "idempotency_keys", ["created_at_us"])
    op.create_table("settings", _text("key", key=True), _text("value"))
    op.create_table(
        "lease",
        _big("id", key=True),
        _big("epoch"),
        _text("token"),
        _text("holder"),
        _big("expiry_ms"),
        _big("renewals"),
        sa.CheckConstraint("id = 1", name=op.f("ck_lease_one_row")),
    )


def _streams_and_queries() -> None:
    """Create the tables of streams and queries; the name of a removed stream or query can be used again."""
    op.create_table(
        "streams",
        _big("id", key=True),
        _text("name"),
        _text("folded_name"),
        _text("document"),
        _big("created_at_us"),
        _big("removed_at_us", null=True),
    )
    live = sa.text("removed_at_us IS NULL")
    op.create_index(
        "uq_streams_live_name",
        "streams",
        ["folded_name"],
        unique=True,
        sqlite_where=live,
        postgresql_where=live,
    )
    op.create_table(
        "queries",
        _big("id", key=True),
        _text("name"),
        _text("folded_name"),
        _big("stream_a", _to("queries", "stream_a", "streams.id")),
        _big("stream_b", _to("queries", "stream_b", "streams.id")),
        _text("document"),
        _big("added_version"),
        _big("removed_version", null=True),
        _big("created_at_us"),
        _big("removed_at_us", null=True),
        _big("series", default="0"),
        _text("left_by", null=True),
        _text("missing", default="[]"),
    )
    op.create_index(op.f("ix_queries_folded_name"), "queries", ["folded_name"])
    op.create_index(op.f("ix_queries_series"), "queries", ["series"])
    running = sa.text("removed_version IS NULL")
    op.create_index(
        "uq_queries_running_name",
        "queries",
        ["folded_name"],
        unique=True,
        sqlite_where=running,
        postgresql_where=running,
    )


def _sinks() -> None:
    """Create the table of sinks and their progress."""
    op.create_table(
        "sinks",
        _big("id", key=True),
        _big("series"),
        _text("document", null=True),
        _big("from_version", null=True),
        _big("from_batch", null=True),
        _big("next_batch"),
        _big("next_row"),
        _big("rows"),
        _big("batches"),
        _big("failures"),
        _big("lost"),
        _big("last_batch", null=True),
        _text("error", null=True),
        _big("error_at_us", null=True),
        _big("delivered_at_us", null=True),
        _big("created_at_us"),
    )
    op.create_index(op.f("ix_sinks_series"), "sinks", ["series"])


def _plans() -> None:
    """Create the tables of plans, their history, migrations, and the control log that carries plans."""
    op.create_table(
        "plans",
        _big("version", key=True),
        _big("seq"),
        _text("document"),
        _big("created_at_us"),
        sa.UniqueConstraint("seq", name=op.f("uq_plans_seq")),
    )
    op.create_table(
        "plan_history",
        _big("version", key=True),
        _big("seq"),
        _big("created_at_us"),
        _text("actor"),
        _text("cause"),
        _text("document"),
    )
    op.create_table(
        "migrations",
        _big("id", key=True),
        _big("plan_version", null=True),
        _text("actor"),
        _big("created_at_us"),
        _text("document"),
    )
    op.create_table(
        "control_log",
        _big("seq", key=True),
        _big("at_batch", null=True),
        _big("plan_version", _to("control_log", "plan_version", "plans.version"), null=True),
        _big("heartbeat_stream_id", null=True),
        _big("heartbeat_watermark_us", null=True),
        _big("created_at_us"),
        sa.CheckConstraint(
            "(plan_version IS NULL) <> (heartbeat_stream_id IS NULL)",
            name=op.f("ck_control_log_one_payload"),
        ),
    )


def _inputs() -> None:
    """Create the table of listed files."""
    op.create_table(
        "inputs",
        _big("stream_id", _to("inputs", "stream_id", "streams.id"), key=True),
        _big("position", key=True),
        _text("path"),
        _big("size"),
        _big("mtime_ns"),
        _big("rows"),
        _big("t_min_us", null=True),
        _big("t_max_us", null=True),
        _text("verdict"),
        _text("reason", null=True),
        _big("listed_at_us"),
        sa.UniqueConstraint("stream_id", "path", name=op.f("uq_inputs_stream_id_path")),
    )


def _batches() -> None:
    """Create the tables of epochs, manifests, totals and routes."""
    op.create_table("epochs", _big("epoch", key=True), _text("owner"), _big("started_at_us"))
    op.create_table(
        "batches",
        _big("batch", key=True),
        _big("epoch", _to("batches", "epoch", "epochs.epoch")),
        _big("plan_version"),
        _text("document"),
        _big("committed_at_us"),
    )
    op.create_index(op.f("ix_batches_plan_version_batch"), "batches", ["plan_version", "batch"])
    # In SQLite, the rows are stored in the primary key's index alone (no row ids), which halves the largest
    # table of a catalog.
    op.create_table(
        "batch_queries",
        _big("query_id", key=True),
        _big("batch", key=True),
        _big("rows"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "query_totals",
        _big("query_id", key=True),
        _big("rows"),
        _big("dropped", default="0"),
        _big("dropped_batch", null=True),
        _big("dropped_of_batch", default="0"),
    )
    op.create_table(
        "stream_totals",
        _big("stream_id", key=True),
        _big("rows"),
        _big("late_rows"),
        _big("rejected_rows"),
        _big("watermark_us", null=True),
        _big("max_event_time_us", null=True),
    )
    op.create_table(
        "batch_totals",
        _big("id", key=True),
        _big("batches"),
        _big("input_rows"),
        _big("late_rows"),
        _big("state_rows_peak"),
        _big("state_bytes_peak"),
        _big("kept_from", default="0"),
        sa.CheckConstraint("id = 1", name=op.f("ck_batch_totals_one_row")),
    )
    op.create_table(
        "batch_routes",
        _big("batch", key=True),
        _big("since"),
        _big("plan_version"),
        sa.Column("routes", sa.LargeBinary(), nullable=False),
    )
    op.create_index(op.f("ix_batch_routes_since"), "batch_routes", ["since"])
