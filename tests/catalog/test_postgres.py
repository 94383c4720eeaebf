"""A catalog on PostgreSQL: what can go wrong with a server, and what differs from a file."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from sqlalchemy import create_engine

from catalog.errors import CatalogDown, InvalidCatalogUrl, StreamNotFound
from catalog.migrations import configuration
from catalog.store.database import database
from catalog.store.store import Store
from catalog.values.control import Heartbeat
from service.engine.ownership.catalog_lease import CatalogLease
from service.inputs.sources.posted.http_log import EventLog
from tests.catalog.examples import add_query, commit, listed, manifest, stream
from tests.dropping_proxy import DroppingProxy, Loss
from tests.epochs import begin_epoch
from tests.postgres import PostgresServer, server
from tests.service.inputs.sources.posted.test_http_log import STREAM, numbered
from tests.waiting import LIMIT_S, until


@pytest.fixture
def url(postgres_url: str) -> str:
    """URL of a catalog on PostgreSQL."""
    return postgres_url


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that tests may stop."""
    yield from server()


@contextmanager
def losing(postgres: PostgresServer, database: str) -> Iterator[tuple[DroppingProxy, Store]]:
    """Open a catalog through a proxy."""
    with (
        DroppingProxy(postgres.port) as proxy,
        Store.open(postgres.url(database, proxy.port), busy_timeout_s=10) as store,
    ):
        yield proxy, store


@pytest.mark.parametrize("fault", ["no-server", "no-database", "password"])
def test_a_server_that_cannot_be_used_is_named_without_the_password(
    postgres: PostgresServer, fault: str
) -> None:
    secret = "wrong-secret" if fault == "password" else postgres.password
    port = 1 if fault == "no-server" else postgres.port
    for url in (
        f"postgresql+psycopg://sluice:{secret}@127.0.0.1:{port}/nowhere",
        f"postgresql:///nowhere?host=127.0.0.1&port={port}&user=sluice&password={secret}",
    ):
        with pytest.raises(CatalogDown, match="catalog cannot be used") as caught:
            Store.open(url)
        told = "".join(traceback.format_exception(caught.value))
        said = {"no-server": "refused", "no-database": "does not exist", "password": "authentication failed"}
        assert said[fault] in str(caught.value)
        assert "?" not in str(caught.value)
        assert secret not in told


def test_a_missing_driver_is_named_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from catalog.store.store import Store; Store.open('postgresql://someone:secret@localhost/x')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "InvalidCatalogUrl" in run.stderr
    assert 'Install the extra "postgres": pip install "sluice[postgres]", or "psycopg[binary]".' in run.stderr
    assert "secret" not in run.stderr.replace(code, "")


def test_another_driver_is_refused() -> None:
    with pytest.raises(InvalidCatalogUrl, match="psycopg2"):
        Store.open("postgresql+psycopg2://localhost/x")


def test_nul_finds_nothing_and_is_stored_as_a_mark(store: Store) -> None:
    """PostgreSQL has no NUL in texts; it comes from damaged files and from paths of requests."""
    with pytest.raises(StreamNotFound):
        store.streams.get("A\0")
    a = store.streams.add(stream("A"))
    store.source_files.append(a.id, [listed("/a/1")])
    store.source_files.set_verdict(a.id, 0, "set-aside", 'cannot read "\0"')
    assert [file.reason for file in store.source_files.set_aside(a.id)] == ['cannot read "\ufffd"']


def test_a_commit_is_on_disk_although_the_server_would_not_wait(
    postgres: PostgresServer, postgres_database: str, url: str
) -> None:
    postgres.execute(f"ALTER DATABASE {postgres_database} SET synchronous_commit = off")
    with Store.open(url) as store, store._database.read() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"


def test_a_catalog_goes_on_when_its_server_is_back(own_server: PostgresServer) -> None:
    with Store.open(own_server.url(own_server.create())) as store:
        for n in range(3):
            assert store.control_log.append(heartbeat=Heartbeat(1, n)).seq == n + 1
            own_server.stop()
            for use in (store.control_log.head, lambda: store.control_log.append(heartbeat=Heartbeat(2, 2))):
                with pytest.raises(CatalogDown):
                    use()
            own_server.start()
            assert store.control_log.head() == n + 1


