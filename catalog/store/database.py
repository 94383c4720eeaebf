"""The catalog's database: connections, short reads and one locked write transaction at a time.

SQLite runs in WAL mode with ``synchronous=FULL``: readers of other processes never wait for the writer, and a
commit is on disk before it returns. A write transaction starts with ``BEGIN IMMEDIATE`` (PostgreSQL: an
advisory lock), so what it reads is still true when it writes, and log numbers follow commit order.
Invariant: a thread has at most one write transaction; whatever it calls inside belongs to it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, exc, func, make_url, select
from sqlalchemy.engine import URL

from catalog.errors import CatalogDown, InvalidCatalogUrl, InvariantBroken, SluiceError

#: How long a writer waits for another one; far above any transaction here (measured: milliseconds).
BUSY_TIMEOUT_S = 30.0

# Advisory lock of all writers of one PostgreSQL database: "sluice" in ASCII.
_POSTGRESQL_LOCK = 0x736C75696365

_WRITES = "sluice_writes"


def _configure_sqlite(engine: Engine) -> None:
    """Take transaction control from the driver, which would begin too late and not IMMEDIATE."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: object) -> None:  # Any: a DBAPI connection
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _checked_url(url: str) -> URL:
    """Parse the URL; refuse databases that several connections cannot share."""
    hint = 'Write "sqlite:///<file>" or "postgresql+psycopg://<host>/<database>".'
    try:
        parsed = make_url(url)
    except exc.ArgumentError as error:
        raise InvalidCatalogUrl("catalog URL cannot be read", hint=hint) from error
    backend = parsed.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise InvalidCatalogUrl(f'catalog on "{backend}" is not supported', hint=hint)
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidCatalogUrl("catalog in memory is not supported", hint=hint)
    return parsed


class Database:
    """Connections of one process to a catalog.

    Args:
        url: SQLAlchemy URL, SQLite in a file or PostgreSQL.
        busy_timeout_s: How long a writer waits for another one.

    Raises:
        InvalidCatalogUrl: The URL names no database that can hold a catalog.
    """

    def __init__(self, url: str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._url = _checked_url(url)
        self._busy_timeout_s = busy_timeout_s
        self._pid = os.getpid()
        self._writer = threading.Lock()
        self._guard: Callable[[Connection], None] | None = None
        self._of_thread = threading.local()
        sqlite = self._url.get_backend_name() == "sqlite"
        try:
            self._engine = create_engine(
                self._url,
                connect_args={"timeout": busy_timeout_s} if sqlite else {},
                max_overflow=-1,  # as many connections as threads read at once
            )
        except (exc.ArgumentError, ImportError) as error:
            raise InvalidCatalogUrl(
                f'catalog driver "{self._url.drivername}" cannot be loaded',
                detail=f"{error}.",
                hint="For PostgreSQL, install psycopg.",
            ) from error
        if sqlite:
            _configure_sqlite(self._engine)

    @property
    def file(self) -> Path | None:
        """SQLite's file, None on PostgreSQL."""
        if self._url.get_backend_name() != "sqlite":
            return None
        return Path(str(self._url.database))

    @property
    def in_transaction(self) -> bool:
        """Tell whether this thread is inside a write transaction."""
        return getattr(self._of_thread, "connection", None) is not None

    def use_wal(self) -> None:
        """Put SQLite's file into WAL mode, which the file keeps; nothing on PostgreSQL.

        Raises:
            CatalogDown: The file cannot be opened, or its file system has no shared memory for WAL.
        """
        if self.file is None:
            return
        deadline = time.monotonic() + self._busy_timeout_s
        with self._errors(), self._engine.connect() as connection:
            # Past SQLAlchemy, which would begin a transaction: inside one the mode cannot change.
            driver = connection.connection.driver_connection
            assert driver is not None, "a checked-out connection has a driver's connection"
            while True:
                try:
                    (mode,) = driver.execute("PRAGMA journal_mode = WAL").fetchone()
                    break
                except sqlite3.OperationalError as error:
                    # Of two processes that switch at once, SQLite fails one without waiting.
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
        if mode != "wal":
            raise CatalogDown(
                "catalog needs a file system with shared memory",
                detail=f'SQLite keeps {self.file} in journal mode "{mode}".',
                hint="Keep the data directory on a local disk, or use PostgreSQL.",
            )

    def guard(self, check: Callable[[Connection], None] | None) -> None:
        """Have every write transaction of this process begin with a check; what it raises undoes the write.

        Args:
            check: Given the transaction's connection; None writes without one.
        """
        self._guard = check

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Connect for reading: one snapshot, or the thread's write transaction if it is in one.

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
        with self._errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open the thread's write transaction, or a part of it; an exception undoes transaction or part.

        Yields:
            The connection.

        Raises:
            CatalogDown: The database cannot be reached, or another writer held it too long.
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
        # SQLite's waiters poll; among threads of one process a lock hands over at once.
        if not self._writer.acquire(timeout=self._busy_timeout_s):
            raise CatalogDown(
                "catalog is busy", detail=f"Another thread wrote for {self._busy_timeout_s:g} s."
            )
        try:
            with (
                self._errors(),
                self._engine.connect().execution_options(**{_WRITES: True}) as connection,
                connection.begin(),
            ):
                if self.file is None:
                    connection.execute(select(func.pg_advisory_xact_lock(_POSTGRESQL_LOCK)))
                if self._guard is not None:
                    self._guard(connection)
                self._of_thread.connection = connection
                self._of_thread.after_commit = []
                try:
                    yield connection
                finally:
                    self._of_thread.connection = None
            for action in self._of_thread.after_commit:
                action()
        finally:
            self._writer.release()

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call ``action`` once the thread's write transaction is committed; now, if there is none."""
        if self.in_transaction:
            self._of_thread.after_commit.append(action)
        else:
            action()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose(close=self._pid == os.getpid())

    def _check_process(self) -> None:
        """Refuse connections that came through a fork: two processes would share file locks and sockets."""
        if self._pid != os.getpid():
            raise InvariantBroken(
                "catalog was opened in another process", hint="Open the catalog in the process that uses it."
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the database's errors into the catalog's."""
        try:
            yield
        except SluiceError:
            raise
        except exc.IntegrityError as error:
            raise InvariantBroken("catalog refused a write", detail=f"{error.orig}.") from error
        except (exc.DBAPIError, exc.TimeoutError, sqlite3.Error) as error:
            cause = error.orig if isinstance(error, exc.DBAPIError) else error
            raise CatalogDown(
                "catalog cannot be used", detail=f"{self._url.render_as_string(hide_password=True)}: {cause}."
            ) from error
