"""Ten thousand queries in a running service: how long a client waits for changes of its queries.

    python -m tests.bench.many_changes [--queries 10000] [--windows 2000] [--changes 5]

    POST /changes ── parsed, planned, logged ── 202
                                                 └── a batch takes up the plan ── 200 (with ``wait``)

The queries are those of ``tests.bench.many_windows``, all in one request. After them, queries are added and
removed one by one. Times are those that a client waits, in s: engine, workers and API share the machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from tests.api.running_service import WAIT_S, RunningService
from tests.bench.loaded import loaded_service
from tests.bench.many_windows import query_text
from tests.bench.reports import table

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}


#: Pause before a change, s: the batch that takes up the change before it is over by then.
REST_S = 3.0


def seconds(call: Callable[[], object]) -> float:
    """Return the time that a call takes, s, after a pause."""
    time.sleep(REST_S)
    began_s = time.monotonic()
    call()
    return time.monotonic() - began_s


def change_one(service: RunningService, number: int, windows: int, wait_s: int) -> tuple[float, float]:
    """Add a query with another filter and remove one of the others.

    Returns:
        The time of each, s.
    """
    text = query_text(7, windows).replace("A.v < 0.", f"A.v < 0.7{number}")
    added = {"name": f"extra{number}", "cql": text}
    return (
        seconds(lambda: service.ok("POST", f"/queries?wait={wait_s}", 201 if wait_s else 202, json=added)),
        seconds(lambda: service.ok("DELETE", f"/queries/q{number}?wait={wait_s}", 200 if wait_s else 202)),
    )


def main(
    queries: Annotated[int, typer.Option(help="Queries of the plan.", min=100)] = 10_000,
    windows: Annotated[int, typer.Option(help="Their distinct windows.", min=8)] = 2_000,
    changes: Annotated[int, typer.Option(help="Queries that come and go one by one.", min=1)] = 5,
) -> None:
    """Measure, and print the figures."""
    lines: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory(prefix="sluice-changes-") as root, loaded_service(Path(root)) as loaded:
        loaded.service.register(COLUMNS, "A", "B")
        texts = {f"q{number}": query_text(number, windows) for number in range(queries)}
        lines.append(
            (f"add {queries:,} queries in one change", "active", seconds(lambda: loaded.add_all(texts)))
        )
        for first, wait_s, until in ((0, WAIT_S, "active"), (changes, 0, "durable")):
            numbers = range(first, first + changes)
            pairs = [change_one(loaded.service, number, windows, wait_s) for number in numbers]
            for what, times in zip(("add a query", "remove a query"), zip(*pairs, strict=True), strict=True):
                lines.append((what, until, median(times)))
                lines.append((f"{what}, slowest of {changes}", until, max(times)))
    typer.echo(table(("change", "a client waits until it is", "s"), lines, texts=2))


if __name__ == "__main__":
    typer.run(main)
