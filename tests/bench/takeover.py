"""Time in which the stand-by takes over from an engine that is killed or hangs.

    python -m tests.bench.takeover [--runs 5] [--same-machine]

Two API processes and two engines, under a client that posts. The engine at work is killed with all of its
processes (SIGKILL), or all of them are stopped (SIGSTOP), with the catalog in SQLite and in PostgreSQL. Each
engine sees its own processes alone, as on a machine of its own, so that the lease has to expire; this needs
root. On the same machine the stand-by notices that the holder has gone, and kills one that hangs.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from tests.bench.reports import table
from tests.crash.apart import Apart, processes, send
from tests.crash.posting import STOPPED_S, Client, add_streams_and_query, wait_for_rows
from tests.postgres import PostgresServer

CATALOGS = ("SQLite", "PostgreSQL")
FAULTS = (signal.SIGKILL, signal.SIGSTOP)
#: Rows between two faults, so that the engine is at work for a while.
ROWS = 2_000
_LOOK_S = 0.02


def takeover_s(apart: Apart, fault: signal.Signals) -> tuple[float, float]:
    """Let the engine at work go, and start another one in its place.

    Returns:
        Time until the stand-by is at work, and until its first batch is committed, s.
    """
    api = apart.apis[0]
    before = api.ok("GET", "/engine", 200)
    victims = processes(apart.engines[0])
    began_s = time.monotonic()
    send(victims, fault)
    apart.wait_until("ok", apart.engines[1])
    at_work_s = time.monotonic() - began_s
    while api.ok("GET", "/engine", 200)["batch"] <= before["batch"]:
        assert time.monotonic() - began_s < STOPPED_S, apart.told()
        time.sleep(_LOOK_S)
    committed_s = time.monotonic() - began_s
    send(victims, signal.SIGCONT)
    apart.replace_first()
    return at_work_s, committed_s


@contextmanager
def apart_on(catalog: str, **given: bool) -> Iterator[tuple[Apart, str]]:
    """Yield two API processes and two engines, with the catalog in SQLite or PostgreSQL, and its URL."""
    with ExitStack() as ending:
        directory = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        url = None
        if catalog == "PostgreSQL":
            server = PostgresServer()
            ending.callback(server.close)
            url = server.url(server.create_migrated())
        apart = ending.enter_context(Apart(directory, url, **given))
        yield apart, url or f"sqlite:///{apart.data_dir / 'catalog.db'}"


def main(
    runs: Annotated[int, typer.Option(help="Faults of each kind.")] = 5,
    same_machine: Annotated[bool, typer.Option(help="Let the engines see each other's processes.")] = False,
) -> None:
    """Print medians and greatest times, s."""
    lines = []
    for name in CATALOGS:
        with apart_on(name, apart_engines=not same_machine) as (apart, _):
            add_streams_and_query(apart.apis[0])
            client = Client(apart.apis[1].root)
            client.start()
            rows = 0
            for fault in FAULTS:
                found = []
                for _ in range(runs):
                    rows += ROWS
                    wait_for_rows(apart.apis[0], rows)
                    found.append(takeover_s(apart, fault))
                    load = os.getloadavg()[0]
                    print(
                        f"{name}, {fault.name}: {found[-1][0]:.1f} s, {found[-1][1]:.1f} s (load {load:.0f})"
                    )
                cells = [f"{median(times):.1f} ({max(times):.1f})" for times in zip(*found, strict=True)]
                lines.append((name, fault.name, runs, *cells))
            client.finish(1)
    header = ("catalog", "fault", "runs", "at work after, s (greatest)", "first batch after, s")
    print(table(header, lines, texts=2))


if __name__ == "__main__":
    typer.run(main)
