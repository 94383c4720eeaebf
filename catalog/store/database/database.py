"""The catalog's database: connections, short reads and one locked write transaction at a time.

                          SQLite                         PostgreSQL
    one writer            BEGIN IMMEDIATE                an advisory lock, the transaction's first statement
    a read's snapshot     WAL mode                       REPEATABLE READ
    commit is on disk     synchronous=FULL               synchronous_commit, unless the server has fsync off
    connection lost       -                              the next use detects this and connects again
    writer hangs          other writers wait             its transaction is rolled back after 10 s

Readers never wait for the writer. No other writer can change the rows that a write transaction has read.
Numbers of the control log follow commit order, because PostgreSQL makes a commit visible before it releases
the lock. Write transactions on PostgreSQL are READ COMMITTED: with a higher isolation level, PostgreSQL would
take their snapshot before they hold the lock. Invariant: a thread has at most one write transaction; while it
is open, all calls of the thread belong to it.
"""

from __future__ import annotations

import copy
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Table,
    create_engine,
    delete,
    event,
    exc,
    func,
    insert,
    make_url,
    select,
)
from sqlalchemy.engine import URL

from catalog.errors import (
    CatalogBusy,
    CatalogDamaged,
    CatalogDown,
    InvalidCatalogUrl,
    InvariantBroken,
    SluiceError,
)

#: How long a writer waits for another writer, seconds; transactions of the catalog take milliseconds.
BUSY_TIMEOUT_S = 30.0

# Advisory lock of all writers of one PostgreSQL schema: "sluice" in ASCII.
_POSTGRESQL_LOCK = 0x736C75696365
#: Advisory lock of the writers of the event log (``inputs.sources.posted``); it differs from the catalog's
#: lock, so that these writers do not wait for writers of the catalog.
EVENTS_LOCK = _POSTGRESQL_LOCK + 1

_WRITES = "sluice_writes"
# SQLite's error codes for a damaged file.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_PSYCOPG = "postgresql+psycopg"

# Options of libpq, so that a server that was lost silently is detected within 10 s. Options in the URL take
# precedence.
_LIBPQ = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
#: Seconds after which the server ends an idle transaction, because its client may hang or be lost while it
#: holds the lock of all writers. This is much longer than any pause between two statements here, and short
#: enough for another engine to take over in time (``service.engine.ownership.catalog_lease``). Keepalives
#: detect a lost machine sooner.
IDLE_TIMEOUT_S = 10.0
_SERVER_KEEPALIVES = (
    "SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3"
)
_NO_NUL = str.maketrans({"\0": "\ufffd"})

#: Number of rows that are copied at a time; it is low, because a row of the event log has many events.
_COPIED_AT_ONCE = 100

_OUTCOME_UNKNOWN = (
    "The change may have taken effect: check before you repeat it, or send it with an Idempotency-Key."
)


