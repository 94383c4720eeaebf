"""The files that every engine reads: Parquet by batch, and one CSV file per stream of the same rows.

    <root>/<streams>/A/part-000000.parquet ...      ts, k, v; one file is one batch
    <root>/<streams>/B/part-000000.parquet ...
    <root>/<streams>/csv/A.csv, B.csv ...          us, k, v; written where a peer asks for it

Flink's and Pathway's PyPI packages read no Parquet. They get one file per stream: Flink's file source hands
several files of a stream to its readers in no set order, and rows that come late are lost without a word.
Pathway wants a header, Flink cannot skip one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import numpy as np

from tests.bench.peers.workloads import DAY_US, SECOND_US, START_US, Streams
from tests.bench.runs import write_part


def write_streams(root: Path, streams: Streams) -> Path:
    """Write the streams' files, unless they are there already, and return their directory."""
    directory, unfinished = root / streams.name, root / f"{streams.name}.unfinished"
    if directory.exists():
        return directory
    shutil.rmtree(unfinished, ignore_errors=True)
    per_file = streams.rows // streams.files
    for seed, name in enumerate(streams.names):
        rng = np.random.default_rng(seed)
        ranks = _ranks(streams)
        for number in range(streams.files):
            places = np.arange(number * per_file, (number + 1) * per_file, dtype=np.int64)
            keys, values = _keys(streams, rng, per_file, ranks), rng.random(per_file)
            ts_us = START_US + places * SECOND_US // streams.rate_per_s
            if streams.ended and number == streams.files - 1:
                ts_us[-1] += DAY_US
                keys[-1] = -1 - seed
            write_part(unfinished, name, number, ts_us, k=keys, v=values)
    unfinished.rename(directory)
    return directory


def _ranks(streams: Streams) -> np.ndarray | None:
    """Return the distribution function over the keys, or None where they are uniform."""
    if streams.zipf is None:
        return None
    weights = np.arange(1, streams.keys + 1, dtype=np.float64) ** -streams.zipf
    return np.cumsum(weights / weights.sum())


def _keys(streams: Streams, rng: np.random.Generator, rows: int, ranks: np.ndarray | None) -> np.ndarray:
    if ranks is None:
        return rng.integers(0, streams.keys, rows)
    return np.minimum(np.searchsorted(ranks, rng.random(rows)), streams.keys - 1)


def write_csv(directory: Path, streams: Streams, *, header: bool) -> Path:
    """Write each stream as one CSV file in event-time order, with µs as numbers; return their directory."""
    copies = directory / ("csv-with-header" if header else "csv")
    copies.mkdir(exist_ok=True)
    with duckdb.connect() as connection:
        for name in streams.names:
            finished, unfinished = copies / f"{name}.csv", copies / f"{name}.unfinished"
            if not finished.exists():
                connection.execute(
                    f"COPY (SELECT epoch_us(ts) AS us, k, v FROM '{directory / name}/*.parquet' ORDER BY us) "
                    f"TO '{unfinished}' (FORMAT csv, HEADER {str(header).lower()})"
                )
                unfinished.rename(finished)
    return copies
