"""The Spark session of the native peers, and the streams as its file source reads them."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it
from pyspark.sql.streaming.query import StreamingQuery

from service.jvm.java import use_java
from tests.bench.peers.job import Batch, Job

SCHEMA = "ts timestamp_ntz, k bigint, v double"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextmanager
def spark_session(job: Job) -> Iterator[SparkSession]:
    """Yield a session with the peer's best settings.

    State is in Spark's default store and format, or in RocksDB with the joins' newest format.
    """
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": f"{job.memory_gb}g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(Path(job.scratch) / "spark"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(job.cores),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # A batch without rows clears state. No result waits for that but that of a row without a partner.
        "spark.sql.streaming.noDataMicroBatches.enabled": str(any(q.left for q in job.queries)).lower(),
        # Also the bound on versions of the default store's state that are kept on disk.
        "spark.sql.streaming.minBatchesToRetain": "10",
        # Queries that run beside each other get a pool each: else their jobs follow one another.
        "spark.scheduler.mode": "FAIR",
    }
    if job.options["rocksdb"]:
        settings |= {
            "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
            "spark.sql.streaming.join.stateFormatVersion": "4",
        }
    builder = SparkSession.builder.master(f"local[{job.cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def read_stream(spark: SparkSession, job: Job, name: str) -> DataFrame:
    """Return a stream of the job's files."""
    return (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", job.options["files_per_batch"])
        .parquet(str(Path(job.directory) / name))
    )


def start(frame: DataFrame, job: Job, name: str) -> StreamingQuery:
    """Start a query over everything available, its rows going nowhere."""
    frame.sparkSession.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    checkpoint = tempfile.mkdtemp(prefix=f"{name}-", dir=job.scratch)
    return (
        frame.writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def observed(frame: DataFrame, conditions: dict[str, Column]) -> DataFrame:
    """Count, on the way into the sink, the rows that meet each condition."""
    counts = [F.count_if(condition).alias(name) for name, condition in conditions.items()]
    return frame.observe("results", counts[0], *counts[1:])


def finish(queries: list[StreamingQuery]) -> tuple[float, list[list[Batch]], list[dict[str, int]]]:
    """Wait for queries, and return when the last one ended, their batches, and what was observed."""
    for query in queries:
        query.awaitTermination()
    ended_s = time.time()
    batches, counts = [], []
    for query in queries:
        progress = [json.loads(p.json) for p in query.recentProgress]
        batches.append([_batch(p) for p in progress if p["numInputRows"]])
        totals: dict[str, int] = {}
        for one in progress:
            for name, count in one.get("observedMetrics", {}).get("results", {}).items():
                totals[name] = totals.get(name, 0) + count
        counts.append(totals)
    return ended_s, batches, counts


def versions(spark: SparkSession) -> dict[str, str]:
    """Return what runs."""
    java = spark._jvm.java.lang.System.getProperty("java.version")  # type: ignore[union-attr]  # py4j
    return {"Spark": pyspark.__version__, "Java": str(java), "Python": platform.python_version()}


def _batch(progress: dict[str, Any]) -> Batch:
    began_s = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    took_s = progress["durationMs"]["triggerExecution"] / 1000
    return Batch(began_s, began_s + took_s, progress["numInputRows"])
