"""Reports from buckets to the engine: every batch is committed once, before its last bucket is answered."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing.connection import Client
from typing import Any

import numpy as np
import pytest

from catalog.errors import InvariantBroken
from catalog.values.routes.route_table import RouteTable
from service.commit.reporting import reports as module
from service.commit.reporting.bucket_report import BucketReport
from service.commit.reporting.reports import CommitFailed, ReportAddress, Reports, send_report


def a_report(batch: int, bucket: int, **facts: Any) -> BucketReport:
    return BucketReport(batch=batch, bucket=bucket, **facts)


def send(address: ReportAddress, report: BucketReport, routes: Sequence[RouteTable] = ()) -> None:
    """Report as a worker does, over a connection of this thread's own."""
    with address.connect() as connection:
        module._sent(connection, report, routes)


@contextmanager
def taking(
    buckets: int, commit: Callable[[Sequence[BucketReport]], None], host: str | None = None
) -> Iterator[Reports]:
    reports = Reports(buckets, commit, host=host)
    try:
        yield reports
    finally:
        reports.close()


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
@pytest.mark.parametrize("seed", range(5))
def test_every_batch_is_committed_once_with_the_last_report_of_each_bucket(
    seed: int, host: str | None
) -> None:
    """Buckets report in any order and at once, some twice, as tasks do that Spark runs again."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    buckets = rng.randint(1, 6)
    committed: list[list[BucketReport]] = []
    with taking(buckets, lambda found: committed.append(list(found)), host) as reports:
        for batch in range(8):
            attempts = dict.fromkeys(range(buckets), 0)
            again = [bucket for bucket in range(buckets) if rng.random() < 0.3]
            # All but one, some of them twice; then the last, at which the batch is whole.
            *others, last = rng.sample(range(buckets), buckets)
            for bucket in [*others, *(b for b in again if b != last)]:
                send(reports.address, a_report(batch, bucket, plan_version=attempts[bucket]))
                attempts[bucket] += 1
            assert len(committed) == batch
            many = RouteTable.of({number: (number,) for number in range(1, rng.choice([2, 1_000]))})
            send(reports.address, a_report(batch, last), [many])
            (told,) = committed[batch][last].routes
            assert RouteTable.decode(told).ids() == many.ids()
            assert len(committed) == batch + 1
            found = committed[batch]
            assert [(report.batch, report.bucket) for report in found] == [
                (batch, bucket) for bucket in range(buckets)
            ]
            assert all(found[b].plan_version == attempts[b] - 1 for b in others)


def test_a_bucket_tells_the_routes_that_the_engine_does_not_know() -> None:
    committed: list[BucketReport] = []
    known = np.array([5, 8], dtype=np.int64)
    reports = Reports(1, committed.extend, unknown=lambda n: n[np.isin(n, known, invert=True)])
    with closing(reports):
        one, other = RouteTable.of({5: (1,), 6: (1, 2)}), RouteTable.of({8: (3,)})
        send(reports.address, a_report(0, 0), [one, other])
        send(reports.address, a_report(1, 0), [other])
    (told,) = committed[0].routes
    assert RouteTable.decode(told).ids() == {6: (1, 2)}
    assert committed[1].routes == ()


def test_buckets_that_report_at_once_are_one_batch() -> None:
    committed: list[int] = []
    buckets = 8
    with (
        taking(buckets, lambda found: committed.append(len(found))) as reports,
        ThreadPoolExecutor(buckets) as pool,
    ):
        for batch in range(20):
            sent = [a_report(batch, bucket) for bucket in range(buckets)]
            list(pool.map(lambda report: send(reports.address, report), sent))
    assert committed == [buckets] * 20


def test_a_worker_keeps_its_connection_and_finds_the_next_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_open", None)
    committed: list[int] = []
    for engine in range(2):
        with taking(1, lambda found: committed.append(found[0].batch)) as reports:
            for batch in range(3):
                send_report(reports.address, a_report(10 * engine + batch, 0))
                assert module._open is not None
                connection = module._open[1]
                send_report(reports.address, a_report(10 * engine + batch, 0))
                assert module._open == (reports.address, connection)
            connection.close()
    assert committed == [0, 0, 1, 1, 2, 2, 10, 10, 11, 11, 12, 12]


def test_the_last_bucket_is_answered_after_the_commit() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def commit(_: Sequence[BucketReport]) -> None:
        begun.set()
        assert go_on.wait(60)

    with taking(2, commit) as reports, ThreadPoolExecutor(1) as pool:
        send(reports.address, a_report(0, 0))
        last = pool.submit(send, reports.address, a_report(0, 1))
        assert begun.wait(60)
        assert not last.done()
        go_on.set()
        last.result(60)


def test_the_task_that_reports_last_fails_with_the_commit_and_may_try_again() -> None:
    failures = [InvariantBroken("buckets disagree"), ValueError()]

    def commit(_: Sequence[BucketReport]) -> None:
        if failures:
            raise failures.pop(0)

    with taking(2, commit) as reports:
        send(reports.address, a_report(0, 0))
        with pytest.raises(CommitFailed, match="buckets disagree"):
            send(reports.address, a_report(0, 1))
        with pytest.raises(CommitFailed, match="ValueError"):
            send(reports.address, a_report(0, 1))
        send(reports.address, a_report(0, 1))


def test_reports_of_a_batch_that_is_over_and_of_one_too_early_are_refused() -> None:
    with taking(2, lambda _: None) as reports:
        for bucket in range(2):
            send(reports.address, a_report(4, bucket))
        with pytest.raises(CommitFailed, match="the report of batch 3 is too late: batch 4 has begun"):
            send(reports.address, a_report(3, 0))
        send(reports.address, a_report(5, 1))
        with pytest.raises(CommitFailed, match="batch 6 began before batch 5 was over"):
            send(reports.address, a_report(6, 1))


def test_closing_waits_for_the_commit_in_hand_and_refuses_what_comes_later() -> None:
    begun, go_on = threading.Event(), threading.Event()
    committed: list[int] = []

    def commit(found: Sequence[BucketReport]) -> None:
        begun.set()
        assert go_on.wait(60)
        committed.append(found[0].batch)

    reports = Reports(1, commit)
    with ThreadPoolExecutor(2) as pool, reports.address.connect() as kept:
        last = pool.submit(send, reports.address, a_report(0, 0))
        assert begun.wait(60)
        closed = pool.submit(reports.close)
        assert not closed.done()
        go_on.set()
        closed.result(60)
        last.result(60)
        with pytest.raises(CommitFailed, match="has been stopped"):
            module._sent(kept, a_report(1, 0), ())
    assert committed == [0]
    reports.close()
    with pytest.raises(OSError, match="refused"):
        reports.address.connect()


def test_closing_needs_no_name_that_leads_back_here() -> None:
    reports = Reports(1, lambda _: None, host="sluice.invalid")
    reports.close()
    assert not reports._thread.is_alive()


def test_who_does_not_know_the_secret_is_not_heard_and_keeps_nobody_waiting() -> None:
    committed: list[int] = []
    with taking(1, lambda found: committed.append(found[0].batch), host="127.0.0.1") as reports:
        host = reports.address.host
        assert host is not None
        silent = Client(host, family="AF_INET")
        with silent, pytest.raises((OSError, EOFError, module.AuthenticationError)):
            send(ReportAddress(None, host, b"guessed"), a_report(0, 0))
        send(reports.address, a_report(1, 0))
    assert committed == [1]
    assert "guessed" not in repr(ReportAddress(None, host, b"guessed"))
