"""The baseline: one native Spark stream-stream join of the largest window over the same files.

Run as a process of its own, so that it has a JVM to itself: ``python -m tests.bench.native_join DIR``. One
file per stream and batch; results are counted by an observed metric on their way into the noop sink, which
costs next to nothing. Prints one JSON object. The default state store is the baseline: on 2 x 1M rows, 5 s,
two runs of each in turn on a loaded machine, it did 24 and 38 k rows/s, RocksDB 20 and 21 k. That says
which is faster, not by how much; alone on the machine the default store did 69 k (one run).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from tests.bench.many_keys_data import WINDOWS_S

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def _stream(spark: SparkSession, directory: Path, name: str) -> DataFrame:
    return (
        spark.readStream.schema("ts timestamp_ntz, k bigint, v double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(directory / name))
        .select(
            F.col("ts").cast("timestamp").alias(f"{name}_ts"),
            F.col("k").alias(f"{name}_k"),
            F.col("v").alias(f"{name}_v"),
        )
        .withWatermark(f"{name}_ts", "0 seconds")
    )


def run(
    directory: Path, window_s: float, store: Literal["default", "rocksdb"], partitions: int, memory: str
) -> dict[str, Any]:
    """Run the join to its end.

    Returns:
        Count, seconds and rows per second: whole (from the start of the query) and steady (from the end of
        the second batch to the end of the last one that brought rows).
    """
    builder = (
        SparkSession.builder.master(f"local[{partitions}]")
        .config("spark.driver.memory", memory)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", partitions)
        .config("spark.sql.streaming.numRecentProgressUpdates", 1000)
    )
    if store == "rocksdb":
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB).config(
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        a, b = _stream(spark, directory, "A"), _stream(spark, directory, "B")
        window = F.expr(f"INTERVAL {round(window_s * 1_000_000)} MICROSECONDS")
        near = (F.col("A_ts") > F.col("B_ts") - window) & (F.col("A_ts") < F.col("B_ts") + window)
        joined = a.join(b, (F.col("A_k") == F.col("B_k")) & near).select("A_ts", "B_ts", "A_k")
        counted = joined.observe("results", F.count(F.lit(1)).alias("rows"))
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
            began = time.monotonic()
            query = (
                counted.writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            seconds = time.monotonic() - began
            progress = [json.loads(p.json) for p in query.recentProgress]
    finally:
        spark.stop()
    return {"store": store, "window_s": window_s} | _measured(progress, seconds)


def _measured(progress: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    results = sum(p.get("observedMetrics", {}).get("results", {}).get("rows", 0) for p in progress)
    batches = [p for p in progress if p["numInputRows"]]
    rows = [p["numInputRows"] for p in batches]
    ends = [
        datetime.fromisoformat(p["timestamp"].replace("Z", "+00:00")).timestamp()
        + p["durationMs"]["triggerExecution"] / 1000
        for p in batches
    ]
    steady_s = ends[-1] - ends[1] if len(ends) > 2 else None
    return {
        "results": results,
        "input_rows": sum(rows),
        "batches": len(batches),
        "seconds": round(seconds, 3),
        "rows_per_s": round(sum(rows) / seconds),
        "steady_seconds": round(steady_s, 3) if steady_s else None,
        "steady_rows_per_s": round(sum(rows[2:]) / steady_s) if steady_s else None,
    }


def main(
    directory: Path,
    window_s: Annotated[float, typer.Option(help="Window of both streams.")] = max(WINDOWS_S),
    store: Annotated[str, typer.Option(help="State store: default or rocksdb.")] = "default",
    partitions: Annotated[int, typer.Option(help="Cores and shuffle partitions.")] = 2,
    memory: Annotated[str, typer.Option(help="Heap of the JVM.")] = "10g",
) -> None:
    """Run the native join over DIRECTORY and print what it did as JSON."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    outcome = run(directory, window_s, "rocksdb" if store == "rocksdb" else "default", partitions, memory)
    print(json.dumps(outcome))


if __name__ == "__main__":
    typer.run(main)