def test_writers_and_readers_survive_a_restart_under_load(own_server: PostgresServer) -> None:
    """Each append that was answered is there once, numbers have no gap, and nobody hangs."""
    url, appended, failed = own_server.url(own_server.create()), [], []
    Store.open(url).close()
    ended = threading.Event()

    def append(writer: int) -> None:
        with Store.open(url, migrate=False, busy_timeout_s=5) as store:
            n = 0
            while not ended.is_set():
                n += 1
                try:
                    record = store.control_log.append(heartbeat=Heartbeat(writer, n))
                    assert store.control_log.head() >= record.seq
                    appended.append((record.seq, writer, n))
                except CatalogDown as error:
                    failed.append(error)
                    ended.wait(0.01)

    writers = [threading.Thread(target=append, args=(n,)) for n in range(2)]
    for writer in writers:
        writer.start()
    until(lambda: {writer for _, writer, _ in appended} == {0, 1})  # both have opened the catalog
    for _ in range(3):
        so_far = len(appended)
        while len(appended) < so_far + 20:
            ended.wait(0.01)
        own_server.stop()
        own_server.start()
    ended.set()
    for writer in writers:
        writer.join(LIMIT_S)
        assert not writer.is_alive()
    with Store.open(url, migrate=False) as store:
        log = store.control_log.records(0, limit=100_000)
    assert failed
    assert [record.seq for record in log] == list(range(1, len(log) + 1))
    found = {(r.seq, r.heartbeat.stream_id, r.heartbeat.watermark_us) for r in log if r.heartbeat}
    assert len({each[1:] for each in found}) == len(found), "none appears twice"
    assert found >= set(appended)


def test_a_backend_killed_in_a_transaction_leaves_nothing(
    postgres: PostgresServer, postgres_database: str, store: Store
) -> None:
    def write() -> None:
        with store.transaction():
            store.streams.add(stream("A"))
            postgres.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", postgres_database
            )
            store.streams.add(stream("B"))

    with pytest.raises(CatalogDown):
        write()
    assert store.streams.all() == ()
    assert store.streams.add(stream("B")).id == 1


