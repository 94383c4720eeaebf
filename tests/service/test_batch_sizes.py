"""Batches of a backlog: what the source admits when, and that results do not tell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from sqlalchemy import delete

from catalog.store.database import tables
from catalog.store.store import Store
from catalog.values.control import Heartbeat
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.counters.family_counters import KeyCounters, SliceCounters
from catalog.values.plan import Plan
from catalog.values.source_file import SourceFile
from catalog.values.stream import FilesSource, Stream
from service.job.source import SluiceReader
from tests.catalog.examples import manifest
from tests.epochs import begin_epoch
from tests.service.inputs.streams import stream_of
from tests.sluice_run import per_query_results, run

ROWS_PER_FILE = 250_000
SECOND_US = 1_000_000


@dataclass(slots=True)
class Clock:
    """A clock that stands still unless it is told."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store(store: Store) -> Store:
    assert begin_epoch(store) == 1
    return store


def listed(store: Store, files: int, *, overlap_us: int = 0, max_files: int | None = None) -> Stream:
    """A stream of files of a second each, that begin so much before the one before ends."""
    stream = store.streams.add(stream_of(FilesSource("parquet", "/S", max_files), stream_id=0))
    store.source_files.append(
        stream.id,
        [
            SourceFile(
                0, f"/S/{i}", 1, 1, ROWS_PER_FILE, max(i * SECOND_US - overlap_us, 0), (i + 1) * SECOND_US
            )
            for i in range(files)
        ],
    )
    return stream


def committed(store: Store, batch: int, rows: int, row_bytes: int) -> None:
    """Commit what a batch of so many rows of one family gave; a second run over the same store finds it."""
    family = "s1s2-00c0ffee"
    store.batches.commit(
        replace(
            manifest(batch, 1),
            streams=(StreamCounters(1, rows, 0, 0, None, None),),
            slices=(SliceCounters(family, "a", 1, rows=100, own_bytes=100 * row_bytes),),
            keys=(KeyCounters(family, "a", rows, 1, 1, 1, rows),),
        )
    )


def forget_batches(store: Store) -> None:
    """Begin with batch 0 once more: a source repeats what is committed."""
    with store._database.write() as connection:
        for table in (tables.batches, tables.query_counts, tables.batch_routes):
            connection.execute(delete(table))


def sizes(
    store: Store,
    tmp_path: Path,
    *,
    bounded: bool,
    max_rows: int = 8_000_000,
    target_s: float = 2.0,
    batch_s: float = 0.5,
    row_bytes: int = 0,
) -> list[int]:
    """Thousands of rows in each batch that a fresh source admits, if every batch takes so long."""
    clock = Clock()
    (tmp_path / "lock").touch()
    forget_batches(store)
    options = {
        "catalog_url": f"sqlite:///{tmp_path / 'catalog.db'}",
        "events_url": f"sqlite:///{tmp_path / 'events.db'}",
        "data_dir": str(tmp_path),
        "engine_lock": str(tmp_path / "lock"),
        "epoch": str(store.lease.epoch()),
        "bucket_keys": "0,1",
        "max_rows": str(max_rows),
        "target_batch_s": str(target_s),
        "batch_bytes": str(256 << 20),
    }
    reader = SluiceReader(options, clock)
    if bounded:
        reader.prepareForTriggerAvailableNow()
    found = []
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    while (end := reader.latestOffset(start, limit)) != start:
        rows = (end.get("1", 0) - start.get("1", 0)) * ROWS_PER_FILE
        found.append(rows // 1000)
        committed(store, start["batch"], rows, row_bytes)
        clock.now_s += batch_s
        start = end
        if end.get("1") == 100 and not bounded:
            break  # a service waits for more
    return found


def planned(store: Store, stream: Stream) -> None:
    store.control_log.append(plan=Plan(1, "mem-opt", (stream,), ()), at_batch=0)


@pytest.mark.parametrize("bounded", [False, True])
def test_a_backlog_is_taken_in_growing_batches(store: Store, tmp_path: Path, bounded: bool) -> None:
    planned(store, listed(store, 100))
    grown = [1000, 1000, 1000, 2000, 4000, 8000, 8000]
    assert sizes(store, tmp_path, bounded=bounded) == grown
    assert sizes(store, tmp_path, bounded=bounded, batch_s=1.5) == [1000] * 25
    slow = sizes(store, tmp_path, bounded=bounded, batch_s=9.0)
    assert slow == [1000] * 25 if bounded else slow[:6] == [1000] * 4 + [500] * 2
    assert sizes(store, tmp_path, bounded=bounded, max_rows=2_500_000)[:6] == [
        1000,
        1000,
        1000,
        2000,
        2500,
        2500,
    ]
    assert sizes(store, tmp_path, bounded=bounded, max_rows=500_000) == [500] * 50
    assert sizes(store, tmp_path, bounded=bounded, max_rows=5_000_000, target_s=0) == [5000] * 5


def test_a_bounded_run_in_which_rows_may_be_late_does_not_follow_the_clock(
    store: Store, tmp_path: Path
) -> None:
    planned(store, listed(store, 100, overlap_us=1))
    assert sizes(store, tmp_path, bounded=True) == [1000] * 25
    assert sizes(store, tmp_path, bounded=False)[3:5] == [2000, 4000], "a service follows the clock anyway"


def test_batches_before_a_scripted_change_do_not_follow_the_clock(store: Store, tmp_path: Path) -> None:
    """With changes at batches 6 and 8 their places in the input are the same in every run."""
    stream = listed(store, 100)
    planned(store, stream)
    for batch in (6, 8):
        store.control_log.append(heartbeat=Heartbeat(stream.id, 0), at_batch=batch)
    for batch_s in (0.5, 1.5, 9.0):
        assert sizes(store, tmp_path, bounded=True, batch_s=batch_s)[:9] == [1000] * 9
    # Batch 8 carries a change, whose time says nothing of rows.
    assert sizes(store, tmp_path, bounded=True)[9:13] == [1000, 2000, 4000, 8000]


@pytest.mark.parametrize(
    ("row_bytes", "most"), [(35, 4000), (100, 2000), (160, 1250), (500, 1000), (10**6, 1000)]
)
def test_wide_rows_do_not_grow_beyond_what_the_heap_bears(
    store: Store, tmp_path: Path, row_bytes: int, most: int
) -> None:
    """A quarter of 1 GB, and 32 bytes more per row than are kept; files have 250,000 rows."""
    planned(store, listed(store, 100))
    found = sizes(store, tmp_path, bounded=False, row_bytes=row_bytes)
    assert found[:3] == [1000] * 3
    assert max(found) == most


def test_an_explicit_number_of_files_is_not_touched(store: Store, tmp_path: Path) -> None:
    planned(store, listed(store, 100, max_files=5))
    assert sizes(store, tmp_path, bounded=True) == [1250] * 20


def rows(rng: np.random.Generator, start_s: int, ids: int) -> pa.Table:
    """A file of a second of event time, in order."""
    times = np.sort(rng.integers(0, SECOND_US, ROWS_PER_FILE)) + start_s * SECOND_US
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "id": pa.array(range(ids, ids + ROWS_PER_FILE), pa.int64()),
            "k": pa.array(rng.integers(0, 20_000_000, ROWS_PER_FILE), pa.int64()),
        }
    )


