"""Tables of the catalog, as they are after all migrations.

Times are int64 µs UTC. A value is stored as a JSON document (``documents.codec``), next to the columns by
which it is searched. Routes and counts are stored as Arrow tables (``catalog.values.routes``). Streams,
queries, plans and routes are deleted only after all rows that refer to them (``store.pruning``). Ids are
taken from ``counters`` and never reused.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

#: Alembic revision that these tables describe; a test checks that it is the newest migration.
SCHEMA_REVISION = "0025"
#: Oldest revision from which a catalog can be migrated.
OLDEST_REVISION = "0012"

# In SQLite, only an INTEGER column can be an alias of the row id; it has 64 bits. In other databases
# INTEGER has 32 bits.
BIG = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BIG, nullable=False),
)

streams = Table(
    "streams",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("folded_name", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("created_at_us", BIG, nullable=False),
    Column("removed_at_us", BIG),
)
Index(
    "uq_streams_live_name",
    streams.c.folded_name,
    unique=True,
    sqlite_where=streams.c.removed_at_us.is_(None),
    postgresql_where=streams.c.removed_at_us.is_(None),
)

queries = Table(
    "queries",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("folded_name", Text, nullable=False, index=True),
    Column("stream_a", BIG, ForeignKey("streams.id"), nullable=False),
    Column("stream_b", BIG, ForeignKey("streams.id"), nullable=False),
    Column("document", Text, nullable=False),
    Column("added_version", BIG, nullable=False),
    Column("removed_version", BIG),
    Column("created_at_us", BIG, nullable=False),
    Column("removed_at_us", BIG),
    Column("series", BIG, nullable=False, server_default="0", index=True),
    Column("left_by", Text),
    Column("missing", Text, nullable=False, server_default="[]"),
    Column("pause_reason", Text),
)
Index(
    "uq_queries_running_name",
    queries.c.folded_name,
    unique=True,
    sqlite_where=queries.c.removed_version.is_(None),
    postgresql_where=queries.c.removed_version.is_(None),
)

plans = Table(
    "plans",
    metadata,
    Column("version", BIG, primary_key=True, autoincrement=False),
    Column("seq", BIG, nullable=False, unique=True),
    Column("document", Text, nullable=False),
    Column("created_at_us", BIG, nullable=False),
    Column("base", BIG),
)

control_log = Table(
    "control_log",
    metadata,
    Column("seq", BIG, primary_key=True, autoincrement=False),
    Column("at_batch", BIG),
    Column("plan_version", BIG, ForeignKey("plans.version")),
    Column("heartbeat_stream_id", BIG),
    Column("heartbeat_watermark_us", BIG),
    Column("created_at_us", BIG, nullable=False),
    # Punctuations; heartbeat_stream_id is the id of their stream.
    Column("promises", Text),
    # Event time below which rows of the stream heartbeat_stream_id leave the state, µs UTC.
    Column("horizon_us", BIG),
    # Query whose result punctuations are requested; heartbeat_stream_id is the id of its first stream.
    Column("pulled_query", BIG),
    CheckConstraint("(plan_version IS NULL) <> (heartbeat_stream_id IS NULL)", name="one_payload"),
)

plan_history = Table(
    "plan_history",
    metadata,
    Column("version", BIG, primary_key=True, autoincrement=False),
    Column("seq", BIG, nullable=False),
    Column("created_at_us", BIG, nullable=False),
    Column("actor", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("document", Text, nullable=False),
)

migrations = Table(
    "migrations",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=False),
    Column("plan_version", BIG),
    Column("actor", Text, nullable=False),
    Column("created_at_us", BIG, nullable=False),
    Column("document", Text, nullable=False),
)

inputs = Table(
    "inputs",
    metadata,
    Column("stream_id", BIG, ForeignKey("streams.id"), primary_key=True, autoincrement=False),
    Column("position", BIG, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("size", BIG, nullable=False),
    Column("mtime_ns", BIG, nullable=False),
    Column("rows", BIG, nullable=False),
    Column("t_min_us", BIG),
    Column("t_max_us", BIG),
    Column("verdict", Text, nullable=False),
    Column("reason", Text),
    Column("listed_at_us", BIG, nullable=False),
    Column("skipped", BIG, nullable=False, server_default="0"),
    Column("retry", Boolean, nullable=False, server_default=false()),
    # 0 for the current listing of a path; position + 1 for a listing that a later listing has replaced.
    Column("replaced", BIG, nullable=False, server_default="0"),
    UniqueConstraint("stream_id", "path", "replaced"),
)
#: Condition for files that were set aside or have skipped rows. SQL must contain this text to use the partial
#: index.
LEFT_OUT = text("(verdict <> 'ok' OR skipped > 0)")
Index(
    "ix_inputs_left_out",
    inputs.c.stream_id,
    sqlite_where=LEFT_OUT,
    postgresql_where=LEFT_OUT,
)

lease = Table(
    "lease",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=False),
    Column("epoch", BIG, nullable=False),
    Column("token", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("expiry_ms", BIG, nullable=False),
    Column("renewals", BIG, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)

batches = Table(
    "batches",
    metadata,
    Column("batch", BIG, primary_key=True, autoincrement=False),
    Column("epoch", BIG, nullable=False),
    Column("plan_version", BIG, nullable=False),
    Column("document", Text, nullable=False),
    Column("committed_at_us", BIG, nullable=False),
    Index(None, "plan_version", "batch"),
)

# There is no foreign key to batches, because a row belongs to many batches.
query_counts = Table(
    "query_counts",
    metadata,
    Column("first", BIG, primary_key=True, autoincrement=False),
    Column("last", BIG, nullable=False, index=True),
    Column("counts", LargeBinary, nullable=False),
    Column("added", Boolean, nullable=False),
)

query_totals = Table(
    "query_totals",
    metadata,
    Column("query_id", BIG, primary_key=True, autoincrement=False),
    Column("rows", BIG, nullable=False),
    Column("dropped", BIG, nullable=False, server_default="0"),
    Column("dropped_batch", BIG),
    Column("dropped_of_batch", BIG, nullable=False, server_default="0"),
)

batch_totals = Table(
    "batch_totals",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=False),
    Column("batches", BIG, nullable=False),
    Column("input_rows", BIG, nullable=False),
    Column("late_rows", BIG, nullable=False),
    Column("state_rows_peak", BIG, nullable=False),
    Column("state_bytes_peak", BIG, nullable=False),
    Column("kept_from", BIG, nullable=False, server_default="0"),
    Column("merged_until", BIG, nullable=False, server_default="0"),
    CheckConstraint("id = 1", name="one_row"),
)

stream_totals = Table(
    "stream_totals",
    metadata,
    Column("stream_id", BIG, primary_key=True, autoincrement=False),
    Column("rows", BIG, nullable=False),
    Column("late_rows", BIG, nullable=False),
    Column("rejected_rows", BIG, nullable=False),
    Column("watermark_us", BIG),
    Column("max_event_time_us", BIG),
)

# There is no foreign key to batches, because later batches use the routes, too, and the manifest of the batch
# that added them is dropped first.
batch_routes = Table(
    "batch_routes",
    metadata,
    Column("batch", BIG, primary_key=True, autoincrement=False),
    Column("since", BIG, nullable=False, index=True),
    Column("plan_version", BIG, nullable=False),
    Column("routes", LargeBinary, nullable=False),
)

# There is no foreign key to batches, because a file outlives the manifests of its first batches.
merged_files = Table(
    "merged_files",
    metadata,
    Column("path", Text, primary_key=True),
    Column("late", Boolean, primary_key=True),
    Column("family", Text, nullable=False),
    Column("rows", BIG, nullable=False),
    Column("bytes", BIG),
    Column("crc32c", BIG),
    Column("first", BIG, nullable=False),
    Column("last", BIG, nullable=False),
    Column("first_at_us", BIG, nullable=False),
    Column("last_at_us", BIG, nullable=False),
    Column("level", Integer, nullable=False),
    Index(None, "family", "first"),
)

sinks = Table(
    "sinks",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=False),
    Column("series", BIG, nullable=False, index=True),
    Column("document", Text),
    Column("from_version", BIG),
    Column("from_batch", BIG),
    Column("next_batch", BIG, nullable=False),
    Column("next_row", BIG, nullable=False),
    Column("rows", BIG, nullable=False),
    Column("batches", BIG, nullable=False),
    Column("failures", BIG, nullable=False),
    Column("lost", BIG, nullable=False),
    Column("last_batch", BIG),
    Column("error", Text),
    Column("error_at_us", BIG),
    Column("delivered_at_us", BIG),
    Column("created_at_us", BIG, nullable=False),
    Column("lost_rows", BIG, nullable=False, server_default="0"),
    Column("lost_batch", BIG),
    Column("lost_at_us", BIG),
    Column("file_end", BIG),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at_us", BIG, nullable=False, index=True),
)

settings = Table(
    "settings",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("secret_hash", Text, nullable=False),
    Column("rate_per_s", Integer, nullable=False),
    Column("created_at_us", BIG, nullable=False),
    Column("revoked_at_us", BIG),
)
Index(
    "uq_api_keys_live_name",
    api_keys.c.name,
    unique=True,
    sqlite_where=api_keys.c.revoked_at_us.is_(None),
    postgresql_where=api_keys.c.revoked_at_us.is_(None),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BIG, primary_key=True, autoincrement=False),
    Column("at_us", BIG, nullable=False),
    Column("actor", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("status", Integer),
)
