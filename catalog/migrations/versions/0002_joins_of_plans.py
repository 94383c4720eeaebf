"""Stored plans: a family has joins instead of one chain per side."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_plans = sa.table("plans", sa.column("version", sa.BigInteger), sa.column("document", sa.Text))


def upgrade() -> None:
    """Put the two chains of every family, which formed one join implicitly, into one explicit join."""
    connection = op.get_bind()
    for version, document in connection.execute(sa.select(_plans.c.version, _plans.c.document)).all():
        plan = json.loads(document)
        for family in plan["families"]:
            if "joins" in family:
                continue
            family["strategy"] = plan["strategy"]
            family["joins"] = [
                {
                    "id": "shared",
                    "queries": [query["id"] for query in family["queries"]],
                    "chain_a": family.pop("chain_a"),
                    "chain_b": family.pop("chain_b"),
                    "partition": None,
                    "pulled_up": False,
                }
            ]
        text = json.dumps(plan, separators=(",", ":"), ensure_ascii=False)
        connection.execute(sa.update(_plans).where(_plans.c.version == version).values(document=text))
