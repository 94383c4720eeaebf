"""Delay between a commit of the engine and the arrival of its results at a reader of another process.

    python -m tests.bench.reader_delay [--batches 100]

Two API processes and two engines run apart, once with the catalog in SQLite, once in PostgreSQL. Events are
posted to one API process, the other one sends results as server-sent events. A delay begins when the engine
begins the commit, so the commit itself is in it.
"""

from __future__ import annotations

import threading
import time
from typing import Annotated

import numpy as np
import typer

from catalog.store.store import Store
from service.results.pages.page import parse_cursor
from tests.api.running_service import RunningService
from tests.bench.reports import table
from tests.bench.takeover import CATALOGS, apart_on
from tests.crash.apart import Apart
from tests.crash.posting import add_streams_and_query

#: Between two posts; a batch takes less where nothing else runs.
_PAUSE_S = 0.4


def delays_ms(apart: Apart, url: str, batches: int) -> list[float]:
    """Return the delay of each of some batches, ms."""
    one, other = apart.apis
    add_streams_and_query(one)
    received: dict[int, float] = {}
    posting = threading.Thread(target=_post, args=(one, batches + 1))
    with other.events("/queries/q/results/stream") as events:
        posting.start()
        for event in events:
            # The first result of a batch; its cursor names the batch.
            received.setdefault(parse_cursor(event.id)[0], time.time() * 1000)
            if len(received) > batches:
                break
    posting.join()
    with Store.open(url) as store:
        found = {batch: store.batches.manifest(batch) for batch in received}
    return [
        when_ms - manifest.committed_at_us / 1000
        for batch, when_ms in received.items()
        if (manifest := found[batch]) is not None
    ]


def _post(service: RunningService, posts: int) -> None:
    for number in range(posts + 20):
        for stream in ("A", "B"):
            row = {"ts": number * 1_000_000, "id": number, "k": 1}
            service.ok("POST", f"/streams/{stream}/events", 202, json=[row])
        time.sleep(_PAUSE_S)


def main(batches: Annotated[int, typer.Option(help="Batches with results.")] = 100) -> None:
    """Print the delays of both catalogs."""
    lines = []
    for name in CATALOGS:
        with apart_on(name) as (apart, url):
            found = delays_ms(apart, url, batches)
        lines.append(
            (name, len(found), *(f"{ms:.0f}" for ms in (*np.percentile(found, (50, 99)), max(found))))
        )
    print(table(("catalog", "batches", "p50 ms", "p99 ms", "greatest ms"), lines))


if __name__ == "__main__":
    typer.run(main)
