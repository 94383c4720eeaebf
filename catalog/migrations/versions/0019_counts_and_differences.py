"""Store the result counts of a batch as one value; allow plans to be stored as differences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0015"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
#: Number of batches whose counts are combined into one row.
_FOLDED = 64


def upgrade() -> None:
    """Combine counts of up to 64 batches in one row; totals already include them, and plans stay whole."""
    with op.batch_alter_table("plans") as plans:
        plans.add_column(sa.Column("base", _BIG))
    counts = op.create_table(
        "query_counts",
        sa.Column("first", _BIG, primary_key=True, autoincrement=False),
        sa.Column("last", _BIG, nullable=False),
        sa.Column("counts", sa.LargeBinary(), nullable=False),
        sa.Column("added", sa.Boolean(), nullable=False),
    )
    op.create_index(op.f("ix_query_counts_last"), "query_counts", ["last"])
    former = sa.table("batch_queries", sa.column("query_id"), sa.column("batch"), sa.column("rows"))
    connection = op.get_bind()
    # One pass in batch order, which needs sorting because the old table is ordered by query.
    rows = connection.execute(
        sa.select(former.c.batch, former.c.query_id, former.c.rows).order_by(former.c.batch)
    )
    for _, some in groupby(rows, key=lambda row: row.batch // _FOLDED):
        found = [tuple(row) for row in some]
        first, last = found[0][0], found[-1][0]
        connection.execute(
            sa.insert(counts).values(first=first, last=last, counts=_encoded(found), added=True)
        )
    op.drop_table("batch_queries")


def _encoded(rows: Sequence[tuple[int, ...]]) -> bytes:
    """Encode rows (batch, query id, number of results) as an Arrow IPC stream, sorted by query and batch."""
    batches, queries, results = np.array(rows, dtype=np.int64).T
    order = np.lexsort((batches, queries))
    columns = [pa.array(np.ascontiguousarray(column[order])) for column in (queries, batches, results)]
    batch = pa.RecordBatch.from_arrays(columns, names=["query", "batch", "rows"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