def test_a_writer_that_hangs_is_undone_and_lets_others_write(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an engine does whose machine has stopped: what it holds is the lock of all writers."""
    monkeypatch.setattr(database, "IDLE_TIMEOUT_S", 2.0)
    with Store.open(url, migrate=False) as hanging:

        def hang() -> None:
            with hanging.transaction():
                hanging.streams.add(stream("A"))
                assert store.streams.add(stream("B")).id == 1, "it waited for the lock, then had it"

        with pytest.raises(CatalogDown):
            hang()
        assert [s.name for s in hanging.streams.all()] == ["B"]


def in_schema(url: str, name: str, *, make: bool = True) -> str:
    """Return the URL of a schema in a database."""
    if make:
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(sa.text(f"CREATE SCHEMA {name}"))
        engine.dispose()
    return f"{url}?options=-csearch_path%3D{name}"


def test_two_services_share_a_database_in_schemas_of_their_own(url: str, tmp_path: Path) -> None:
    """Services in separate schemas share no records, leases or events, and no writer blocks another one."""
    urls = [in_schema(url, name) for name in ("one", "other")]
    with Store.open(urls[0]) as one, Store.open(urls[1]) as other:
        leases = [
            CatalogLease(store, tmp_path / name, print) for store, name in ((one, "one"), (other, "other"))
        ]
        for lease in leases:
            lease.acquire()
        assert [store.lease.epoch() for store in (one, other)] == [1, 1]
        for number, store in enumerate((one, other), start=1):
            assert store.streams.add(stream(f"S{number}")).id == 1
            beats = [store.control_log.append(heartbeat=Heartbeat(1, n)).seq for n in range(number)]
            assert beats == list(range(1, number + 1))
        with one.transaction():
            one.streams.add(stream("held"))
            assert other.streams.add(stream("beside")).id == 2, "nobody waits for the other's writer"
        for lease in leases:
            lease.release()
        assert [[s.name for s in store.streams.all()] for store in (one, other)] == [
            ["S1", "held"],
            ["S2", "beside"],
        ]
    with closing(EventLog(urls[0])) as first, closing(EventLog(urls[1])) as second:
        for number, log in enumerate((first, second), start=1):
            assert log.append(STREAM, numbered(0, number)) == (0, number - 1)


def test_a_schema_that_is_not_there_is_refused(url: str) -> None:
    with pytest.raises(CatalogDown, match="no schema has been selected to create in"):
        Store.open(in_schema(url, "nowhere", make=False))


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_batch_whose_commit_is_not_answered_is_committed_once(
    postgres: PostgresServer, postgres_database: str, store: Store, loss: Loss
) -> None:
    with losing(postgres, postgres_database) as (proxy, through):
        a, b = through.streams.add(stream("A")), through.streams.add(stream("B"))
        query = add_query(through, "q1", a, b).query
        batch = manifest(0, begin_epoch(through), {query.id: 3})
        proxy.lose(loss)
        with pytest.raises(CatalogDown) as caught:
            commit(through, batch)
        assert caught.value.hint == (
            "The change may have taken effect: check before you repeat it, "
            "or send it with an Idempotency-Key."
        )
        assert proxy.lost == 1
        there = loss == "answer"
        assert (store.batches.manifest(0) == replace(batch, query_rows=())) == there  # counts are apart
        # The engine repeats the batch, whichever it was.
        assert commit(through, batch) == (not there)
        assert store.batches.totals().batches == 1
        assert store.counts.totals() == {query.id: 3}


@pytest.mark.parametrize("loss", ["request", "answer"])
def test_a_change_whose_commit_is_not_answered_is_done_once_under_its_key(
    postgres: PostgresServer, postgres_database: str, store: Store, loss: Loss
) -> None:
    """As requests with an Idempotency-Key are served: change and answer are one transaction."""

    def post(through: Store) -> str:
        with through.transaction():
            if (known := through.idempotency.recall("key", "print")) is not None:
                return known.body
            answer = str(through.streams.add(stream("A")).id)
            through.idempotency.remember("key", "print", 201, answer)
        return answer

    with losing(postgres, postgres_database) as (proxy, through):
        proxy.lose(loss)
        with pytest.raises(CatalogDown):
            post(through)
        assert (store.idempotency.recall("key", "print") is not None) == (loss == "answer")
        assert [post(through), post(through)] == ["1", "1"]
        assert [s.id for s in store.streams.all()] == [1]


def test_older_catalogs_are_migrated_to_the_same_records_on_both_databases(url: str, sqlite_url: str) -> None:
    rows = _migrated(url)
    assert rows == _migrated(sqlite_url)
    assert [row[:3] for row in rows["lease"]] == [(1, 1, "")]


def _migrated(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Fill catalogs of older revisions, migrate them, and return all rows."""
    engine = create_engine(url)
    with engine.begin() as connection:
        alembic = configuration()
        alembic.attributes["connection"] = connection
        for revision, statements in _OLD_ROWS.items():
            command.upgrade(alembic, revision)
            for statement in statements:
                connection.exec_driver_sql(statement)
        command.upgrade(alembic, "head")
        found = sa.MetaData()
        found.reflect(connection)
        rows = {
            name: sorted((tuple(row) for row in connection.execute(sa.select(table))), key=str)
            for name, table in found.tables.items()
        }
    engine.dispose()
    return rows


_OLD_ROWS = {
    "0012": (
        "INSERT INTO streams (id, name, folded_name, document, created_at_us) VALUES (1, 'A', 'a', '{}', 5)",
        "INSERT INTO queries (id, name, folded_name, stream_a, stream_b, document, added_version, "
        "removed_version, created_at_us, series, left_by) VALUES "
        "(1, 'Q', 'q', 1, 1, '{}', 1, NULL, 9007199254740993, 1, NULL), "
        "(2, 'R', 'r', 1, 1, '{}', 1, 2, 7, 2, 'remove')",
        "INSERT INTO plans (version, seq, document, created_at_us) VALUES (1, 1, '{}', 3)",
        "INSERT INTO control_log (seq, plan_version, created_at_us) VALUES (1, 1, 3)",
        "INSERT INTO inputs (stream_id, position, path, size, mtime_ns, rows, verdict, listed_at_us) VALUES "
        "(1, 0, 'a.csv', 7, 9223372036854775807, 2, 'ok', 5)",
        "INSERT INTO epochs (epoch, owner, started_at_us) VALUES (1, 'pid 1', 4)",
        "INSERT INTO batches (batch, epoch, plan_version, document, committed_at_us) VALUES "
        "(0, 1, 1, '{}', 9223372036854775807)",
        "INSERT INTO batch_queries (query_id, batch, rows) VALUES (1, 0, 12)",
        "INSERT INTO query_totals (query_id, rows) VALUES (1, 12)",
        "INSERT INTO sinks (id, series, next_batch, next_row, rows, batches, failures, lost, created_at_us) "
        "VALUES (1, 1, 1, 0, 12, 1, 0, 0, 6)",
    ),
}
