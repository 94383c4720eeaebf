"""Routes are kept as the Arrow table that the buckets report, not as JSON of hexadecimal sets."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Rewrite the rows one by one, since a generation of 1,000 queries takes megabytes."""
    with op.batch_alter_table("batch_routes") as routes:
        routes.add_column(sa.Column("encoded", sa.LargeBinary()))
    table = sa.table(
        "batch_routes",
        sa.column("batch", _BIG),
        sa.column("queries", sa.Text()),
        sa.column("routes", sa.Text()),
        sa.column("encoded", sa.LargeBinary()),
    )
    connection = op.get_bind()
    for batch in connection.execute(sa.select(table.c.batch)).scalars().all():
        of_batch = table.c.batch == batch
        row = connection.execute(sa.select(table.c.queries, table.c.routes).where(of_batch)).one()
        encoded = _encoded(json.loads(row.queries), json.loads(row.routes))
        connection.execute(sa.update(table).where(of_batch).values(encoded=encoded))
    with op.batch_alter_table("batch_routes") as routes:
        routes.drop_column("queries")
        routes.drop_column("routes")
        routes.alter_column(
            "encoded", new_column_name="routes", existing_type=sa.LargeBinary(), nullable=False
        )


def _encoded(queries: list[int], routes: dict[str, str]) -> bytes:
    """Encode routes as an Arrow IPC stream: numbers, words of bit sets, and query ids as metadata."""
    width = max(1, -(-len(queries) // 64))
    sets = b"".join(int(text, 16).to_bytes(8 * width, "little") for text in routes.values())
    words = np.frombuffer(sets, dtype="<u8").reshape(len(routes), width)
    columns = {"number": pa.array(map(int, routes), pa.int64())}
    columns |= {f"w{n}": pa.array(np.ascontiguousarray(words[:, n])) for n in range(width)}
    batch = pa.RecordBatch.from_pydict(columns)
    batch = batch.replace_schema_metadata({"queries": np.array(queries, dtype=np.int64).tobytes()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
