"""Figures of compaction without Spark: ``python -m tests.service.compaction_cost [BATCHES]``.

Small batches with two buckets, ten slices a side and the results of ten queries are committed as an engine
does it, and merged on the way as a service does it, or not. Printed are files, bytes of the catalog, time of
the merges and of the transactions that name their files, and how long a page takes.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from catalog.store.results.compaction import Compaction
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.counters.family_counters import FilterCounters, KeyCounters, SliceCounters
from catalog.values.query import Output
from catalog.values.routes.route_table import BatchRoutes, RouteTable
from service.commit.upkeep.compaction import Compactor
from service.results.files.result_files import ResultWriter
from service.results.results import ResultReader
from tests.catalog.examples import manifest
from tests.service.pairs import Batches, add_query, open_store

QUERIES, BUCKETS, SLICES, ROWS = 10, 2, 10, 20
EPOCH_US = 1_700_000_000_000_000


class Timed(Compaction):
    """Notes how long each transaction takes."""

    took_s: list[float]
    cpu_s: list[float]

    def name(self, *args: object) -> bool:
        """Note it of the one that takes batches out of their manifests."""
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        done = super().name(*args)
        self.took_s.append(time.perf_counter() - began_s)
        self.cpu_s.append(time.thread_time() - began_cpu_s)
        return done


def pairs(batch: int, bucket: int) -> pa.RecordBatch:
    """Joined pairs of a bucket."""
    numbers = np.arange(ROWS, dtype=np.int64) + batch * 1_000 + bucket * 100
    times = pa.array(EPOCH_US + numbers * 150, pa.timestamp("us"))
    return pa.RecordBatch.from_pydict(
        {
            "_route": np.full(ROWS, 4711, dtype=np.int64),
            "_plan_version": np.ones(ROWS, dtype=np.int32),
            "_batch": np.full(ROWS, batch, dtype=np.int64),
            "_event_time": times,
            "_pos_a": numbers,
            "_pos_b": numbers * 2,
            "a_k": numbers * 7919 % 1_000,
            "a_v": numbers / 3,
            "b_k": numbers * 7919 % 1_000,
            "b_v": numbers / 7,
        }
    )


def run(directory: Path, batches: int, *, merges: bool) -> dict[str, object]:
    """Commit batches; return the figures."""
    store = open_store(directory)
    for name in ("results", "late"):
        (directory / name).mkdir()
    queries = [add_query(store, f"q{n}", [Output("k", 'a."k"', "bigint")]) for n in range(QUERIES)]
    ids = tuple(q.id for q in queries)
    writer = ResultWriter(directory / "results", None, epoch=1)
    family = Batches.family
    compactor = Compactor(
        store,
        directory / "results",
        directory / "late",
        None,
        str(directory / "engine.lock"),
        1,
        unlink_after_s=0,
    )
    timed = Timed(store._database, compactor.now_us)
    timed.took_s, timed.cpu_s = [], []
    store.compaction = timed
    merging_s = merging_cpu_s = 0.0
    most_files = 0
    for first in range(0, batches, 64):
        with store.transaction():
            for batch in range(first, min(first + 64, batches)):
                files = tuple(writer.write_pairs(batch, family, pairs(batch, b)) for b in range(BUCKETS))
                sides = [(side, n) for side in "ab" for n in range(1, SLICES + 1)]
                made = replace(
                    manifest(batch, 1),
                    files=files,
                    streams=tuple(StreamCounters(s, 500, 0, 0, EPOCH_US, EPOCH_US) for s in (1, 2)),
                    slices=tuple(
                        SliceCounters(
                            family, side, n, *range(1_000 + n, 1_011 + n), own_bytes=70_000, lying=900
                        )
                        for side, n in sides
                    ),
                    filters=tuple(FilterCounters(family, side, n, 500, 250) for side, n in sides),
                    keys=tuple(KeyCounters(family, side, 500, 400, 5, 900, 500) for side in "ab"),
                    query_rows=tuple((q, BUCKETS * ROWS) for q in ids),
                    committed_at_us=EPOCH_US + batch * 150_000,
                    input_end=(("1", batch * 500), ("2", batch * 500), ("batch", batch), ("control", 3)),
                    digest="0123456789abcdef" * 2,
                )
                routes = BatchRoutes(RouteTable.of({4711: ids}), 0) if batch == 0 else None
                store.batches.commit(made, routes)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        while merges and compactor.run_once():
            pass
        merging_s += time.perf_counter() - began_s
        merging_cpu_s += time.process_time() - began_cpu_s
        most_files = max(most_files, len(list((directory / "results").iterdir())))
    reader = ResultReader(store, directory / "results")
    pages = {}
    for limit in (100, 10_000):
        times, cpu = [], []
        for n in range(9):
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            reader.page(ids[0], f"{batches * n // 10}.0", limit)
            times.append(time.perf_counter() - began_s)
            cpu.append(time.process_time() - began_cpu_s)
        pages[f"page_of_{limit}_ms"] = round(1_000 * statistics.median(times), 1)
        pages[f"page_of_{limit}_cpu_ms"] = round(1_000 * statistics.median(cpu), 1)
    reader.close()
    with store._database.read() as connection:
        pages_used = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        free = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
        size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    found: dict[str, object] = {
        "batches": batches,
        "merged": merges,
        "files": len(list((directory / "results").iterdir())),
        "most_files": most_files,
        "result_bytes": sum(p.stat().st_size for p in (directory / "results").iterdir()),
        "catalog_bytes_per_batch": round((pages_used - free) * size / batches),
    } | pages
    if merges:
        found |= {
            "merging_ms_per_batch": round(1_000 * merging_s / batches, 2),
            "merging_cpu_ms_per_batch": round(1_000 * merging_cpu_s / batches, 2),
            "transaction_p50_ms": round(1_000 * statistics.median(timed.took_s), 1),
            "transaction_cpu_p50_ms": round(1_000 * statistics.median(timed.cpu_s), 1),
            "transaction_max_ms": round(1_000 * max(timed.took_s), 1),
        }
    store.close()
    return found


def main() -> None:
    """Print the figures, one line with merges and one without."""
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for merges in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            print(json.dumps(run(Path(directory), batches, merges=merges)), flush=True)


if __name__ == "__main__":
    main()
