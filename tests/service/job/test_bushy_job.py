"""Pairs that meet pairs, by the workers' own code: packed, exchanged in files, stored and written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.steps import is_exchanged, side_streams
from catalog.values.stream import FilesSource
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from service.job.in_process.in_process_job import InProcessJob, write_piece
from service.results.result_sql import pairs_sql, results_sql
from tests.operators.steps.combinations import Written, expected, rows, stream

ROWS, BATCHES, BUCKETS = 60, 4, 3


@pytest.mark.parametrize(
    ("conditions", "exchanged"),
    [
        (("s0.k = s1.k", "s1.k = s2.k", "s2.k = s3.k"), [False, False]),
        (("s0.k = s1.k", "s0.k = s2.k", "s2.j = s3.j"), [False, True]),
        (("s0.k = s1.k", "s1.j = s2.j", "s2.k = s3.k"), [True, True]),
    ],
    ids=["one key", "one side exchanged", "both sides exchanged"],
)
def test_pairs_of_both_sides_meet_in_their_bucket(
    tmp_path: Path, conditions: tuple[str, ...], exchanged: list[bool]
) -> None:
    source = FilesSource("parquet", str(tmp_path))
    streams = {n: replace(stream(n, "bigint", 100_000_000), source=source) for n in range(1, 5)}
    rng = np.random.default_rng(3)
    tables = {n: rows(rng, streams[n], ROWS, 30, 2, 6) for n in streams}
    placed = {n: np.arange(ROWS) * BATCHES // ROWS for n in streams}
    written = Written((1, 2, 3, 4), (9, 6, 5, 8), conditions)
    cql = f"{written.cql} TREE ((s0, s1), (s2, s3))"
    query = bind(cql, {s.name: s for s in streams.values()}, name="q", query_id=1)
    assert [is_exchanged(side.stream_id) for side in (query.a, query.b)] == exchanged
    job = InProcessJob(build_plan([query], streams), BUCKETS, tmp_path)
    made = []
    # The last pairs are on their way for a batch.
    for batch in range(BATCHES + 1):
        pieces = [
            write_piece(tmp_path, streams[n], batch, t.drop_columns(["_pos"]).filter(placed[n] == batch))
            for n, t in tables.items()
            if batch < BATCHES
        ]
        packets = job.pack(batch, pieces)
        for bucket in range(BUCKETS):
            report = job.join(bucket, packets[bucket])
            made += [pq.read_table(tmp_path / file.path) for file in report.files]
    job.close()
    table = pa.concat_tables(made)
    routes = ", ".join(map(str, set(table.column("_route").to_pylist())))
    with duckdb.connect() as duck:
        duck.register("made", table)
        a, b = side_streams(query, streams.__getitem__)
        pairs = f"({pairs_sql(a, b, [])} UNION ALL BY NAME SELECT * FROM made)"
        found = Counter(duck.sql(results_sql(query, pairs, routes, besides=())).fetchall())
    wanted = expected(written, tables, placed, {})
    assert len(wanted) > 100
    assert found == wanted
