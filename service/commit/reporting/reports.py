"""Transport of a batch's reports from the buckets to the engine, over a socket instead of Spark.

    bucket 1  ── numbers of routes ──>  |        |
              <── unknown numbers ────  |        |
              ── report with routes ─>  | engine |
              <── taken ──────────────  |        |
    bucket 2  ── ... ── report ──────>  |        |  last report: the engine commits the batch
              <── taken ──────────────  |        |  ... and answers after the commit

Invariant: the task of the last bucket ends after the batch is committed, so Spark never counts a batch as
done before its results are visible. If Spark repeats a task or a batch, the buckets report again, and the
committer recognizes a batch that is already committed.

A route is a set of up to ten thousand queries. A bucket therefore first sends only the route's number, eight
bytes, and sends the set only if the engine asks for it.

Spark's driver could also collect the reports as rows. Each batch would then need a second Spark query, which
is planned, cleaned and scheduled separately: 20 of the 145 ms of a batch of 2,000 rows
(docs/bench/history.md).
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from threading import Lock, Thread
from typing import Any

import numpy as np

from catalog.errors import InvariantBroken, Unavailable
from catalog.values.routes.query_sets import Int64s
from service.commit.reporting.bucket_report import BucketReport, Routes, decode_report, encode_report, telling

log = logging.getLogger(__name__)

#: Answer to a report that was accepted; any other answer is an error text.
_TAKEN = b""
#: Seconds to wait after an error in accepting a connection.
_AGAIN_S = 0.1
#: Seconds for which ``close`` waits for the end of the listening thread. It may then return without that end,
#: because nothing else depends on it.
_CLOSING_S = 10.0


class CommitFailed(Exception):
    """The batch of a report was not committed: the commit failed, or the report arrived too late."""


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """Address at which the engine accepts reports.

    Attributes:
        path: Name of an abstract Unix socket (a socket without a file, on Linux) if all workers are on this
            machine, otherwise None.
        host: Name and port by which workers on other machines reach the engine, or None.
        key: Secret that engine and workers share; each proves to the other that it knows the secret.
    """

    path: str | None
    host: tuple[str, int] | None
    key: bytes = field(repr=False)

    def connect(self) -> Connection:
        """Return a connection on which both sides have proved that they know the key.

        Raises:
            OSError: The peer has closed the connection.
        """
        if self.path is not None:
            return Client(self.path, family="AF_UNIX", authkey=self.key)
        assert self.host is not None
        connection = Client(self.host, family="AF_INET", authkey=self.key)
        _send_at_once(connection)
        return connection


#: Address of the engine to which this worker process reports, and the connection, kept for later tasks.
_open: tuple[ReportAddress, Connection] | None = None


def send_report(address: ReportAddress, report: BucketReport, routes: Sequence[Routes] = ()) -> None:
    """Send the report of a bucket on a batch, and return once the engine has accepted it.

    Args:
        address: Address at which the engine accepts reports.
        report: The report.
        routes: Routes that occur in the batch.

    Raises:
        CommitFailed: The report was the last one of the batch, and the batch could not be committed.
        OSError: The engine is no longer there.
        EOFError: The engine closed the connection before it answered.
    """
    global _open
    if _open is None or _open[0] != address:
        _open = (address, address.connect())
    try:
        _sent(_open[1], report, routes)
    except (OSError, EOFError):
        _open = None
        raise


def _sent(connection: Connection, report: BucketReport, routes: Sequence[Routes]) -> None:
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *(each.numbers for each in routes)])
    connection.send_bytes(numbers.tobytes())
    wanted = np.frombuffer(connection.recv_bytes(), dtype=np.int64)
    connection.send_bytes(encode_report(telling(report, routes, wanted)))
    if (answer := connection.recv_bytes()) != _TAKEN:
        raise CommitFailed(answer.decode())


class Reports:
    """Receiver of reports in the engine; commits a batch when all of its buckets have reported.

    Args:
        buckets: Number of buckets, each of which reports in every batch.
        commit: Commits a batch, given the reports of all buckets.
        unknown: Returns those of the given route numbers that the engine does not know. None means that the
            engine asks for all routes.
        host: Name by which workers on other machines reach this machine. None means that all workers are on
            this machine.
        bind: Address and port to listen on if ``host`` is given; port 0 is any free port.
    """

    def __init__(
        self,
        buckets: int,
        commit: Callable[[Sequence[BucketReport]], None],
        *,
        unknown: Callable[[Int64s], Int64s] | None = None,
        host: str | None = None,
        bind: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._buckets = buckets
        self._commit = commit
        self._unknown = unknown
        key = secrets.token_bytes(32)
        if host is None:
            path = f"\0sluice-{secrets.token_hex(16)}"
            self._listener = Listener(path, family="AF_UNIX", backlog=socket.SOMAXCONN)
            self.address = ReportAddress(path, None, key)
        else:
            self._listener = Listener(bind, family="AF_INET", backlog=socket.SOMAXCONN)
            address: Any = self._listener.address
            self.address = ReportAddress(None, (host, int(address[1])), key)
        # The lock is held while a batch is committed. No report waits for the lock meanwhile, because the
        # commit begins with the last report.
        self._lock = Lock()
        self._closed = False
        self._batch = -1
        self._found: dict[int, BucketReport] = {}
        self._thread = Thread(target=self._accept, name="reports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting reports, after a commit in progress has ended."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        # The thread that waits in accept is woken by a connection; closing the socket would not wake it. The
        # connection uses the bound address, because this machine may not resolve the name that others use.
        with suppress(OSError, EOFError):
            Client(self._listener.address, authkey=self.address.key).close()
        self._thread.join(_CLOSING_S)

    def _accept(self) -> None:
        with closing(self._listener):
            while not self._closed:
                try:
                    connection = self._listener.accept()
                except OSError as error:  # the worker has disconnected, or too many files are open
                    log.warning("a connection for reports was not accepted: %s", error)
                    time.sleep(_AGAIN_S)
                    continue
                # Each connection has its own thread, so that a process that connects but does not
                # authenticate delays no worker.
                Thread(target=self._serve, args=(connection,), name="report", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        # Spark may end a worker at any time.
        with connection, suppress(OSError, EOFError):
            try:
                deliver_challenge(connection, self.address.key)
                answer_challenge(connection, self.address.key)
            except AuthenticationError:
                log.warning("a process that does not know the secret of this engine has connected")
                return
            if self.address.host is not None:
                _send_at_once(connection)
            while True:
                numbers = np.frombuffer(connection.recv_bytes(), dtype=np.int64)
                wanted = numbers if self._unknown is None else self._unknown(numbers)
                connection.send_bytes(wanted.tobytes())
                connection.send_bytes(self._answer(connection.recv_bytes()))

    def _answer(self, data: bytes) -> bytes:
        try:
            self._take(decode_report(data))
        except CommitFailed as refused:
            log.warning("a report was refused: %s", refused)
            return str(refused).encode()
        except Unavailable as error:  # such as a full disk; Spark's query fails and is retried
            log.error("a batch was not committed: %s", error)
            return str(error).encode()
        except Exception as error:  # the task that waits for the answer fails, so Spark's query fails
            log.error("a batch was not committed: %s", error, exc_info=error)
            return str(error).encode() or type(error).__name__.encode()
        return _TAKEN

    def _take(self, report: BucketReport) -> None:
        batch, bucket = report.batch, report.bucket
        with self._lock:
            if self._closed:
                raise CommitFailed("the engine has been stopped")
            if batch < self._batch:
                raise CommitFailed(f"the report of batch {batch} is too late: batch {self._batch} has begun")
            if batch > self._batch:
                if 0 < len(self._found) < self._buckets:
                    raise InvariantBroken(
                        f"batch {batch} began before batch {self._batch} was over",
                        detail=f"Only {len(self._found)} of {self._buckets} buckets had reported.",
                    )
                self._batch, self._found = batch, {}
            self._found[bucket] = report
            if len(self._found) == self._buckets:
                self._commit([self._found[number] for number in sorted(self._found)])


def _send_at_once(connection: Connection) -> None:
    """Disable Nagle's algorithm, which delays the end of a message until its beginning is acknowledged."""
    with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy:
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
