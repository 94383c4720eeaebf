"""The catalog: one object per process that stores and finds all persistent records of Sluice.

    store.streams   store.queries   store.control_log   store.batches   ...   a repository per kind of record
          |               |                |                  |
          +---------------+---- database --+------------------+    write transactions of a thread nest

The module of each repository has the repository's name. A method call is one transaction. Calls inside
``transaction()`` are one transaction together, so that all of them take effect or none does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Self

from sqlalchemy import inspect, text

from catalog.errors import CatalogDown, CatalogVersionMismatch
from catalog.store.clients.api_keys import ApiKeyRepository
from catalog.store.clients.audit_log import AuditLogRepository
from catalog.store.clients.idempotency import IdempotencyRepository
from catalog.store.database.database import BUSY_TIMEOUT_S, Database, copy_tables
from catalog.store.database.tables import OLDEST_REVISION, SCHEMA_REVISION, metadata
from catalog.store.lease import LeaseRepository
from catalog.store.pruning import Pruning
from catalog.store.repositories.batches import BatchRepository
from catalog.store.repositories.control_log import ControlLogRepository
from catalog.store.repositories.counts import CountRepository
from catalog.store.repositories.migrations import MigrationRepository
from catalog.store.repositories.plan_history import PlanHistoryRepository
from catalog.store.repositories.queries import QueryRepository
from catalog.store.repositories.routes import RouteRepository
from catalog.store.repositories.settings import SettingRepository
from catalog.store.repositories.sinks import SinkRepository
from catalog.store.repositories.source_files import SourceFileRepository
from catalog.store.repositories.streams import StreamRepository
from catalog.store.results.compaction import Compaction
from catalog.store.results.result_files import ResultFileRepository
from catalog.store.results.retention import Retention
from catalog.times.clock import wall_clock_us

_UPGRADE = "Run sluice catalog upgrade, or start a service of this version: it upgrades the catalog, too."
_USE_NEWER = "Use the version of Sluice that migrated it, or a newer one. To go back, restore a backup."
_MIGRATE_FIRST = f'First start a version of Sluice that needs schema "{OLDEST_REVISION}" to "0024".'


class Store:
    """The catalog of one data directory. Threads may share the object; each process opens its own object.

    Args:
        database: Database of the catalog, with up-to-date tables.
        now_us: Function that returns the wall clock, µs UTC.

    Attributes:
        streams: Registered streams.
        queries: Queries, by name, id and series.
        control_log: Plan versions and heartbeats, in the order in which the job reads them.
        plan_history: Records of who made each plan version, and why.
        migrations: Migrations that were requested.
        source_files: Files of streams, each with its verdict.
        lease: The lease of the catalog, and its fencing epoch.
        batches: Manifests of committed batches, and totals.
        counts: Numbers of results per query and batch.
        result_files: Files of results and late rows.
        routes: Routes: the sets of queries that stored pairs belong to.
        sinks: Sinks of queries, and the progress of each sink.
        idempotency: Answers to requests that clients may repeat.
        settings: Small values that survive a restart.
        api_keys: Keys of clients.
        audit_log: Records of who requested each change.
        compaction: Records merged files in place of the files of old batches.
        retention: Drops old results.
        pruning: Drops records that no other record refers to.
    """

    def __init__(self, database: Database, now_us: Callable[[], int]) -> None:
        self._database = database
        self._now_us = now_us
        self.streams = StreamRepository(database, now_us)
        self.queries = QueryRepository(database, now_us)
        self.control_log = ControlLogRepository(database, now_us)
        self.plan_history = PlanHistoryRepository(database, now_us)
        self.migrations = MigrationRepository(database, now_us)
        self.source_files = SourceFileRepository(database, now_us)
        self.lease = LeaseRepository(database, now_us)
        self.batches = BatchRepository(database, now_us)
        self.counts = CountRepository(database, now_us)
        self.result_files = ResultFileRepository(database, now_us)
        self.routes = RouteRepository(database, now_us)
        self.sinks = SinkRepository(database, now_us, self.counts)
        self.idempotency = IdempotencyRepository(database, now_us)
        self.settings = SettingRepository(database, now_us)
        self.api_keys = ApiKeyRepository(database, now_us)
        self.audit_log = AuditLogRepository(database, now_us)
        self.compaction = Compaction(database, now_us)
        self.retention = Retention(database, now_us)
        self.pruning = Pruning(database, now_us, self.control_log)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        migrate: bool = True,
        now_us: Callable[[], int] = wall_clock_us,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> Self:
        """Open a catalog.

        Args:
            url: SQLAlchemy URL: ``sqlite:///<file>`` or PostgreSQL.
            migrate: Create the tables or bring them up to date; if False, they must be up to date already.
            now_us: Function that returns the wall clock, µs UTC.
            busy_timeout_s: How long a writer waits for another writer, seconds.

        Returns:
            The catalog; close it when done.

        Raises:
            InvalidCatalogUrl: The URL does not name a database that can hold a catalog.
            CatalogDown: The database cannot be opened.
            CatalogVersionMismatch: The catalog's tables belong to another version of Sluice.
        """
        database = Database(url, busy_timeout_s=busy_timeout_s)
        try:
            cls._prepare(database, migrate)
        except BaseException:
            database.close()
            raise
        return cls(database, now_us)

    def check_integrity(self) -> None:
        """Read all pages of an SQLite catalog; raises the errors of ``Database.check_integrity``."""
        self._database.check_integrity()

    @classmethod
    def upgrade(cls, url: str) -> str | None:
        """Bring the tables of a catalog up to date, as the first ``open`` of a new version of Sluice does.

        Args:
            url: SQLAlchemy URL, as for ``open``; an SQLite file must exist.

        Returns:
            The schema that the tables had before, or None if there were no tables.

        Raises:
            CatalogDown: The file does not exist, or the database cannot be used.
            CatalogVersionMismatch: The tables belong to a later version of Sluice.
        """
        with closing(Database(url)) as database:
            _require_file(database)
            before = _revision(database)
            cls._prepare(database, migrate=True)
        return before

    @classmethod
    def check(cls, url: str) -> str:
        """Check that the tables of a catalog match this version of Sluice, and return their schema.

        Raises:
            CatalogDown: The database cannot be used.
            CatalogVersionMismatch: The tables belong to another version of Sluice, or were changed by hand.
        """
        with closing(Database(url)) as database:
            cls._prepare(database, migrate=False)
            from catalog.migrations import differences

            with database.read() as connection:
                found = differences(connection)
        if found:
            raise CatalogVersionMismatch(
                f'tables of the catalog are not those of schema "{SCHEMA_REVISION}"',
                detail=f"Changes that would make them match: {', '.join(found)}.",
                hint="The tables were changed by hand. Undo these changes, or restore a backup.",
            )
        return SCHEMA_REVISION

    @staticmethod
    def _prepare(database: Database, migrate: bool) -> None:
        """Check the schema, and migrate it if requested."""
        if migrate:
            database.use_wal()
        else:
            _require_file(database)
        found = _revision(database)
        if found == SCHEMA_REVISION:
            return
        hint = None if migrate else _UPGRADE
        if found is not None and found > SCHEMA_REVISION:
            hint = _USE_NEWER
        elif found is not None and found < OLDEST_REVISION:
            hint = _MIGRATE_FIRST
        if hint is not None:
            raise CatalogVersionMismatch(
                f'catalog has schema "{found or "none"}", this version of Sluice needs "{SCHEMA_REVISION}"',
                hint=hint,
            )
        with database.write() as connection:
            # Importing Alembic takes a tenth of a second, and most openings do not need it.
            from catalog.migrations import upgrade

            upgrade(connection)

    def twin(self) -> Store:
        """Return a second object of this catalog, for the engine: only the engine's writes check the lease.

        Both objects share connections, so writers of both wait for each other like threads of one object.
        Close only the first object.
        """
        return Store(self._database.twin(), self._now_us)

    @property
    def keeps_others_out(self) -> bool:
        """Return whether an open transaction of the lease holder keeps other processes from writing."""
        return self._database.keeps_others_out

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a write transaction of this thread; an exception inside rolls it back.

        Inside another transaction, it opens a savepoint: if the caller catches the exception, only the
        changes since the savepoint are undone. The transaction must be short, because other writers wait.

        Raises:
            CatalogDown: The database cannot be used, or another writer did not finish in time.
        """
        with self._database.write():
            yield

    def copy_to(self, target: Store, then: Callable[[], None]) -> int:
        """Replace all records of another catalog by the records of this one; return the number of records.

        Args:
            target: The other catalog, which may be in the other kind of database.
            then: Function that is called after all records are copied, in the transaction of the target.

        Raises:
            CatalogDown: One of the databases cannot be used.
        """
        both = [(table, table) for table in metadata.sorted_tables]
        with target.transaction():
            records = copy_tables(self._database, target._database, both)
            then()
        return records

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _require_file(database: Database) -> None:
    """Refuse a file that does not exist, because opening it would create it."""
    if database.file is not None and not database.file.exists():
        raise CatalogDown("catalog does not exist", detail=f"There is no file {database.file}.")


def _revision(database: Database) -> str | None:
    """Return the Alembic revision of the tables, or None if there are no tables."""
    with database.read() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if found is None else str(found)