@pytest.mark.slow
@pytest.mark.spark
def test_a_backlog_through_the_job_gives_the_pairs_of_duckdb(tmp_path: Path) -> None:
    files = 14
    rng = np.random.default_rng(5)
    streams = []
    for name in "AB":
        (tmp_path / name).mkdir()
        for i in range(files):
            pq.write_table(rows(rng, i, i * ROWS_PER_FILE), tmp_path / name / f"{i:03}.parquet")
        streams.append(
            {
                "name": name,
                "columns": {"ts": "timestamp", "id": "bigint", "k": "bigint"},
                "event_time": "ts",
                "source": {"type": "files", "format": "parquet", "path": str(tmp_path / name)},
            }
        )
    cql = "SELECT A.id AS a, B.id AS b FROM A [RANGE 3 SECONDS], B [RANGE 2 SECONDS] WHERE A.k = B.k"
    document = {"streams": streams, "queries": [{"name": "q", "cql": cql}]}
    (tmp_path / "WORKLOAD.yaml").write_text(yaml.safe_dump(document))

    # Any machine takes the third batch in less than half of two minutes.
    done = run(tmp_path / "WORKLOAD.yaml", tmp_path / "out", environment={"SLUICE_TARGET_BATCH_S": "120"})

    assert done.returncode == 0, done.stderr
    with Store.open(f"sqlite:///{tmp_path / 'out' / '_sluice' / 'catalog.db'}", migrate=False) as store:
        taken = [sum(s.rows for s in manifest.streams) for manifest in store.batches.manifests(0, 100)]
    assert taken == [1_000_000, 1_000_000, 1_000_000, 2_000_000, 2_000_000]
    expected = duckdb.sql(
        f"""SELECT a.id AS a, b.id AS b
            FROM '{tmp_path}/A/*.parquet' AS a JOIN '{tmp_path}/B/*.parquet' AS b ON a.k = b.k
            WHERE (b.ts >= a.ts AND b.ts - a.ts < INTERVAL 3 SECONDS)
               OR (a.ts > b.ts AND a.ts - b.ts < INTERVAL 2 SECONDS)
            ORDER BY ALL"""
    ).arrow()
    found = (
        per_query_results(tmp_path / "out", "q")
        .select(["a", "b"])
        .sort_by([("a", "ascending"), ("b", "ascending")])
    )
    assert found.num_rows > 10_000
    assert found.equals(pa.table(expected).cast(found.schema))