def _configure_sqlite(engine: Engine) -> None:
    """Make transactions begin explicitly, because the driver begins them too late and not as IMMEDIATE."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: object) -> None:  # Any: a DBAPI connection
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _configure_postgresql(engine: Engine, busy_timeout_s: float) -> None:
    """Limit how long a writer waits, sync commits to disk, and replace NUL, which PostgreSQL rejects."""
    from psycopg.types.string import StrDumper  # the driver is an optional dependency

    class WithoutNul(StrDumper):
        """Replaces NUL characters, which text from outside may contain, such as damaged files or paths."""

        def dump(self, obj: str) -> Any:  # Any: psycopg's buffers
            return super().dump(obj.translate(_NO_NUL) if "\0" in obj else obj)

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: object) -> None:  # Any: a DBAPI connection
        connection.adapters.register_dumper(str, WithoutNul)
        connection.execute(
            f"SET lock_timeout = {max(round(busy_timeout_s * 1000), 1)};"
            f"SET idle_in_transaction_session_timeout = {round(IDLE_TIMEOUT_S * 1000)};"
            f"{_SERVER_KEEPALIVES};"
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()


def _checked_url(url: str) -> URL:
    """Parse the URL of a catalog; refuse databases that several connections cannot share."""
    hint = 'Write "sqlite:///<file>" or "postgresql+psycopg://<host>/<database>".'
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        # Hide the cause: it may quote the URL, and with it a password.
        raise InvalidCatalogUrl("catalog URL cannot be read", hint=hint) from None
    backend = parsed.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise InvalidCatalogUrl(f'catalog on "{backend}" is not supported', hint=hint)
    if backend == "postgresql" and parsed.drivername == backend:
        parsed = parsed.set(drivername=_PSYCOPG)
    if backend == "postgresql" and parsed.drivername != _PSYCOPG:
        raise InvalidCatalogUrl(f'catalog driver "{parsed.drivername}" is not supported', hint=hint)
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidCatalogUrl("catalog in memory is not supported", hint=hint)
    return parsed


class Database:
    """Connections of one process to a catalog.

    Args:
        url: SQLAlchemy URL, SQLite in a file or PostgreSQL.
        busy_timeout_s: How long a writer waits for another writer, seconds.
        lock: Key of the advisory lock that writers take on PostgreSQL.

    Raises:
        InvalidCatalogUrl: The URL does not name a database that can hold a catalog.
    """

    def __init__(
        self, url: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S, lock: int = _POSTGRESQL_LOCK
    ) -> None:
        self._url = _checked_url(url)
        self._lock = lock
        self._busy_timeout_s = busy_timeout_s
        # Errors show this URL without the part after "?", which may also contain a password for libpq.
        self._shown = self._url.set(query={}).render_as_string(hide_password=True)
        self._pid = os.getpid()
        self._writer = threading.Lock()
        self._guard: Callable[[Connection], None] | None = None
        self._passed_guard = False
        self._of_thread = threading.local()
        sqlite = self._url.get_backend_name() == "sqlite"
        libpq = {key: value for key, value in _LIBPQ.items() if key not in self._url.query}
        try:
            self._engine = create_engine(
                self._url,
                connect_args={"timeout": busy_timeout_s} if sqlite else libpq,
                max_overflow=-1,  # as many connections as threads read at once
                pool_pre_ping=not sqlite,  # a restarted server has closed earlier connections
            )
        except (exc.ArgumentError, ImportError) as error:
            raise InvalidCatalogUrl(
                f'catalog driver "{self._url.drivername}" cannot be loaded',
                detail=f"{error}.",
                hint='Install the extra "postgres": pip install "sluice[postgres]", or "psycopg[binary]".',
            ) from error
        if sqlite:
            _configure_sqlite(self._engine)
            self._reads = self._engine
        else:
            _configure_postgresql(self._engine, busy_timeout_s)
            self._reads = self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    @property
    def file(self) -> Path | None:
        """File of the SQLite database; None on PostgreSQL."""
        if self._url.get_backend_name() != "sqlite":
            return None
        return Path(str(self._url.database))

    @property
    def keeps_others_out(self) -> bool:
        """Return whether an open transaction has passed the guard and keeps other processes from writing.

        Always False on PostgreSQL, because PostgreSQL ends the transaction of a hanging client. SQLite does
        not.
        """
        return self.file is not None and self._passed_guard

    @property
    def in_transaction(self) -> bool:
        """Return whether this thread is inside a write transaction."""
        return getattr(self._of_thread, "connection", None) is not None

    def use_wal(self) -> None:
        """Switch SQLite's file to WAL mode permanently; do nothing on PostgreSQL.

        Raises:
            CatalogDown: The file cannot be opened, or its file system has no shared memory for WAL.
        """
        if self.file is None:
            return
        deadline = time.monotonic() + self._busy_timeout_s
        with self._errors(), self._engine.connect() as connection:
            # Bypass SQLAlchemy: it would begin a transaction, inside which the journal mode cannot change.
            driver = connection.connection.driver_connection
            assert driver is not None, "a checked-out connection has a driver's connection"
            while True:
                try:
                    (mode,) = driver.execute("PRAGMA journal_mode = WAL").fetchone()
                    break
                except sqlite3.OperationalError as error:
                    # If two processes switch the mode at once, SQLite fails one of them without waiting.
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
        if mode != "wal":
            raise CatalogDown(
                "catalog needs a file system with shared memory",
                detail=f'SQLite keeps {self.file} in journal mode "{mode}".',
                hint="Keep the data directory on a local disk, or use PostgreSQL.",
            )

    def twin(self) -> Database:
        """Return a database with its own guard that shares this one's connections and transactions."""
        twin = copy.copy(self)
        twin.guard(None)
        return twin

    def guard(self, check: Callable[[Connection], None] | None) -> None:
        """Make every later write transaction begin with a check; if the check raises, nothing is written.

        Args:
            check: Called with the transaction's connection; None removes the check.
        """
        self._guard = check

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Connect for reading from one snapshot, or in the thread's write transaction if it has one.

        Yields:
            The connection.

        Raises:
            CatalogDown: The database cannot be reached.
        """
        current: Connection | None = getattr(self._of_thread, "connection", None)
        if current is not None:
            with self._errors():
                yield current
            return
        self._check_process()
        with self._errors(), self._reads.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open the thread's write transaction, or a savepoint in an open one; an exception rolls it back.

        Yields:
            The connection.

        Raises:
            CatalogDown: The database cannot be reached, or another writer did not finish in time.
        """
        current: Connection | None = getattr(self._of_thread, "connection", None)
        if current is not None:
            actions = list(self._of_thread.after_commit)
            try:
                with self._errors(), current.begin_nested():
                    yield current
            except BaseException:
                self._of_thread.after_commit = actions
                raise
            return
        self._check_process()
        # Writers that wait for SQLite poll it. With a lock, the next thread of this process begins
        # immediately.
        if not self._writer.acquire(timeout=self._busy_timeout_s):
            raise CatalogBusy(
                "catalog is busy",
                detail=f"Another thread wrote for {self._busy_timeout_s:g} s.",
                hint="Try again. The disk may be slow or overloaded.",
            )
        committing = False
        try:
            with (
                self._errors(),
                self._engine.connect().execution_options(**{_WRITES: True}) as connection,
                connection.begin(),
            ):
                if self.file is None:
                    # An advisory lock applies to the whole database, so each schema gets a lock of its own.
                    lock = func.hashtextextended(func.current_schema(), self._lock)
                    connection.execute(select(func.pg_advisory_xact_lock(lock)))
                if self._guard is not None:
                    self._guard(connection)
                    self._passed_guard = True
                self._of_thread.connection = connection
                self._of_thread.after_commit = []
                try:
                    yield connection
                finally:
                    self._of_thread.connection = None
                committing = True
            for action in self._of_thread.after_commit:
                action()
        except CatalogDown as error:
            if committing and self.file is None:  # the server may have committed without replying
                raise CatalogDown(error.primary, detail=error.detail, hint=_OUTCOME_UNKNOWN) from error
            raise
        finally:
            self._passed_guard = False
            self._writer.release()

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call ``action`` after the thread's write transaction is committed, or now if there is none."""
        if self.in_transaction:
            self._of_thread.after_commit.append(action)
        else:
            action()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose(close=self._pid == os.getpid())

    def _check_process(self) -> None:
        """Refuse connections from before a fork, because two processes would share file locks and sockets."""
        if self._pid != os.getpid():
            raise InvariantBroken(
                "catalog was opened in another process", hint="Open the catalog in the process that uses it."
            )

    def check_integrity(self) -> None:
        """Read all pages of SQLite's file; do nothing on PostgreSQL.

        Raises:
            CatalogDamaged: The pages are inconsistent.
            CatalogDown: The file cannot be read.
        """
        if self.file is None:
            return
        with self.read() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        if found != "ok":
            raise self._damaged(" ".join(str(found).split()))

    def _damaged(self, said: str) -> CatalogDamaged:
        return CatalogDamaged(
            "catalog is damaged",
            detail=f"{self.file}: {said}.",
            hint="Move the data directory away and restore a backup with sluice restore. Without one, start "
            "again in an empty directory; the results of the old one are Parquet files.",
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn database errors into catalog errors."""
        try:
            yield
        except SluiceError:
            raise
        except exc.IntegrityError as error:
            raise InvariantBroken("catalog refused a write", detail=f"{error.orig}.") from error
        except (exc.DBAPIError, exc.TimeoutError, sqlite3.Error) as error:
            cause = error.orig if isinstance(error, exc.DBAPIError) else error
            # An error of libpq has several lines. Indented lines are left out, because they are questions
            # about possible causes.
            lines = [line.strip() for line in str(cause).splitlines() if not line.startswith("\t")]
            said = "; ".join(filter(None, lines)).rstrip(".")
            if getattr(cause, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                raise self._damaged(said) from error
            raise CatalogDown("catalog cannot be used", detail=f"{self._shown}: {said}.") from error


def copy_tables(source: Database, target: Database, tables: Sequence[tuple[Table, Table]]) -> int:
    """Replace the rows of some tables with rows of another database, in one transaction.

    Args:
        source: Database to read, in one snapshot.
        target: Database to write, which may be of the other kind (SQLite, PostgreSQL).
        tables: Pairs of source table and target table, in the order of their foreign keys.

    Returns:
        The number of copied rows.

    Raises:
        CatalogDown: One of the databases cannot be used.
        InvariantBroken: The number of rows in the target differs from the number that was read.
    """
    total = 0
    with target.write() as written, source.read() as read:
        for _, table in reversed(tables):
            written.execute(delete(table))
        for original, table in tables:
            rows = read.execution_options(yield_per=_COPIED_AT_ONCE).execute(select(original)).mappings()
            copied = 0
            for part in rows.partitions():
                written.execute(insert(table), [dict(row) for row in part])
                copied += len(part)
            found = written.execute(select(func.count()).select_from(table)).scalar_one()
            if found != copied:
                raise InvariantBroken(f'table "{table.name}" has {found} rows after {copied} were copied')
            if target.file is None:
                _count_on(written, table)
            total += copied
    return total


def _count_on(connection: Connection, table: Table) -> None:
    """Make PostgreSQL's sequence for a table's ids continue after the copied ids."""
    column = table.autoincrement_column
    if column is not None:
        sequence = func.pg_get_serial_sequence(table.name, column.name)
        last = select(func.max(column)).scalar_subquery()
        connection.execute(select(func.setval(sequence, last)).where(last.is_not(None)))
