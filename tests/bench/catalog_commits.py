"""Cost of a commit: SQLite and PostgreSQL, both on this disk and both synced.

    python -m tests.bench.catalog_commits [--batches 300]      under a minute

Batches of 20 slices with results of 100 queries are committed alternately to either catalog, and the
job's reads before a batch are timed beside. Figures are medians.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from catalog.store.store import Store
from tests.bench.measuring import Stages
from tests.bench.reports import table
from tests.catalog.examples import commit, manifest, plan
from tests.epochs import begin_epoch
from tests.postgres import PostgresServer

SLICES, QUERIES = 20, 100


def main(batches: Annotated[int, typer.Option(help="Batches per catalog.")] = 300) -> None:
    """Measure and print."""
    server = PostgresServer(durable=True)
    try:
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            urls = {
                "SQLite": f"sqlite:///{Path(directory) / 'catalog.db'}",
                "PostgreSQL": server.url(server.create()),
            }
            stores = {name: stack.enter_context(Store.open(url)) for name, url in urls.items()}
            lines = [
                (name, *(stages.median_ms(what) for what in ("commit", "read")))
                for name, stages in _measured(stores, batches).items()
            ]
            typer.echo(table(("medians, ms", "commit", "read"), lines))
    finally:
        server.close()


def _measured(stores: dict[str, Store], batches: int) -> dict[str, Stages]:
    found = {name: Stages(time.perf_counter) for name in stores}
    for store in stores.values():
        store.control_log.append(plan=plan(1, queries=QUERIES))
        begin_epoch(store)
    for batch in range(batches):
        made = manifest(batch, 1, dict.fromkeys(range(1, QUERIES + 1), 7))
        made = replace(made, slices=tuple(replace(made.slices[0], slice=n) for n in range(SLICES)))
        for name, store in stores.items():
            with found[name].timed("commit"):
                commit(store, made, {})
            with found[name].timed("read"):
                store.lease.epoch()
    return found


if __name__ == "__main__":
    typer.run(main)
