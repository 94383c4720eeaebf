"""Routes are kept by generation, not by route and query: a change of queries makes hundreds of routes."""

from __future__ import annotations

import json
from itertools import groupby

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Keep the existing routes as one generation that began before the first batch."""
    kept = op.create_table(
        "batch_routes",
        sa.Column("batch", _BIG, primary_key=True, autoincrement=False),
        sa.Column("since", _BIG, nullable=False),
        sa.Column("plan_version", _BIG, nullable=False),
        sa.Column("queries", sa.Text(), nullable=False),
        sa.Column("routes", sa.Text(), nullable=False),
    )
    op.create_index(op.f("ix_batch_routes_since"), "batch_routes", ["since"])
    rows = op.get_bind().execute(
        sa.text("SELECT route, plan_version, queries FROM routes ORDER BY plan_version, route")
    )
    old = [(row.plan_version, row.route, json.loads(row.queries)) for row in rows]
    for version, routes in groupby(old, key=lambda row: row[0]):
        members = {route: ids for _, route, ids in routes}
        queries = sorted({i for ids in members.values() for i in ids})
        sets = {str(route): f"{sum(1 << queries.index(i) for i in ids):x}" for route, ids in members.items()}
        # Batch numbers begin at 0, so negative numbers are free.
        op.get_bind().execute(
            sa.insert(kept).values(
                batch=-version,
                since=-1,
                plan_version=version,
                queries=json.dumps(queries),
                routes=json.dumps(sets),
            )
        )
    op.drop_table("route_queries")
    op.drop_table("routes")
