"""Keys, upgrade, backup, restore and a move of a service that systemd runs, by the commands of the runbook.

    nsenter --net --target PID python -m tests.deploy.kept_units PID        PID: systemd of the machine

The catalog is in SQLite first, and in PostgreSQL in the end. Requests and their keys are the same ones in
each client, so a client says again what the service has to have.
"""

from __future__ import annotations

import sys

from tests.crash.posting import Client, Sent, add_streams_and_query, expected, results, wait_for_rows
from tests.deploy.killed_units import API, Reached, wait_for_requests, wait_until_ready
from tests.deploy.runbook import blocks, of_systemd
from tests.deploy.systemd_machine import run_in

#: Requests before the backup, after it, and in the end.
BEFORE, AFTER, LAST = 60, 120, 160
_STOP = "sudo systemctl stop"
_BOOT = "/proc/sys/kernel/random/boot_id"


def main(leader: int) -> None:
    """Follow the runbook, and compare the results with DuckDB's after each section."""
    # systemd-nspawn hides the id of the boot from a shell, but not from units with a /proc of their own.
    run_in(leader, f"if mountpoint --quiet {_BOOT}; then umount {_BOOT}; fi")
    service = Reached(API)
    wait_until_ready(service)
    add_streams_and_query(service)
    kept = post(service, BEFORE)
    (key,) = of_systemd("Keys") or [each for each in of_systemd("systemd") if " key create " in each]
    assert run_in(leader, key).strip(), "the key is printed"

    saving, restoring = _parted(of_systemd("Backup and restore"))
    follow(leader, saving)
    post(service, AFTER)
    follow(leader, of_systemd("Upgrade"))
    wait_until_ready(service)
    post(service, AFTER)  # which has all of it
    follow(leader, restoring)
    wait_until_ready(service)
    compare(service, kept)

    _, (_, *database), *_ = blocks("systemd")
    follow(leader, database)
    _, moving = _parted(of_systemd("Moving"))
    follow(leader, moving)
    wait_until_ready(service)
    compare(service, kept)
    post(service, LAST)


def follow(leader: int, commands: list[str]) -> None:
    """Run commands on the machine."""
    for command in commands:
        run_in(leader, command)


def post(service: Reached, requests: int) -> Sent:
    """Post so many requests, of which the first ones may be there, and compare all results."""
    client = Client(API)
    client.start()
    wait_for_requests(client, requests)
    client.finish(0)
    compare(service, client.sent)
    return client.sent


def compare(service: Reached, sent: Sent) -> None:
    """Compare the results with DuckDB's of what was sent."""
    wait_for_rows(service, sum(map(len, sent.values())))
    assert sorted(results(service)) == expected(sent), "results differ from DuckDB's"


def _parted(commands: list[str]) -> tuple[list[str], list[str]]:
    """Part what is done while the service runs from what begins with its stop."""
    first = next(n for n, command in enumerate(commands) if command.startswith(_STOP))
    return commands[:first], commands[first:]


if __name__ == "__main__":
    main(int(sys.argv[1]))
