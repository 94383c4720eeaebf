"""Load on a service that systemd runs, whose processes are killed one after the other.

    nsenter --net --target PID python -m tests.deploy.killed_units PID        PID: systemd of the machine

It prints how many results DuckDB expects and how often each unit was started again, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx

from tests.api.running_service import WAIT_S, RunningService
from tests.crash.posting import Client, add_streams_and_query, expected, results, wait_for_rows
from tests.deploy.systemd_machine import run_in

DATABASE = "postgresql@15-main"
#: How long it is away.
AWAY_S = 60.0
#: Everything of a service, in the order in which it is killed; both engines at least once at work.
UNITS = ("sluice-engine@1", "sluice-api", "sluice-engine@2", DATABASE, "sluice-engine@1")
API = "http://127.0.0.1:8080"
#: Requests that are acknowledged between two kills.
REQUESTS = 40
#: A restart of Spark, by an engine that nothing stands by for.
PATIENCE_S = 240.0


class Reached(RunningService):
    """A service that is there already."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.log = Path("/dev/null")
        self.http = httpx.Client(base_url=f"{root}/api/v1", timeout=WAIT_S + 30)


def main(leader: int) -> None:
    """Post, kill, read, compare."""
    service = Reached(API)
    wait_until_ready(service)
    if service.http.get("/streams/A").status_code == 404:
        add_streams_and_query(service)
    client = Client(API)
    client.start()
    for unit in UNITS:
        wait_for_requests(client, client.requests + REQUESTS)
        run_in(leader, f"systemctl kill --kill-whom=all --signal=KILL {unit}")
        if unit == DATABASE:  # Debian's unit does not do it by itself
            time.sleep(AWAY_S)
            run_in(leader, f"systemctl start {unit}")
    wait_for_requests(client, client.requests + REQUESTS)
    client.finish(REQUESTS)
    wait_for_rows(service, sum(map(len, client.sent.values())))
    wanted = expected(client.sent)
    assert sorted(results(service)) == wanted, "results differ from DuckDB's"
    shown = {
        unit: int(run_in(leader, f"systemctl show --property=NRestarts --value {unit}"))
        for unit in set(UNITS)
    }
    print(json.dumps({"results": len(wanted), "killed": Counter(UNITS), "restarts": shown}))


def wait_until_ready(service: RunningService) -> None:
    """Wait until the service answers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(httpx.TransportError):
            if service.http.get("/health/ready").is_success:
                return
        assert time.monotonic() < deadline, "the service is not ready"
        time.sleep(0.2)


def wait_for_requests(client: Client, count: int) -> None:
    """Wait until so many requests are acknowledged."""
    deadline = time.monotonic() + PATIENCE_S
    while client.requests < count:
        assert client.is_alive(), client.failed
        assert time.monotonic() < deadline, f"{client.requests} of {count} requests were acknowledged"
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
