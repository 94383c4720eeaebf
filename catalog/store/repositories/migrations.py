"""Migrations in the catalog: a record for each recently requested migration, even a failed one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, select, update

from catalog.documents.codec import decode, encode
from catalog.errors import MigrationNotFound
from catalog.store.database import tables
from catalog.store.database.repository import Repository, next_id
from catalog.values.migration import Migration, MigrationRecord

#: Number of records that are kept; each takes a few kB.
KEPT = 10_000

_m = tables.migrations.c
_ALL = select(_m.id, _m.plan_version, _m.actor, _m.created_at_us, _m.document).order_by(_m.id)
_PAGE = _ALL.where(_m.id > bindparam("after")).limit(bindparam("limit"))
_LAST = _ALL.order_by(None).order_by(_m.id.desc()).limit(bindparam("limit"))
_BY_ID = _ALL.where(_m.id == bindparam("wanted"))


class MigrationRepository(Repository):
    """Migrations; a record never changes, except that the measured cost is added to it."""

    def add(self, migration: Migration, plan_version: int | None, actor: str) -> MigrationRecord:
        """Record a migration, in the transaction of its plan version if it has one; drop the oldest records.

        Args:
            migration: The request with the plan made for it.
            plan_version: Plan version that the migration made; None if it failed.
            actor: Who requested it.
        """
        with self._database.write() as connection:
            record = MigrationRecord(
                next_id(connection, "migration"), plan_version, actor, self._now_us(), migration
            )
            connection.execute(
                insert(tables.migrations).values(
                    id=record.id,
                    plan_version=plan_version,
                    actor=actor,
                    created_at_us=record.created_at_us,
                    document=encode(migration).decode(),
                )
            )
            connection.execute(delete(tables.migrations).where(_m.id <= record.id - KEPT))
        return record

    def settle(self, migration_id: int, migration: Migration) -> None:
        """Add the measured outcome to the record of a migration."""
        with self._database.write() as connection:
            connection.execute(
                update(tables.migrations)
                .where(_m.id == migration_id)
                .values(document=encode(migration).decode())
            )

    def get(self, migration_id: int) -> MigrationRecord:
        """Return a migration.

        Raises:
            MigrationNotFound: No migration has that id.
        """
        with self._database.read() as connection:
            row = connection.execute(_BY_ID, {"wanted": migration_id}).first()
        if row is None:
            raise MigrationNotFound(f"migration {migration_id} does not exist")
        return _record(row)

    def unsettled(self, limit: int) -> tuple[MigrationRecord, ...]:
        """Return the successful migrations among the last ``limit`` ones that have no measured cost yet."""
        with self._database.read() as connection:
            found = [_record(row) for row in connection.execute(_LAST, {"limit": limit})]
        return tuple(r for r in found if r.plan_version is not None and r.migration.outcome is None)

    def page(self, after: int = 0, limit: int = 1000) -> tuple[MigrationRecord, ...]:
        """Return the migrations whose id is greater than ``after``, by id."""
        with self._database.read() as connection:
            rows = connection.execute(_PAGE, {"after": after, "limit": limit})
            return tuple(_record(row) for row in rows)


def _record(row: Row[*tuple[Any, ...]]) -> MigrationRecord:
    """Return the record of a row of ``_ALL``."""
    return MigrationRecord(
        row.id, row.plan_version, row.actor, row.created_at_us, decode(Migration, row.document)
    )
